"""The options of a read by ``.option(…)``, with their checks."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final, Literal

import msgspec

from gapless.client.arguments import check_filter, check_new_name
from gapless.client.credentials import Credentials
from gapless.client.position import Position
from gapless.client.starts import Start, start_point_of
from gapless.core.address import parse_addresses
from gapless.core.errors import UsageError, shortened
from gapless.spark.columns import AttributeColumn, parse_columns
from gapless.spark.offsets import Offset
from gapless.wire import token_fault

__all__ = [
    "CREDENTIALS",
    "DEADLINE_S",
    "PARTITION_BYTES",
    "SourceOptions",
    "credentials_fault",
    "parse_options",
]

DEADLINE_S: Final = 60.0
"""The default time for which a broker may be unreachable before a read fails. A restarted broker is
back within seconds, and a Spark job can wait."""

PARTITION_BYTES: Final = 33_554_432
"""Approximately how many bytes of a log a task reads: large compared with the start of a task."""

FILTERED_BYTES: Final = 134_217_728
"""The same if a broker filters: few events are sent, so a task can read more."""

CREDENTIALS: Final = frozenset({"token", "tokenfile"})
"""Options with credentials, in lower case. Spark does not show the values of options with such
names: ``spark.redaction.regex`` contains ``token``."""

_OTHERS: Final = ("credential", "password", "secret", "user", "apikey", "auth")
"""Parts of the names of options with which other sources authenticate users."""

OnRelease = Literal["fail", "skip"]


class SourceOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a query that reads."""

    servers: tuple[str, ...]
    """One URL for each broker."""
    filter: str = "TRUE"
    pubends: tuple[str, ...] = ()
    """Empty: all known pubends with a log."""
    columns: tuple[AttributeColumn, ...] = ()
    start: Start | None = None
    end: Start | None = None
    events_max: int | None = None
    """The maximum of events in a micro-batch."""
    chosen_bytes: int | None = None
    """How many bytes of a log a task should read, if the user sets it."""
    reader: str = ""
    """The durable reader for which logs are kept."""
    on_release: OnRelease = "fail"
    deadline_s: float = DEADLINE_S
    credentials: Credentials = Credentials()
    """The token for brokers that require one. A file is read by the driver and by every task."""
    push_down: bool = False
    """Whether brokers evaluate predicates; then a DataFrame may be used in only one query, once."""

    @property
    def partition_bytes(self) -> int:
        """Approximately how many bytes of a log a task reads."""
        if self.chosen_bytes is not None:
            return self.chosen_bytes
        return PARTITION_BYTES if self.filter == "TRUE" else FILTERED_BYTES

    def refuse_for(self, mode: Literal["batch", "streaming"]) -> None:
        """Raise if an option does not apply to this kind of read."""
        if mode == "batch" and self.events_max is not None:
            raise UsageError(
                "option maxEventsPerTrigger is for streaming; a batch ends at the option end"
            )
        if mode == "batch" and self.reader:
            raise UsageError("option reader is for streaming: a batch commits nothing")
        if mode == "streaming" and self.push_down:
            raise UsageError("option pushDown is for batches; use the option filter")
        if mode == "streaming" and self.end is not None:
            raise UsageError(
                "option end is for batches; to stop a stream at the current end, use "
                ".trigger(availableNow=True)"
            )


def parse_options(given: Mapping[str, str]) -> SourceOptions:
    """Return the options of a query; an error names the wrong option and its valid values."""
    found: dict[str, Any] = {}
    for name, text in given.items():
        entry = _ALLOWED.get(name.lower())
        if entry is None:
            raise UsageError(_unknown(name))
        spelled, field, parse = entry
        try:
            found[field] = parse(text.strip())
        except (UsageError, ValueError) as error:
            raise UsageError(f"option {spelled}: {error}") from error
    given_token, given_file = found.pop("token", None), found.pop("token_file", None)
    if given_token and given_file:
        raise UsageError("give the option tokenFile or the option token, not both")
    found["credentials"] = Credentials.of(given_token, given_file)
    if "servers" not in found:
        raise UsageError("option servers is missing: gapless://host:port, several with commas")
    return SourceOptions(**found)


def credentials_fault(name: str) -> str | None:
    """Return what to use instead if an option seems to be for other credentials, or None.

    To ignore such an option would look like protection.
    """
    if not any(part in name.lower().replace("_", "") for part in (*_OTHERS, *CREDENTIALS)):
        return None
    return (
        f"there is no option {name!r}: brokers authenticate users by a token; name the "
        "file with the token by the option tokenFile"
    )


def _unknown(name: str) -> str:
    fault = credentials_fault(name)
    if fault is not None:
        return fault
    if name.lower() == "path":
        return "format gapless has no path: name the pubends with the option pubends"
    spelled = ", ".join(sorted(entry[0] for entry in _ALLOWED.values()))
    return f"there is no option {name!r}; there are {spelled}"


# --- parsers of option texts ----------------------------------------------------------------------


def _servers(text: str) -> tuple[str, ...]:
    urls: list[str] = []
    for part in text.split(","):
        # "gapless://a,b" and "gapless://a,gapless://b" mean the same
        url = part.strip()
        urls.append(url if "://" in url else f"gapless://{url}")
    return tuple(f"gapless://{address}" for address in parse_addresses(urls))


def _filter(text: str) -> str:
    return str(check_filter("filter", text))


def _pubends(text: str) -> tuple[str, ...]:
    names = [part.strip() for part in text.split(",") if part.strip()]
    if not names:
        raise ValueError("name some pubends, or omit the option to read all")
    Position(dict.fromkeys(names, 0))
    return tuple(dict.fromkeys(names))


def _parse_start(text: str) -> Start:
    if text in {"latest", "earliest"}:
        return text  # type: ignore[return-value]  # one of the two words
    try:
        return _time(text) or _position(text)
    except (UsageError, ValueError, RecursionError) as error:
        raise ValueError(
            f"{shortened(text)!r} is neither 'latest', 'earliest', a position such as "
            "'{\"quotes\": 1700}' nor a time with its time zone such as "
            f"'2026-01-31T08:00:00+00:00' ({error})"
        ) from error


def _time(text: str) -> datetime | None:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    start_point_of(found)  # refuses a time without a time zone
    return found


def _position(text: str) -> Position:
    if not text.startswith("{"):
        return Position.parse(text)
    return Position(Offset.of(json.loads(text)).positions)


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < int(text) < 2**62):
        raise ValueError(f"{shortened(text)!r} is not a number of at least 1")
    return int(text)


def _reader(text: str) -> str:
    return check_new_name("reader", text)


def _token(text: str) -> str:
    fault = token_fault(text)
    if fault is not None:
        raise ValueError(fault)
    return text


def _token_file(text: str) -> str:
    if not text:
        raise ValueError("name the file with the token")
    return text


def _on_release(text: str) -> str:
    if text not in {"fail", "skip"}:
        raise ValueError(f"{shortened(text)!r} is neither 'fail' nor 'skip'")
    return text


def _push_down(text: str) -> bool:
    if text.lower() not in {"true", "false"}:
        raise ValueError(f"{shortened(text)!r} is neither 'true' nor 'false'")
    return text.lower() == "true"


def _seconds(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not 0 < found < 1e9:
        raise ValueError(f"{shortened(text)!r} is not a time in seconds above 0")
    return found


_ALLOWED: Final[dict[str, tuple[str, str, Callable[[str], Any]]]] = {
    spelled.lower(): (spelled, field, parse)
    for spelled, field, parse in (
        ("servers", "servers", _servers),
        ("filter", "filter", _filter),
        ("pubends", "pubends", _pubends),
        ("columns", "columns", parse_columns),
        ("start", "start", _parse_start),
        ("end", "end", _parse_start),
        ("maxEventsPerTrigger", "events_max", _count),
        ("partitionBytes", "chosen_bytes", _count),
        ("reader", "reader", _reader),
        ("onRelease", "on_release", _on_release),
        ("deadline", "deadline_s", _seconds),
        ("pushDown", "push_down", _push_down),
        ("token", "token", _token),
        ("tokenFile", "token_file", _token_file),
    )
}
"""By the lower-case name, because option names ignore case: its spelling, its field, its parser."""
