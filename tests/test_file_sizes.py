"""Files of the product are short."""

from __future__ import annotations

from pathlib import Path

SOURCES = Path(__file__).resolve().parent.parent / "src" / "gapless"

FILE_LINES_MAX = 500
"""A longer file should be divided."""

KINDS = {".h", ".pxi", ".py", ".pyi", ".pyx"}
"""The kinds of source files."""


def long_files(sources: Path) -> dict[str, int]:
    """Return the files above the limit, with their lines."""
    paths = sorted(path for path in sources.rglob("*") if path.suffix in KINDS)
    assert paths
    return {
        path.relative_to(sources).as_posix(): lines
        for path in paths
        if (lines := len(path.read_text().splitlines())) > FILE_LINES_MAX
    }


def test_no_file_of_the_product_is_longer_than_the_limit() -> None:
    found = long_files(SOURCES)
    assert not found, f"above {FILE_LINES_MAX} lines: {found}"


def test_a_long_file_is_found(tmp_path: Path) -> None:
    (tmp_path / "short.py").write_text("pass\n" * FILE_LINES_MAX)
    (tmp_path / "part.pxi").write_text("pass\n" * (FILE_LINES_MAX + 1))
    assert long_files(tmp_path) == {"part.pxi": FILE_LINES_MAX + 1}
