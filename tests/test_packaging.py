"""What is built and shipped is what the sources need."""

from __future__ import annotations

import re
import tomllib
from fnmatch import fnmatch
from pathlib import Path

ROOT = Path(__file__).parent.parent
KERNEL = ROOT / "src/gapless/content/matching"


def parts_of_the_kernel() -> list[Path]:
    source = (KERNEL / "_kernel.pyx").read_text()
    names = re.findall(r'^include "(.+)"$', source, re.MULTILINE)
    names += re.findall(r'^cdef extern from "(_.+\.h)"', source, re.MULTILINE)
    assert len(names) >= 5
    return [KERNEL / name for name in names]


def test_every_part_of_the_kernel_is_packaged() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    patterns = settings["tool"]["setuptools"]["package-data"]["*"]
    for part in parts_of_the_kernel():
        assert part.exists()
        assert any(fnmatch(part.name, pattern) for pattern in patterns), part.name


def test_a_change_to_any_part_of_the_kernel_builds_it_anew() -> None:
    makefile = (ROOT / "Makefile").read_text()
    found = re.search(r"foreach kind,([\w ]+),", makefile)
    assert found is not None
    for part in parts_of_the_kernel():
        assert part.suffix[1:] in found[1].split(), part.name
