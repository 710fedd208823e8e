"""Column scans: the fields and attributes of packed events as columns, from one pass.

Theory of operation
-------------------
Packed events (:mod:`gapless.packed.pick`) are publications as the log stores them, in msgpack. Two
users need little of very many of them: a broker needs those that match a filter, and a Spark task
needs their values as columns. To create Python objects for all would cost many times that work.

A **column scan** reads packed events once and records four fields and the named attributes of every
publication: the kind of each value (:mod:`.fields`) and a *word* of 64 bits. The word of a number
is the number. That of a text is its first eight bytes, so words have the order of the texts, except
that those of long texts may be equal. The columns are NumPy arrays. Texts, payloads and attributes
as JSON are one block of bytes with offsets, as in Arrow.

The scan is compiled (``_scan.pyx``); :mod:`.fallback` does the same in Python. The matching kernel
(:mod:`gapless.content.matching.kernel`) decides which one is used.

A **column filter** (:mod:`.column_filter`) decides by columns which publications may match a
filter. Those that it drops do not match. The undecided ones are matched one by one, so a filter has
the same meaning as everywhere.
"""

from __future__ import annotations

from gapless.content.matching.kernel import KERNEL
from gapless.packed.scan.column_filter import ColumnFilter
from gapless.packed.scan.fallback import ColumnScan, PackedEvents, ScannedColumn

__all__ = ["COMPILED", "ColumnFilter", "ColumnScan", "PackedEvents", "ScannedColumn"]

COMPILED: type[ColumnScan] | None = None
"""The compiled column scan, or None if it was not built."""

try:
    from gapless.packed.scan import _scan
except ImportError:
    pass
else:
    COMPILED = _scan.ColumnScan

if KERNEL == "compiled" and COMPILED is not None:
    ColumnScan = COMPILED  # type: ignore[misc]  # same interface as the fallback
