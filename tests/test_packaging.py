"""The build and the package contain every kernel."""

from __future__ import annotations

import re
import tomllib
from fnmatch import fnmatch
from pathlib import Path

ROOT = Path(__file__).parent.parent
KERNELS = sorted((ROOT / "src").rglob("*.pyx"))


def parts_of_the_kernels() -> list[Path]:
    found = [*KERNELS]
    for kernel in KERNELS:
        source = kernel.read_text()
        names = re.findall(r'^include "(.+)"$', source, re.MULTILINE)
        names += re.findall(r'^cdef extern from "(_.+\.h)"', source, re.MULTILINE)
        found += [kernel.parent / name for name in names]
    assert len(found) >= 7
    return found


def test_every_kernel_is_built() -> None:
    setup = (ROOT / "setup.py").read_text()
    for kernel in KERNELS:
        assert f'"{kernel.relative_to(ROOT).as_posix()}"' in setup


def test_every_part_of_a_kernel_is_packaged() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    patterns = settings["tool"]["setuptools"]["package-data"]["*"]
    for part in parts_of_the_kernels():
        assert part.exists()
        assert any(fnmatch(part.name, pattern) for pattern in patterns), part.name


def test_a_change_to_any_part_of_a_kernel_rebuilds_it() -> None:
    makefile = (ROOT / "Makefile").read_text()
    folders = re.search(r"^KERNELS := (.+)$", makefile, re.MULTILINE)
    kinds = re.search(r"foreach kind,([\w ]+),", makefile)
    assert folders is not None
    assert kinds is not None
    for part in parts_of_the_kernels():
        assert part.parent.relative_to(ROOT).as_posix() in folders[1].split()
        assert part.suffix[1:] in kinds[1].split(), part.name
