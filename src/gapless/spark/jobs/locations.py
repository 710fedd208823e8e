"""Paths in the form that Spark needs."""

from __future__ import annotations

from pathlib import Path

__all__ = ["local_uri"]


def local_uri(path: str | Path) -> str:
    """Return a path of the local file system as a URI.

    A bare path would be looked up in the default file system of the cluster, which is another one
    if Spark runs beside Hadoop. Nothing is escaped: Spark uses the text after the scheme as it is.

    >>> local_uri("/archives/a b%2Fc")
    'file:///archives/a b%2Fc'
    """
    return f"file://{Path(path).absolute()}"
