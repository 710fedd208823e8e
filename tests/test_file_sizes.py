"""A file of the product fits in the head."""

from __future__ import annotations

from pathlib import Path

SOURCES = Path(__file__).resolve().parent.parent / "src" / "gapless"

FILE_LINES_MAX = 500
"""A file above this is two files."""

KNOWN_LONG = {
    "broker/entry.py",
    "broker/pubends.py",
    "packed/scan/_scan.pyx",
    "pubend/pubend.py",
    "subscribers/client_calls.py",
    "subscribers/cursor.py",
    "subscribers/host.py",
    "subscribers/subend.py",
    "subscribers/subscription.py",
}
"""Files above the limit that are not divided yet. The set only shrinks."""


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
    found = {path: lines for path, lines in long_files().items() if path not in KNOWN_LONG}
    assert not found, f"above {FILE_LINES_MAX} lines: {found}"


def test_a_divided_file_is_no_longer_an_exception() -> None:
    stale = KNOWN_LONG - long_files().keys()
    assert not stale, f"no longer long, remove from KNOWN_LONG: {sorted(stale)}"
