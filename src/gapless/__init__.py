"""Content-based publish/subscribe without gaps.

What exists today is the content layer: what a filter means, when one filter covers another, and
which filters an event matches.

>>> from gapless import F, Filter, MatchIndex
>>> cheap = Filter("symbol = 'IBM' AND price < 90")
>>> cheap == ((F.symbol == "IBM") & (F.price < 90))
True
>>> index = MatchIndex()
>>> index.add("alice", cheap)
>>> sorted(index.match({"symbol": "IBM", "price": 85.5}))
['alice']
"""

from __future__ import annotations

from gapless.content import F, Filter, MatchIndex
from gapless.core.errors import FilterLimitError, FilterSyntaxError, GaplessError

__all__ = [
    "F",
    "Filter",
    "FilterLimitError",
    "FilterSyntaxError",
    "GaplessError",
    "MatchIndex",
    "__version__",
]

__version__ = "0.1.0"
