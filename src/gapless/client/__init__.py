"""The client: what a program uses to publish and to subscribe.

Theory of operation
-------------------
A :class:`Session` has one or more links (:class:`ReconnectingLink`). A link keeps a connection to a
broker and replaces it when it is lost. Publishers and subscriptions use a link and repeat their
requests over a new connection: a publisher opens its name and sends unanswered events under the
same sequences, a subscription continues from what it has received. Nothing else is sent again. All
of it runs in the event loop of the program; :mod:`.sync` runs it in a thread for programs that have
none.

Work is done by the frame. Events that are published while a frame is in flight share the next one.
A frame of events is decoded at once and handed out from a queue without another turn of the loop.

Invariants
----------
- An event keeps its sequence from its first sending, over all connections.
- On every stream: acknowledged <= handed out <= received.
- A subscription never has more events waiting and credited than its ``prefetch``; a publisher never
  has more than its ``in_flight_max``.
- Every call ends with an answer, a typed error, or its deadline. After a deadline the error states
  whether the request was sent. If it was, its outcome is unknown.
- A cancelled call leaves no task, no timer and no waiter behind.
- A lost connection is no error. Only a state that cannot continue is one.

What is where
-------------
- :mod:`.session`, :mod:`.session_links`: ``connect``, the session and its links
- :mod:`.publisher`, :mod:`.outbox`, :mod:`.batches`: events that are sent to a pubend
- :mod:`.staged_writer`: events that one commit publishes
- :mod:`.subscription`, :mod:`.inbox`, :mod:`.prefetch`: events that are received
- :mod:`.resume`, :mod:`.requested_filter`, :mod:`.hosting`: what an inbox requests after a
  lost connection
- :mod:`.link_state`, :mod:`.outbox_state`, :mod:`.subscription_state`,
  :mod:`.requested_filter_state`: the states as tables, each with its theory of operation
- :mod:`.session_operations`, :mod:`.closing`, :mod:`.ending`: calls on durable subscriptions and pubends
- :mod:`.settings`: the options of a subscription
- :mod:`.reading`, :mod:`.starts`: ranges of a log, and start points
- :mod:`.link`, :mod:`.connection`, :mod:`.dial_order`, :mod:`.requests`: connections and requests
- :mod:`.options`: deadlines and waits
- :mod:`.arguments`: the checks of arguments; :mod:`.many`: the events of ``publish_many``
- :mod:`.connection_changes`: log lines and callbacks when connections are made and lost
- :mod:`.credentials`: the token that identifies the client
- :mod:`.event`, :mod:`.position`: the values that a program works with
- :mod:`.sync`, :mod:`.sync_publisher`, :mod:`.sync_subscription`, :mod:`.loop_thread`: the same for
  programs without an event loop
"""

from gapless.client.closing import PubendClosing
from gapless.client.connection_changes import ConnectionChange
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
    "ConnectionChange",
    "Event",
    "Position",
    "PubendClosing",
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
