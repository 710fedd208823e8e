"""``gapless doctor``: what this installation is made of."""

from __future__ import annotations

import importlib.metadata
import platform
import shutil
import subprocess
import sys

import msgspec
from rich.table import Table
from rich.text import Text

from gapless import __version__
from gapless.cli.output import console, print_json
from gapless.content import matching

PACKAGES = ("numpy", "msgspec", "typer", "rich", "cython")
COMPILERS = ("cc", "gcc", "clang")
ANSWER_SECONDS = 10
"""How long another program may take to tell its version."""


class Kernel(msgspec.Struct, frozen=True):
    """Which matching kernel is in use, and why that one."""

    name: str
    reason: str


class Diagnosis(msgspec.Struct, frozen=True):
    """Everything that ``doctor`` knows. None means that a thing was not found."""

    gapless: str
    python: str
    executable: str
    platform: str
    kernel: Kernel
    packages: dict[str, str | None]
    compiler: str | None
    java: str | None


def diagnose() -> Diagnosis:
    """Look at this process and at the programs on PATH."""
    return Diagnosis(
        gapless=__version__,
        python=f"{platform.python_version()} ({platform.python_implementation()})",
        executable=sys.executable,
        platform=platform.platform(),
        kernel=Kernel(matching.KERNEL, matching.KERNEL_REASON),
        packages={name: installed_version(name) for name in PACKAGES},
        compiler=next((first_line(name, "--version") for name in COMPILERS if find(name)), None),
        java=first_line("java", "-version"),
    )


def installed_version(package: str) -> str | None:
    """The version of an installed package."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def find(program: str) -> str | None:
    """The path of a program, if PATH has it."""
    return shutil.which(program)


def first_line(program: str, option: str) -> str | None:
    """The first line that a program says about itself, or None if it is missing or broken."""
    path = find(program)
    if path is None:
        return None
    try:
        answer = subprocess.run(  # noqa: S603 - a program of the user's own PATH, no shell
            [path, option],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=ANSWER_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    # Java answers on standard error, compilers on standard output.
    lines = (answer.stdout or answer.stderr).strip().splitlines()
    return lines[0] if lines else None


def run(*, as_json: bool) -> None:
    """Diagnose and show it."""
    diagnosis = diagnose()
    if as_json:
        print_json(diagnosis)
    else:
        show(diagnosis)


def show(diagnosis: Diagnosis) -> None:
    """Print the diagnosis as a table."""
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    rows = [
        ("gapless", diagnosis.gapless),
        ("python", f"{diagnosis.python} at {diagnosis.executable}"),
        ("platform", diagnosis.platform),
        ("kernel", f"{diagnosis.kernel.name}: {diagnosis.kernel.reason}"),
        *diagnosis.packages.items(),
        ("C compiler", diagnosis.compiler),
        ("java", diagnosis.java),
    ]
    for name, fact in rows:
        table.add_row(name, Text(fact) if fact is not None else Text("not found", style="dim"))
    console().print(table)
