"""What a user may say with ``.option(…)``, checked, each with what is allowed."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final, Literal

import msgspec

from gapless.client.credentials import Credentials
from gapless.client.position import Position
from gapless.client.starts import Start, start_point_of
from gapless.content.filter import Filter
from gapless.core.address import parse_addresses
from gapless.core.errors import FilterError, UsageError, shortened
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
"""How long a broker may be away before a read fails, unless the user says otherwise. A broker that is
restarted is back in seconds; a Spark job has time."""

PARTITION_BYTES: Final = 33_554_432
"""How much of a log a task reads, about. Enough to make the start of a task small beside it."""

FILTERED_BYTES: Final = 134_217_728
"""The same where a broker filters: little of it comes, so more is small beside the start of a task."""

CREDENTIALS: Final = frozenset({"token", "tokenfile"})
"""Options that say who the user is, in small letters. Spark does not show what is in options of such names:
``spark.redaction.regex`` has ``token`` in it."""

_OTHERS: Final = ("credential", "password", "secret", "user", "apikey", "auth")
"""What names of options have in them by which other sources know their user."""

OnRelease = Literal["fail", "skip"]


class SourceOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a query reads."""

    servers: tuple[str, ...]
    """One URL for each broker."""
    filter: str = "TRUE"
    pubends: tuple[str, ...] = ()
    """Empty: all that the overlay knows and that have a log."""
    columns: tuple[AttributeColumn, ...] = ()
    start: Start | None = None
    end: Start | None = None
    events_max: int | None = None
    """How many events a micro-batch may have."""
    chosen_bytes: int | None = None
    """How much of a log a task is to read, if the user says so."""
    reader: str = ""
    """The durable reader for which logs are kept."""
    on_release: OnRelease = "fail"
    deadline_s: float = DEADLINE_S
    credentials: Credentials = Credentials()
    """Who reads, to brokers that ask. A file is read where it is needed: by the driver and by every task."""
    push_down: bool = False
    """Whether brokers test predicates of a query; the DataFrame may then stand in one query, once."""

    @property
    def partition_bytes(self) -> int:
        """About how much of a log a task reads."""
        if self.chosen_bytes is not None:
            return self.chosen_bytes
        return PARTITION_BYTES if self.filter == "TRUE" else FILTERED_BYTES

    def refuse_for(self, mode: Literal["batch", "streaming"]) -> None:
        """Raise if an option was given that has no meaning in this way of reading."""
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
                "option end is for batches; to stop a stream at what is there now, use "
                ".trigger(availableNow=True)"
            )


def parse_options(given: Mapping[str, str]) -> SourceOptions:
    """Return the options of a query, or say which one is wrong and what it may be."""
    found: dict[str, Any] = {}
    for name, text in given.items():
        entry = _ALLOWED.get(name.lower())
        if entry is None:
            raise UsageError(_unknown(name))
        spelled, field, parse = entry
        try:
            found[field] = parse(text.strip())
        except (FilterError, ValueError) as error:
            raise UsageError(f"option {spelled}: {error}") from error
    given_token, given_file = found.pop("token", None), found.pop("token_file", None)
    if given_token and given_file:
        raise UsageError("give the option tokenFile or the option token, not both")
    found["credentials"] = Credentials.of(given_token, given_file)
    if "servers" not in found:
        raise UsageError("option servers is missing: gapless://host:port, several with commas")
    return SourceOptions(**found)


def credentials_fault(name: str) -> str | None:
    """Say what to use, if an option seems to be for credentials of another kind.

    To take them and do nothing with them would look like protection.
    """
    if not any(part in name.lower().replace("_", "") for part in (*_OTHERS, *CREDENTIALS)):
        return None
    return (
        f"there is no option {name!r}: brokers that ask who reads or writes know it by a token; name the "
        "file that has it with the option tokenFile"
    )


def _unknown(name: str) -> str:
    fault = credentials_fault(name)
    if fault is not None:
        return fault
    if name.lower() == "path":
        return "format gapless has no path: name the pubends with the option pubends"
    spelled = ", ".join(sorted(entry[0] for entry in _ALLOWED.values()))
    return f"there is no option {name!r}; there are {spelled}"


# --- one function for each form of text ------------------------------------------------------------


def _servers(text: str) -> tuple[str, ...]:
    urls: list[str] = []
    for part in text.split(","):
        # "gapless://a,b" and "gapless://a,gapless://b" mean the same
        url = part.strip()
        urls.append(url if "://" in url else f"gapless://{url}")
    return tuple(f"gapless://{address}" for address in parse_addresses(urls))


def _filter(text: str) -> str:
    return str(Filter(text))


def _pubends(text: str) -> tuple[str, ...]:
    names = [part.strip() for part in text.split(",") if part.strip()]
    if not names:
        raise ValueError("name some pubends, or leave it out to read all")
    Position(dict.fromkeys(names, 0))
    return tuple(dict.fromkeys(names))


def _parse_start(text: str) -> Start:
    if text in {"latest", "earliest"}:
        return text  # type: ignore[return-value]  # one of the two words
    try:
        return _time(text) or _position(text)
    except (UsageError, ValueError) as error:
        raise ValueError(
            f"{shortened(text)!r} is neither 'latest', 'earliest', a position such as "
            "'{\"quotes\": 1700}' nor a time with its zone such as "
            f"'2026-01-31T08:00:00+00:00' ({error})"
        ) from error


def _time(text: str) -> datetime | None:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    start_point_of(found)  # refuses a time without a zone
    return found


def _position(text: str) -> Position:
    if not text.startswith("{"):
        return Position.parse(text)
    return Position(Offset.of(json.loads(text)).positions)


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < int(text) < 2**62):
        raise ValueError(f"{shortened(text)!r} is no number from 1 on")
    return int(text)


def _reader(text: str) -> str:
    if not text:
        raise ValueError("a reader needs a name")
    return text


def _token(text: str) -> str:
    fault = token_fault(text)
    if fault is not None:
        raise ValueError(fault)
    return text


def _token_file(text: str) -> str:
    if not text:
        raise ValueError("name the file that has the token")
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
        raise ValueError(f"{shortened(text)!r} is no time in seconds above 0")
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
"""By the name in small letters, as options do not mind: how it is spelled, its field, how it is read."""
