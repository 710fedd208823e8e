"""The client: what a program uses to publish and to subscribe.

Theory of operation
-------------------
A :class:`Session` has one :class:`ReconnectingLink` or more; a link keeps a connection to a broker and makes it
again when it is lost. Publishers and subscriptions use a link and know what to ask again over a new
connection: a publisher opens its name and sends what was not answered under the same sequences, a
subscription goes on from what it has received. Nobody else resends anything. All of it runs in the
event loop of the program; :mod:`.sync` runs it in a thread for programs that have none.

Work is done by the frame: what is published while a frame is under way shares the next one, and a
frame of events is decoded at once and handed out from a queue without another turn of the loop.

Invariants
----------
- An event has one sequence from its first sending on, whatever happens to connections.
- What was received is never behind what was handed out, nor that behind what is acknowledged.
- The events that wait in a subscription, and those it has given credit for, are not more than its
  ``prefetch``; those in a publisher are not more than its ``in_flight_max``.
- Every call ends: with an answer, a typed error, or its deadline. After a deadline it is known
  whether the call was sent; if it was, its outcome is not known, and the error says so.
- What is cancelled leaves nothing behind: no task, no timer, no answer that nobody takes.
- A lost connection is no error. Only what cannot go on is one.

What is where
-------------
- :mod:`.session`, :mod:`.session_links`: ``connect``, what a session offers, and its links
- :mod:`.publisher`, :mod:`.outbox`, :mod:`.batches`: events on their way to a pubend
- :mod:`.staged_writer`: events that a commit publishes all at once
- :mod:`.subscription`, :mod:`.inbox`, :mod:`.prefetch`: events on their way to the program
- :mod:`.resume_state`, :mod:`.requested_filter`, :mod:`.hosting`: what an inbox asks for after a
  lost connection
- :mod:`.link_state`, :mod:`.outbox_state`, :mod:`.subscription_state`,
  :mod:`.requested_filter_state`: the states as tables, each with
  its theory of operation
- :mod:`.settings`: what a subscription is asked for
- :mod:`.reading`, :mod:`.starts`: ranges of a log, and where to begin
- :mod:`.link`, :mod:`.connection`, :mod:`.dial_order`, :mod:`.requests`: connections and requests
- :mod:`.options`: deadlines and waits
- :mod:`.credentials`: who the client is, to brokers that ask
- :mod:`.event`, :mod:`.position`: what the program holds in its hands
- :mod:`.sync`, :mod:`.sync_publisher`, :mod:`.sync_subscription`, :mod:`.loop_thread`: the same for programs without an event loop
"""

from gapless.client.event import Event
from gapless.client.position import Position
from gapless.client.publisher import Publisher
from gapless.client.session import Session, connect
from gapless.client.staged_writer import CommitResult, StagedPart, StagedWriter
from gapless.client.subscription import Subscription
from gapless.client.sync import SyncSession, connect_sync
from gapless.client.sync_publisher import SyncPublisher
from gapless.client.sync_subscription import SyncSubscription
from gapless.core.backoff import Backoff

__all__ = [
    "Backoff",
    "CommitResult",
    "Event",
    "Position",
    "Publisher",
    "Session",
    "StagedPart",
    "StagedWriter",
    "Subscription",
    "SyncPublisher",
    "SyncSession",
    "SyncSubscription",
    "connect",
    "connect_sync",
]
