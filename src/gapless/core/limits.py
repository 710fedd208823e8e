"""Every limit of gapless, in one place, each with its reason.

A limit that is reached is an error with the limit's name, or a stated behaviour; never a
silent cut.
"""

from __future__ import annotations

from typing import Final

INT_MIN: Final = -(2**63)
"""Integers are 64-bit: the least one. Larger ones have no exact wire form in other languages."""

INT_MAX: Final = 2**63 - 1
"""Integers are 64-bit: the greatest one."""

SEQUENCE_MAX: Final = 2**62
"""The highest sequence that a batch of a publisher may begin with: its last one fits too."""

FILTER_TEXT_MAX: Final = 65_536
"""Characters in a filter's text. Parsing costs linear time; this bounds it at some milliseconds."""

FILTER_NESTING_MAX: Final = 100
"""Nested parentheses, NOTs and signs. Keeps the recursive parser far from Python's own limit."""

FILTER_CONJUNCTIONS_MAX: Final = 256
"""Conjunctions in a filter's normal form. AND over OR multiplies; every conjunction is indexed."""

FILTER_CONSTRAINTS_MAX: Final = 4_096
"""Cut points and pieces of patterns over all value sets of a filter. A list of IN values is cheap,
but not free."""

FILTER_OPERATORS_MAX: Final = 98
"""Arithmetic operators in one value. A value is computed and written by recursion, a level each;
a little below FILTER_NESTING_MAX, so that what is written can be read again."""

FILTER_PATTERN_MAX: Final = 4_096
"""Characters in a LIKE pattern that is not just a prefix. One that has a _ inside is searched by a
table that grows with the square of its length: 2 MB at this limit."""

FILTER_STEPS_MAX: Final = 500_000
"""Steps of multiplying a filter out to its normal form. Bounds a hostile filter at a second."""

ACCESS_VALUES_MAX: Final = 16
"""Values of one IN list that the matching index spreads over its equality groups."""

LINKS_MAX: Final = 1_024
"""Links of one routing index. A mask has a bit a link, and every slot has a mask."""

CONJUNCTION_TEXTS_MAX: Final = 65_536
"""Conjunctions that a process keeps in both forms, parsed and as text. Beyond, some are parsed
again."""

LOG_BYTES_LEAST: Final = 4_096
"""The least bound of a file that a broker's words are written to: less would be a file a line."""

LOG_FILES_MOST: Final = 1_000
"""Full files of a broker's words that are kept, at most. With a new one each is renamed."""

TABLE_PARTS_MAX: Final = 4_096
"""Parts of one table under way. A part is a frame, so a table above this is larger than memory."""

COVERER_LOOKS_MAX: Final = 256
"""Conjunctions that are asked whether they cover a new one and are older than its coverer. Those
that are not asked make a subscription start later, never wrongly."""

ROUTES_CACHED_MAX: Final = 4_096
"""Results of the sufficiency test that are kept per edge. Beyond, they are computed again."""

NAMES_ASKED_MAX: Final = 10_000
"""Names of new pubends that a broker asks for, or was asked for, at once. Each is there for a moment; who asks
for more at once is told to try later."""
