"""Content: what a filter means, when one covers another, and which filters an event matches.

Theory of operation
-------------------
A filter's text goes through four small rooms, each of which can be read alone:

1. :mod:`.lexer` cuts it into tokens, :mod:`.parser` reads them into a **condition**
   (:mod:`.condition`): AND, OR, NOT over comparisons (:mod:`.comparisons`) of operands
   (:mod:`.operands`). The Python builder (:mod:`.builder`) makes the same conditions, so it means
   the same and refuses the same.
2. A **test** says of one subject which values make it true. All that can be said of one attribute
   is a set of values (:mod:`.valueset`): lines of cuts for numbers and texts (:mod:`.spans`),
   patterns (:mod:`.like`), the two bools, NaN, missing. Arithmetic and comparisons of attributes
   are subjects of their own, computed from the event (:mod:`.expression`).
3. :mod:`.normal` pushes NOT down to the tests and multiplies out to **conjunctions**
   (:mod:`.conjunction`): value sets by subject, all of which an event must meet. Logic is
   three-valued (a missing attribute and a comparison of unlike types are *unknown*), and the
   normal form is exact: a conjunction matches where the text comes out *true*.
4. :class:`Filter` (:mod:`.filter`) is the set of conjunctions that is left, simplified, so that
   filters are compared, hashed, covered, printed (:mod:`.text`) and evaluated (:mod:`.evaluate`)
   by their normal form.

Brokers deal in conjunctions, not in filters: conjunctions are indexed and put into the covering
forest (:mod:`.matching`), merged and sent. Covering may be missed, never wrongly claimed;
intersection may be claimed wrongly, never missed; every decision built on them errs towards
sending too much.

What this room may touch: :mod:`gapless.core` and nothing else of ours. No IO, no clock, no
randomness; the same text gives the same normal form in every process. Sizes are bounded by
:mod:`gapless.core.limits`, so a filter from a stranger costs bounded time.

Papers: a subscription as a set of conjunctions, and covering (VT 3.2.1, definitions 3.3 to 3.5);
what is covered is withheld (VT 3.4.1) and found by the conjunction DAG (VT 4.1.2), here a forest;
merging (VT 3.5); filters on the edges between streams (GD 2.4).
"""

from __future__ import annotations

from gapless.content.builder import F
from gapless.content.conjunction import Conjunction
from gapless.content.filter import Filter
from gapless.content.matching import CoveringForest, MatchIndex

__all__ = ["Conjunction", "CoveringForest", "F", "Filter", "MatchIndex"]
