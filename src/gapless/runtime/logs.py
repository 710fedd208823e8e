"""The log of a broker: one line per event, with fields that a program can read.

A message is a fixed text and everything variable is in fields, so that lines can be searched and
counted. There are the formats ``text`` and ``json``::

    2026-03-01T09:30:00.123Z info    link is up                       broker=b1 peer=b2
    {"time":"2026-03-01T09:30:00.123Z","level":"info","message":"link is up","broker":"b1",…}
"""

from __future__ import annotations

import logging
import sys
import time
from enum import Enum
from typing import Any, Final

import msgspec

from gapless.core.printable import printable, printable_json, printable_line
from gapless.runtime.logfile import LogFile

__all__ = ["LOG", "JsonLines", "LogFormat", "StructuredLog", "TextLines", "set_up_logs"]

LOG: Final = logging.getLogger("gapless")
"""The logger of gapless; an application may configure it."""

_FIELDS: Final = "gapless_fields"


class LogFormat(Enum):
    """The format of log lines."""

    TEXT = "text"
    JSON = "json"


class StructuredLog:
    """Writes log lines that always contain the fields of their source."""

    __slots__ = ("_fields",)

    def __init__(self, **fields: Any) -> None:
        self._fields = fields

    def log(
        self, level: int, message: str, *, cause: BaseException | None = None, **fields: Any
    ) -> None:
        """Write a line at a level of :mod:`logging`, with a traceback if there is a cause."""
        if LOG.isEnabledFor(level):
            extra = {_FIELDS: {**self._fields, **fields}}
            LOG.log(level, message, extra=extra, exc_info=cause)

    def info(self, message: str, **fields: Any) -> None:
        """Write an event of normal operation."""
        self.log(logging.INFO, message, **fields)

    def debug(self, message: str, **fields: Any) -> None:
        """Write a detail for debugging."""
        self.log(logging.DEBUG, message, **fields)

    def warning(self, message: str, **fields: Any) -> None:
        """Write what an operator should check."""
        self.log(logging.WARNING, message, **fields)

    def error(self, message: str, *, cause: BaseException | None = None, **fields: Any) -> None:
        """Write a failure."""
        self.log(logging.ERROR, message, cause=cause, **fields)


def _time(record: logging.LogRecord) -> str:
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
    return f"{whole}.{int(record.msecs):03}Z"


def _fields_of(record: logging.LogRecord) -> dict[str, Any]:
    fields: dict[str, Any] = dict(getattr(record, _FIELDS, {}))
    if record.exc_info and record.exc_info[0] is not None:
        fields["exception"] = logging.Formatter().formatException(record.exc_info)
    return fields


class JsonLines(logging.Formatter):
    """One JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        line = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "message": record.getMessage(),
            **_fields_of(record),
        }
        return printable_json(msgspec.json.encode(line, enc_hook=str))


class TextLines(logging.Formatter):
    """Time, level, message, then the fields as ``key=value``."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record, with a traceback below it."""
        fields = _fields_of(record)
        traceback = fields.pop("exception", None)
        shown = " ".join(f"{key}={_shown(value)}" for key, value in fields.items())
        message = printable_line(record.getMessage())
        line = f"{_time(record)} {record.levelname.lower():7} {message:32} {shown}"
        return line.rstrip() if traceback is None else f"{line.rstrip()}\n{printable(traceback)}"


def _shown(value: Any) -> str:
    text = str(value)
    plain = text.isprintable() and not any(each in text for each in ' "=')
    return text if plain and text else printable_json(msgspec.json.encode(text))


def set_up_logs(
    level: str = "info", shape: LogFormat = LogFormat.TEXT, file: LogFile | None = None
) -> None:
    """Write the logs of this process to a file, or to its standard error."""
    handler = logging.StreamHandler(file or sys.stderr)
    handler.setFormatter(JsonLines() if shape is LogFormat.JSON else TextLines())
    for each in list(LOG.handlers):
        LOG.removeHandler(each)
    LOG.addHandler(handler)
    LOG.setLevel(level.upper())
    LOG.propagate = False
