"""``gapless demo``: an overlay under a market's traffic, with brokers killed, and an audit of it all.

Theory of operation
-------------------
Real broker processes form a tree (:mod:`.run`). Feeds publish quotes, watchers subscribe
(:mod:`.clients`); who they are and what they want is in :mod:`.workload`. Meanwhile a script kills
brokers, changes a filter, sends a subscriber away and lets a late one come (:mod:`.script`).

Every feed and every watcher writes down what happened to it, in a file of its own (:mod:`.records`).
The audit (:mod:`.audit`) reads nothing but these files. It decides by itself what matches, with
plain Python functions, computes what is owed to whom, and compares.

Invariants
----------
- The audit imports nothing of the broker, the client or the filters; a test holds it to that.
- Only an acknowledged publication is owed. One whose outcome is unknown may be delivered or not, but
  not twice, not out of order and not to somebody who did not ask for it.
- However the demo ends, no broker is left behind.
"""
