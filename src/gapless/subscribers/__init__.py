"""Subscribers: the end of the streams, where each subscription gets its events (GD 2.3; R42 to R52).

Theory of operation
-------------------
An SHB has one **subend** (:mod:`.subend`) per pubend for all its subscriptions: the doubt horizon moves over
the stream once. A **subscription** (:mod:`.subscription`) has a **cursor** (:mod:`.cursor`) on every pubend
whose events it may match. A cursor is live behind the horizon, reads the log on its way there, or waits for
its start or its client (:mod:`.cursor_state`). The filters of a subscription are **segments**
(:mod:`.filter_segments`): a change of filter ends one and starts the next, at one tick of each stream.

- one stream: :mod:`.subend`, :mod:`.start_query`, :mod:`.subend_nacks`, :mod:`.groups`; without a log:
  :mod:`.best_effort_end`
- all streams: :mod:`.subends` joins and leaves pubends, :mod:`.membership` knows of which this SHB is a
  member and which are abandoned, :mod:`.reporter` tells pubends up to which tick nothing is needed
- one subscription on one pubend: :mod:`.cursor` with :mod:`.buffer`, :mod:`.catch_up`, :mod:`.log_hold`,
  :mod:`.retention`, :mod:`.exclusion`, :mod:`.filter_switch`, :mod:`.delivery_limit`,
  :mod:`.start_verification`
- one subscription: :mod:`.cursor_set`, :mod:`.reply`, :mod:`.filter_change`, :mod:`.start_guarantee`,
  :mod:`.record`; what is sent: :mod:`.delivery`, :mod:`.merge`, :mod:`.progress`, :mod:`.stalls`
- all subscriptions: :mod:`.filters` matches publications, :mod:`.registry` has them by name and by client
  session, :mod:`.step_end` flushes those that a step touched, :mod:`.slow_consumers` ends those that do not
  keep up, :mod:`.maintenance` does what is due from time to time
- requests: :mod:`.client_calls`, :mod:`.operator_calls`. :mod:`.protocols` has what is asked of others.

What is missing of the past, for whatever reason (a client that comes back, a late start, a slow client, a
filter that was in no table), comes by one primitive: a read of the log with the filter.

Invariants
----------
- A cursor passes over each tick of its stream once, in order, under the filter that applies there: by the
  subend where that is covered, otherwise by a read exact for that filter (I7, I8).
- Where a durable cursor starts, and where a filter ends on it, is on disk before its client gets anything
  beyond (I13). So after a crash it continues with the same segments.
- Of a pubend that is newer than a subscription, the subscription gets what was published after the PHB knew
  the filter that the client knew when this SHB heard of the pubend, whichever SHB that was (R46, MV-13). In
  total order nothing starts below what was merged (R51).
- What a report gives up, no cursor needs, except under a log hold (I9).
- Buffers are bounded: a client that does not keep up reads the log, or is disconnected (P7).

Papers: the subend's safety and liveness (GD 2.3), one stream per SHB for all subscribers (GD 4.1);
delivery start points (VT 4.1.8).
"""

from gapless.subscribers.client_calls import SubscriberCalls
from gapless.subscribers.filters import Filters
from gapless.subscribers.maintenance import Maintenance
from gapless.subscribers.operator_calls import OperatorCalls
from gapless.subscribers.protocols import Hosting, Interest, PubendStatus
from gapless.subscribers.registry import Registry
from gapless.subscribers.subends import Subends

__all__ = [
    "Filters",
    "Hosting",
    "Interest",
    "Maintenance",
    "OperatorCalls",
    "PubendStatus",
    "Registry",
    "Subends",
    "SubscriberCalls",
]
