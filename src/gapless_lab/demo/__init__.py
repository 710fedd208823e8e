"""``gapless demo``: an overlay under a market's traffic, with brokers killed, and an audit.

Theory of operation
-------------------
Real broker processes form a tree (:mod:`.run`). Publishers send quotes and subscribers receive them
(:mod:`.clients`); :mod:`.workload` defines both and their filters. Meanwhile a script kills brokers,
changes a filter, disconnects a subscriber and starts a late one (:mod:`.script`).

Every publisher and every subscriber writes a record file of its own (:mod:`.records`). The audit
(:mod:`.audit`) reads only these files. It evaluates the filters with plain Python functions,
computes what each subscriber must receive, and compares.

Invariants
----------
- The audit imports nothing of the broker, the client or the filters; a test checks that.
- Only an acknowledged publication must be delivered. One with an unknown outcome may be delivered or
  not, but not twice, not out of order, and only to subscribers whose filter matches.
- However the demo ends, it leaves no broker running.
"""
