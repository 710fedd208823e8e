"""Builds the optional compiled kernels; everything else is in pyproject.toml.

A kernel is a convenience, never a condition. Without Cython, a compiler or the Python headers
the install succeeds, one line says so, and the pure Python fallback does the same work more slowly.
``GAPLESS_NO_KERNEL=1`` skips the build on purpose.
"""

from __future__ import annotations

import os
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

KERNELS = (
    Path("src/gapless/content/matching/_kernel.pyx"),
    Path("src/gapless/content/plain/_plain.pyx"),
    Path("src/gapless/packed/scan/_scan.pyx"),
)


def notice(reason: str) -> None:
    """Say in one line why there will be no compiled kernel."""
    print(f"gapless: no compiled kernel ({reason}); the Python fallback is used", flush=True)


class BuildKernel(build_ext):  # type: ignore[misc]
    """Builds the kernels if it can; a failure is a notice, not an error."""

    def build_extension(self, ext: Extension) -> None:
        """Build one extension, and let no failure of the tools stop the install."""
        try:
            super().build_extension(ext)
        except Exception:  # noqa: BLE001 - whatever fails here, the fallback works
            notice("the C compiler is missing or failed, its words are above")


def kernel_extension(source: Path) -> Extension:
    """Return what builds a kernel, with everything in its folder that it is made of."""
    name = ".".join(source.with_suffix("").parts[1:])
    return Extension(
        name,
        [str(source)],
        include_dirs=[str(source.parent)],
        depends=[str(part) for part in sorted(source.parent.glob("_*.[hp]*"))],
        # No -march=native: a built package runs on every machine of its architecture.
        extra_compile_args=["-O3"],
        optional=True,
    )


def kernel_extensions() -> list[Extension]:
    """The kernels as extensions, or an empty list and a notice."""
    if os.environ.get("GAPLESS_NO_KERNEL", "") not in {"", "0"}:
        notice("GAPLESS_NO_KERNEL is set")
        return []
    if not all(source.exists() for source in KERNELS):
        notice("its source is not part of this tree")
        return []
    try:
        from Cython.Build import cythonize
    except ImportError:
        notice("Cython is not installed")
        return []
    try:
        built: list[Extension] = cythonize(  # type: ignore[no-untyped-call]
            [kernel_extension(source) for source in KERNELS],
            language_level=3,
            build_dir="build/cython",
        )
    except Exception:  # noqa: BLE001 - whatever fails here, the fallback works
        notice("Cython failed, its words are above")
        return []
    for each in built:
        each.optional = True  # Cython makes a new extension and forgets this
    return built


setup(ext_modules=kernel_extensions(), cmdclass={"build_ext": BuildKernel})
