"""Files of the product are short."""

from __future__ import annotations

from pathlib import Path

SOURCES = Path(__file__).resolve().parent.parent / "src" / "gapless"

FILE_LINES_MAX = 500
"""A longer file should be divided."""


def long_files() -> dict[str, int]:
    """Return the files above the limit, with their lines."""
    paths = sorted(path for path in SOURCES.rglob("*") if path.suffix in {".py", ".pyx"})
    assert paths
    return {
        path.relative_to(SOURCES).as_posix(): lines
        for path in paths
        if (lines := len(path.read_text().splitlines())) > FILE_LINES_MAX
    }


def test_no_file_of_the_product_is_longer_than_the_limit() -> None:
    found = long_files()
    assert not found, f"above {FILE_LINES_MAX} lines: {found}"
