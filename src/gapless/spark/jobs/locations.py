"""Paths as Spark has to be told them."""

from __future__ import annotations

from pathlib import Path

__all__ = ["local_uri"]


def local_uri(path: str | Path) -> str:
    """Return a path of this computer's file system so that it stays one.

    A bare path would be looked up in the default file system of the cluster, which is another one where
    Spark runs beside Hadoop. Nothing is escaped: Spark takes what is behind the scheme as it stands.

    >>> local_uri("/archives/a b%2Fc")
    'file:///archives/a b%2Fc'
    """
    return f"file://{Path(path).absolute()}"
