"""Subscribers: the end of the streams, where each subscription gets its events (GD 2.3; R42 to
R52).

Theory of operation
-------------------
An SHB has one **subend** (:mod:`.subend`) per pubend for all its subscriptions. The doubt horizon
passes over the stream once. A **subscription** (:mod:`.subscription`) has a **cursor**
(:mod:`.cursor`) on every pubend whose events it may match. A cursor is live, reads the log until it
reaches the horizon, or waits for its start or its client (:mod:`.cursor_state`). The filters of a
subscription are **segments** (:mod:`.filter_segments`). A filter change ends one segment and starts
the next, at one tick of each stream.

- one stream: :mod:`.subend`, :mod:`.start_query`, :mod:`.subend_nacks`, :mod:`.uncovered_read`,
  :mod:`.groups`; without a log: :mod:`.best_effort_end`
- all streams: :mod:`.subends` joins and leaves pubends, :mod:`.membership` keeps the memberships of
  this SHB and which pubends are abandoned, :mod:`.reporter` reports the ack floors
- one subscription on one pubend: :mod:`.cursor` with :mod:`.buffer`, :mod:`.catch_up`,
  :mod:`.log_hold`, :mod:`.retention`, :mod:`.exclusion`, :mod:`.filter_switch`,
  :mod:`.delivery_limit`, :mod:`.start_verification`
- one subscription: :mod:`.cursor_set`, :mod:`.reply`, :mod:`.filter_change`,
  :mod:`.start_guarantee`, :mod:`.record`; what is sent: :mod:`.delivery`, :mod:`.merge`,
  :mod:`.progress`, :mod:`.stalls`
- all subscriptions: :mod:`.filters` matches publications, :mod:`.registry` finds subscriptions by
  name and by client session, :mod:`.step_end` flushes those that a step touched,
  :mod:`.slow_consumers` ends those that do not keep up, :mod:`.maintenance` runs the periodic work
- requests: :mod:`.client_calls`, :mod:`.operator_calls`. :mod:`.protocols` lists what other
  components provide.

Missing past events always come from a read of the log with the filter: for a client that returns, a
late start, a slow client, or a filter that was in no table.

Invariants
----------
- A cursor passes over each tick of its stream once, in order, with the filter that applies there.
  The events come from the subend where the range is covered, otherwise from a read that is exact
  for that filter (I7, I8).
- The start of a durable cursor and the end of each filter on it are on disk before the client is
  sent anything beyond them (I13). After a crash the cursor continues with the same segments.
- A subscription receives from a pubend created later every event published after the PHB knew its
  filter: the filter that the client knew when the SHB heard of the pubend. Each of its hosting
  brokers counts (R46, MV-13). In total order no stream starts below what was merged (R51).
- No cursor needs the ticks that a report gives up, except under a log hold (I9).
- Buffers are bounded. A subscription whose client is too slow reads the log, or is ended (P7).

Papers: the subend's safety and liveness (GD 2.3), one stream per SHB for all subscribers (GD 4.1);
delivery start points (VT 4.1.8).
"""

from gapless.subscribers.client_calls import SubscriberCalls
from gapless.subscribers.corrupt import CorruptSubscriptions
from gapless.subscribers.filters import Filters
from gapless.subscribers.maintenance import Maintenance
from gapless.subscribers.operator_calls import OperatorCalls
from gapless.subscribers.protocols import Hosting, Interest, PubendStatus
from gapless.subscribers.registry import Registry
from gapless.subscribers.subends import Subends

__all__ = [
    "CorruptSubscriptions",
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
