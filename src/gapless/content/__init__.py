"""Content: the meaning of filters, covering between filters, and matching of events.

Theory of operation
-------------------
A filter's text is processed in four stages, each of which can be read alone:

1. :mod:`.lexer` splits it into tokens, and :mod:`.parser` parses them into a **condition**
   (:mod:`.condition`): AND, OR, NOT over comparisons (:mod:`.comparisons`) of operands
   (:mod:`.operands`). The Python builder (:mod:`.builder`) makes the same conditions, so both have
   the same meaning and the same errors.
2. A **test** is true for some values of one subject. A condition on one attribute is a set of
   values (:mod:`.valueset`): cuts for numbers and texts (:mod:`.spans`), patterns (:mod:`.like`),
   the two bools, NaN, missing. Arithmetic and comparisons of attributes are subjects of their own,
   computed from the event (:mod:`.expression`).
3. :mod:`.normal` pushes NOT down to the tests and multiplies out to **conjunctions**
   (:mod:`.conjunction`): value sets by subject, all of which an event must satisfy. Logic is
   three-valued (a missing attribute and a comparison of unlike types are *unknown*), and the
   normal form is exact: a conjunction matches exactly if the text is *true*.
4. :class:`Filter` (:mod:`.filter`) is the simplified set of conjunctions. Filters are compared,
   hashed, covered, printed (:mod:`.text`) and evaluated (:mod:`.evaluate`) by this normal form.

Brokers use conjunctions, not filters: conjunctions are indexed, put into the covering forest
(:mod:`.matching`), merged and sent. A covering may be missed but is never claimed wrongly. An
intersection may be claimed wrongly but is never missed. Every decision based on them errs towards
sending too much.

This package imports only :mod:`gapless.core`. It has no IO, no clock and no randomness; the same
text has the same normal form in every process. :mod:`gapless.core.limits` bounds all sizes, so an
untrusted filter costs bounded time.

Papers: a subscription as a set of conjunctions, and covering (VT 3.2.1, definitions 3.3 to 3.5);
covered conjunctions are withheld (VT 3.4.1) and found by the conjunction DAG (VT 4.1.2), here a
forest; merging (VT 3.5); filters on the edges between streams (GD 2.4).
"""

from __future__ import annotations

from gapless.content.builder import F
from gapless.content.conjunction import Conjunction
from gapless.content.filter import Filter
from gapless.content.matching import CoveringForest, MatchIndex

__all__ = ["Conjunction", "CoveringForest", "F", "Filter", "MatchIndex"]
