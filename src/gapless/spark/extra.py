"""The packages that only the Spark connector needs."""

from __future__ import annotations

import importlib.util
from typing import Final

from gapless.core.errors import UsageError

__all__ = ["INSTALL", "need_spark"]

INSTALL: Final = 'pip install "gapless[spark]"'
_PACKAGES: Final = ("pyspark", "pyarrow", "pandas")


def need_spark() -> None:
    """Raise unless the packages of the extra ``spark`` are installed."""
    missing = [name for name in _PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise UsageError(f"Spark needs {', '.join(missing)}, not installed here: {INSTALL}")
