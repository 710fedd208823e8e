"""The options of a write by ``.option(…)``, with their checks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from gapless.client.arguments import check_filter, check_new_name, check_pubend_name
from gapless.client.credentials import Credentials
from gapless.core.errors import UsageError, shortened
from gapless.core.limits import CLIENT_COUNT_MAX, INT_DIGITS_MAX
from gapless.spark.options import CREDENTIALS, DEADLINE_S, credentials_fault, parse_options

__all__ = ["SinkOptions", "parse_sink_options"]

_COMMON: Final = frozenset({"servers", "deadline"}) | CREDENTIALS
"""Options that mean the same for reads."""

_SPARKS_OWN: Final = frozenset({"checkpointlocation", "queryname"})
"""Options that Spark passes on though they are not for the sink."""

_NAME_MAX: Final = 200
"""Maximal length of a writer's name; the id of the query is appended, and every event has both."""


class SinkOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a query that writes."""

    servers: tuple[str, ...]
    """One URL for each broker."""
    deadline_s: float = DEADLINE_S
    credentials: Credentials = Credentials()
    """The token for brokers that require one."""
    pubend: str | None = None
    """None: each row has its own."""
    attributes: tuple[str, ...] | None = None
    """The columns that are attributes; None: all others."""
    advertisement: str = "TRUE"
    writer: str = ""
    batch: int | None = None
    """The number of a batch write, which a writer commits once, however often it runs."""

    def refuse_for_streams(self) -> None:
        """Raise if an option does not apply to a stream."""
        if self.batch is not None:
            raise UsageError("option batch is for batch writes; Spark numbers those of a stream")


def parse_sink_options(given: Mapping[str, str]) -> SinkOptions:
    """Return the options of a write; an error names the wrong option and its valid values."""
    common = {name: text for name, text in given.items() if name.lower() in _COMMON}
    shared = parse_options(common)
    found: dict[str, Any] = {
        "servers": shared.servers,
        "deadline_s": shared.deadline_s,
        "credentials": shared.credentials,
    }
    for name, text in given.items():
        if name.lower() in _COMMON | _SPARKS_OWN:
            continue
        parse = _ALLOWED.get(name.lower())
        if parse is None:
            raise UsageError(_unknown(name))
        try:
            found[name.lower()] = parse(text.strip())
        except (UsageError, ValueError) as error:
            raise UsageError(f"option {name.lower()}: {error}") from error
    if "batch" in found and not found.get("writer"):
        raise UsageError("option batch needs the option writer: it numbers the batches of a writer")
    return SinkOptions(**found)


def _unknown(name: str) -> str:
    fault = credentials_fault(name)
    if fault is not None:
        return fault
    if name.lower() == "path":
        return "format gapless has no path: name the stream with the option pubend"
    if name.lower() == "pubends":
        return "there is no option 'pubends' of a write; name one with the option pubend"
    common = (_COMMON - CREDENTIALS) | {"token", "tokenFile"}
    spelled = ", ".join(sorted(common | set(_ALLOWED)))
    return f"there is no option {name!r} of a write; there are {spelled}"


def _pubend(text: str) -> str:
    return check_pubend_name(text, is_new=True)


def _names(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))


def _advertisement(text: str) -> str:
    return str(check_filter("advertisement", text))


def _writer(text: str) -> str:
    if not 0 < len(text) <= _NAME_MAX:
        raise ValueError(f"a writer has a name of 1 to {_NAME_MAX} characters")
    return check_new_name("writer", text)


def _batch(text: str) -> int:
    is_number = text.isascii() and text.isdigit() and len(text) <= INT_DIGITS_MAX
    if not (is_number and int(text) <= CLIENT_COUNT_MAX):
        raise ValueError(f"{shortened(text)!r} is not a number of at least 0")
    return int(text)


_ALLOWED: Final[dict[str, Callable[[str], Any]]] = {
    "pubend": _pubend,
    "attributes": _names,
    "advertisement": _advertisement,
    "writer": _writer,
    "batch": _batch,
}
