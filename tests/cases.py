"""The number of cases on which a property is tried.

``GAPLESS_CASES`` is the number for a property that draws cheap cases from a seed. Properties with
expensive cases take fewer, in proportion.
"""

from __future__ import annotations

import os

ORDINARY_CASES = 20_000
"""The value of ``GAPLESS_CASES`` in an ordinary run of the suite."""

CASES = int(os.environ.get("GAPLESS_CASES") or ORDINARY_CASES)
"""The value in this run."""

assert CASES > 0, "GAPLESS_CASES must be a positive number"


def scaled(ordinary: int, *, most: int | None = None) -> int:
    """Return the number of cases for a property that takes ``ordinary`` in an ordinary run."""
    wanted = max(1, round(ordinary * CASES / ORDINARY_CASES))
    return wanted if most is None else min(wanted, most)
