"""Subscribers: the end of the streams, where each subscription gets its own (GD 2.3; R42 to R52).

Theory of operation
-------------------
A broker that hosts subscribers has one **subend** (:mod:`.subend`) per pubend for all of them: the
doubt horizon moves over the stream once, whoever is there. A **subscription** (:mod:`.subscription`)
has a **strand** (:mod:`.cursor`) on every pubend whose events could match; a strand is live behind
the horizon, or reads the log on its way there, or waits for its start or its client. Filters are
**segments** (:mod:`.filter_segments`): a change of filter lets one end and the next govern, at one tick of
each stream.

The **host** (:mod:`.host`) joins pubends and matches publications; :mod:`.groups` knows who waits for what
of a stream, :mod:`.start_guarantee` since when a subscription is owed pubends that are younger. :mod:`.client_calls` takes
what clients ask, :mod:`.operator_calls` what operators ask of durable subscriptions. :mod:`.reporter` tells pubends up to where their logs are needed, :mod:`.log_hold` keeps them
for those who read far back, and :mod:`.progress` tells clients where nothing comes. :mod:`.record` brings
durable subscriptions back from disk; :mod:`.abandonment` knows the pubends that nobody waits for, as their brokers
were retired, and :mod:`.exclusion` what total order does without them; :mod:`.best_effort_end` is the end of a best-effort stream.

Whatever is missing of the past, for whatever reason (a client that comes back, a late start, a slow
reader, a filter that no table knew), comes by one primitive: a read of the log with the filter.

Invariants
----------
- A strand passes over each tick of its stream once, in order, under the filter that governs it: by
  the subend where that is covered, else by a read exact for that filter (I7, I8).
- Where a durable strand begins, and where a filter ends on it, is on disk before its client is told
  anything beyond (I13). So after a crash it goes on with the same segments.
- Of a pubend that is younger than a subscription, that is owed what came since the news of the filter that its
  client knew of when this host heard of the pubend, at whatever home it was then (R46, MV-13). In total order nothing
  begins below what was merged (R51).
- What a report gives up, no strand needs, except under a hold (I9).
- Buffers are bounded: who does not keep up reads the log, or is disconnected (P7).

Papers: the subend's safety and liveness (GD 2.3), one stream per host for all subscribers (GD 4.1);
delivery start points (VT 4.1.8).
"""

from gapless.subscribers.client_calls import SubscriberCalls
from gapless.subscribers.host import Interest, SubscriberHost
from gapless.subscribers.operator_calls import OperatorCalls
from gapless.subscribers.record import restore
from gapless.subscribers.reporter import AckReporter

__all__ = [
    "AckReporter",
    "Interest",
    "OperatorCalls",
    "SubscriberCalls",
    "SubscriberHost",
    "restore",
]
