"""Detection and measurement of plain events, which can be sent unchanged, many at a time.

A publisher may pass events as any mapping, with values of derived types and with missing values;
each of these is checked and copied. Nearly all are dicts of plain values with bytes. To check that
in Python takes longer than to encode them, so the check is compiled (``_plain.pyx``);
:mod:`.fallback` does the same in Python. Their size is
bounded likewise, for less than an encoding would cost. The matching kernel
(:mod:`gapless.content.matching.kernel`) decides which one is used.
"""

from __future__ import annotations

from types import ModuleType

from gapless.content.matching.kernel import KERNEL
from gapless.content.plain import fallback

__all__ = ["COMPILED", "are_plain", "size_bound"]

COMPILED: ModuleType | None = None
"""The compiled form, or None if it was not built."""

are_plain, size_bound = fallback.are_plain, fallback.size_bound

try:
    from gapless.content.plain import _plain
except ImportError:
    pass
else:
    COMPILED = _plain
    if KERNEL == "compiled":
        are_plain, size_bound = _plain.are_plain, _plain.size_bound
