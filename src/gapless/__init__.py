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

import importlib
from typing import TYPE_CHECKING, Any

from gapless.core.errors import FilterLimitError, FilterSyntaxError, GaplessError

if TYPE_CHECKING:
    from gapless.content import F, Filter, MatchIndex

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


def __getattr__(name: str) -> Any:
    """Import the content layer when it is first asked for.

    So the command line can start, and say what is wrong, where the environment asks for a matching
    kernel that does not exist.
    """
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module("gapless.content"), name)
    globals()[name] = value
    return value
