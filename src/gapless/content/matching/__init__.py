"""Matching: from an event to the filters it matches, and between filters who covers whom.

Theory of operation
-------------------
A filter comes in as conjunctions. Equal conjunctions share a **slot** with a set of owners
(:mod:`.table`, :mod:`.owners`), so ten thousand subscriptions to the same thing are one slot.

Each slot is found by one **access** (:mod:`.plan`): the most selective condition that a hash can
answer. ``symbol = 'IBM'`` puts it into the group of (symbol, 'IBM'); an IN list of a few values
into one group a value; a prefix into the group of that prefix; a conjunction of mere ranges into
the group of *some attribute is present*, preferably a rare one, so that events of one kind do not
meet the filters meant for another. An event makes one dict probe per attribute, and one more per
registered prefix length.

A **group** of few slots is verified slot by slot. A larger one has, for every attribute that a fair
share of its slots asks for, **bit rows**: the attribute's values are cut into 64 buckets (missing, FALSE, TRUE, NaN,
texts by hash, numbers by quantiles of the ends), and in the row of a bucket the bit of a slot says
that the slot's condition *cannot* hold there. Joining one row per attribute leaves the slots that
may match, 64 to a word; these are verified exactly. Badly placed buckets cost false candidates,
never errors.

What ranges cannot say (patterns, ranges of texts, derived terms) is a smaller conjunction, asked
last of the survivors only.

Two engines do this: a compiled one (`_kernel.pyx` with its parts) and a twin in Python and NumPy
(:mod:`.fallback`); :mod:`.kernel` picks one. They share the plans and pass the same tests. Above them:

- :class:`MatchIndex`: keys and filters;
- :class:`RoutingIndex`: links and local subscriptions in one pass;
- :class:`CoveringForest`: which conjunctions cover which; its roots are what is propagated
  (VT 4.1.2, 4.1.3).

Invariants
----------
- an event's result is exactly what evaluating every filter would give;
- adding and removing cost no rebuild: arrays double, freed slots and positions are used again, the
  buckets of one group are drawn anew when it has grown eightfold;
- the choice of engine, of access and of buckets changes speed and nothing else.
"""

from gapless.content.matching.forest import CoveringForest, RootChange
from gapless.content.matching.index import MatchIndex
from gapless.content.matching.kernel import COMPILED, KERNEL, KERNEL_REASON
from gapless.content.matching.routing import Route, RoutingIndex

__all__ = [
    "COMPILED",
    "KERNEL",
    "KERNEL_REASON",
    "CoveringForest",
    "MatchIndex",
    "RootChange",
    "Route",
    "RoutingIndex",
]
