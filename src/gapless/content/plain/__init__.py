"""Plain events: those that can be sent as they are, told from all others many at a time.

A publisher may give events of any kind of mapping, with values of derived types, with values that are
missing; each of these is looked at and copied. Nearly all are dicts of plain values with bytes. To find
that out in Python takes longer than to encode them, so it is compiled (``_plain.pyx``); :mod:`.fallback`
says the same in Python. Which one is used is the choice of the matching kernel
(:mod:`gapless.content.matching.kernel`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gapless.content.matching.kernel import KERNEL
from gapless.content.plain import fallback

__all__ = ["COMPILED", "are_plain"]

COMPILED: Callable[[Sequence[object]], bool] | None = None
"""The compiled form, or None where it was not built."""

try:
    from gapless.content.plain import _plain
except ImportError:
    pass
else:
    COMPILED = _plain.are_plain

are_plain = COMPILED if KERNEL == "compiled" and COMPILED is not None else fallback.are_plain
