"""Matching of events with filters, and covering between filters.

Theory of operation
-------------------
The index stores the conjunctions of filters. Equal conjunctions share a **slot** with a set of
owners (:mod:`.table`, :mod:`.owners`), so ten thousand equal subscriptions are one slot.

Events find each slot by one **access** (:mod:`.plan`): the most selective condition that a hash
table can answer. ``symbol = 'IBM'`` puts the slot into the group of (symbol, 'IBM'), an IN list of
a few values into one group a value, a prefix into the group of that prefix. A conjunction of ranges
only is put into the group of *some attribute is present*, preferably a rare one, so that events of
one kind do not reach filters for another. An event makes one dict lookup per attribute, and one
more per registered prefix length.

The slots of a small **group** are verified one by one. A larger group has **bit rows** for every
attribute that a fair share of its slots constrains. The attribute's values are divided into 64
buckets (missing, FALSE, TRUE, NaN, texts by hash, numbers by quantiles of the ends). In the row of
a bucket the bit of a slot is set if the slot's condition *cannot* hold there. The union of one row
per attribute leaves the slots that may match, 64 to a word; these are verified exactly. Badly
placed buckets cost false candidates, never errors.

Conditions that ranges cannot express (patterns, ranges of texts, derived terms) are a smaller
conjunction, evaluated last and only for the remaining slots.

There are two engines: a compiled one (`_kernel.pyx` with its parts) and a fallback in Python and
NumPy (:mod:`.fallback`). :mod:`.kernel` selects one. They share the plans and pass the same tests.
Three classes use them:

- :class:`MatchIndex`: keys and filters;
- :class:`RoutingIndex`: links and local subscriptions in one pass;
- :class:`CoveringForest`: which conjunctions cover which; its roots are propagated
  (VT 4.1.2, 4.1.3).

Invariants
----------
- an event's result is exactly that of evaluating every filter;
- adding and removing need no rebuild: arrays double, freed slots and positions are reused, and the
  buckets of a group are computed again when it has grown eightfold;
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
