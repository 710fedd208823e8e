"""Paths in the form that Spark needs, and the paths that only this program's own code can use."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from gapless.core.errors import UsageError

__all__ = ["local_path", "local_uri", "spark_uri"]

_SCHEME: Final = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]+):")
"""One letter before a colon is no scheme."""


def local_uri(path: str | Path) -> str:
    """Return a path of the local file system as a URI.

    A bare path would be looked up in the default file system of the cluster, which is another one
    if Spark runs beside Hadoop. Nothing is escaped: Spark uses the text after the scheme as it is.

    >>> local_uri("/archives/a b%2Fc")
    'file:///archives/a b%2Fc'
    """
    return f"file://{Path(path).absolute()}"


def spark_uri(path: str | Path) -> str:
    """Return what Spark reads or writes: a URI as it is written, or a local path as a URI.

    >>> spark_uri("s3a://bucket/x"), spark_uri("/archives/x")
    ('s3a://bucket/x', 'file:///archives/x')
    """
    return str(path) if _SCHEME.match(str(path)) else local_uri(path)


def local_path(path: str | Path, what: str) -> Path:
    """Return the path of a directory that this program itself writes or reads.

    >>> local_path("file:///archives/x", "an archive")
    PosixPath('/archives/x')
    """
    text = str(path)
    found = _SCHEME.match(text)
    if found is None:
        return Path(text).absolute()
    if found[1].lower() != "file":
        raise UsageError(
            f"{text}: {what} is in a directory of a file system that the driver and all executors "
            f"share, not at {found[1]}://; copy it there afterwards, or mount the store"
        )
    path = text[found.end() :]
    if not path.startswith("/") or (path.startswith("//") and not path.startswith("///")):
        raise UsageError(
            f"{text}: write file:/ or file:/// before a path, which names no other host"
        )
    return Path("/" + path.lstrip("/")).absolute()
