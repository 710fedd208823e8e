"""Content-based publish/subscribe without gaps.

Publish events with attributes, subscribe with a filter, and get every event that matches, once and
in order::

    async with gapless.connect("gapless://127.0.0.1:7400") as session:
        async with session.publisher("quotes") as publisher:
            position = await publisher.publish({"symbol": "IBM", "price": 91.5}, b"...")
        async with session.subscribe("symbol = 'IBM'", durable="desk") as events:
            async for event in events:
                ...

Filters are useful by themselves too:

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

from gapless import errors
from gapless.core.errors import FilterLimitError, FilterSyntaxError, GaplessError
from gapless.core.version import VERSION

if TYPE_CHECKING:
    from gapless.client import Backoff, Event, Position, connect, connect_sync
    from gapless.content import F, Filter, MatchIndex

__all__ = [
    "Backoff",
    "Event",
    "F",
    "Filter",
    "FilterLimitError",
    "FilterSyntaxError",
    "GaplessError",
    "MatchIndex",
    "Position",
    "__version__",
    "connect",
    "connect_sync",
    "errors",
]

__version__ = VERSION

_MODULES = {
    "Backoff": "gapless.client",
    "Event": "gapless.client",
    "Position": "gapless.client",
    "connect": "gapless.client",
    "connect_sync": "gapless.client",
}
"""By public name: its module, if that is not ``gapless.content``."""


def __getattr__(name: str) -> Any:
    """Import the module of a public name when the name is first used.

    So the command line can start, and report the fault, if the environment names a matching kernel
    that does not exist.
    """
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_MODULES.get(name, "gapless.content")), name)
    globals()[name] = value
    return value
