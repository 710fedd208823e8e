"""Surveys: what stands where in packs, found in one walk and told by columns.

Theory of operation
-------------------
A pack (:mod:`gapless.packed.pick`) is publications as the log has them, in msgpack. Two would like
to know little of each of very many: a broker, which of them match a filter; a Spark task, their values
as columns. To make Python objects of all of them costs each many times what it needs.

A **survey** walks through packs once and notes, of every publication, four fields and the attributes
that were named: what kind of value each is (:mod:`.fields`), and a *word* of 64 bits. The word of a
number is the number. That of a text is its first eight bytes, so words are in the order of the texts,
except that those of long texts may be equal. What was noted is read as NumPy columns; texts, payloads
and attributes as JSON come as one piece with offsets, which is how Arrow has them.

The walk is compiled (``_scan.pyx``); :mod:`.fallback` does the same in Python. Which one is used is
the choice of the matching kernel (:mod:`gapless.content.matching.kernel`).

A **column filter** (:mod:`.column_filter`) says by columns which publications may match a filter.
What it lets fall does not match; the rest is asked one by one, so that a filter means here what it
means everywhere.
"""

from __future__ import annotations

from gapless.content.matching.kernel import KERNEL
from gapless.packed.scan.column_filter import ColumnFilter
from gapless.packed.scan.fallback import ColumnScan, PackedEvents, ScannedColumn

__all__ = ["COMPILED", "ColumnFilter", "ColumnScan", "PackedEvents", "ScannedColumn"]

COMPILED: type[ColumnScan] | None = None
"""The compiled column scan, or None where it was not built."""

try:
    from gapless.packed.scan import _scan
except ImportError:
    pass
else:
    COMPILED = _scan.ColumnScan

if KERNEL == "compiled" and COMPILED is not None:
    ColumnScan = COMPILED  # type: ignore[misc]  # to who asks it is the fallback, but faster
