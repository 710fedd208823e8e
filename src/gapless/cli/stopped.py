"""Commands that change the data directory of a stopped broker: ``log trim``, ``durable rm``."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from gapless.cli.output import console, counted, listing, print_json, size, timestamp
from gapless.core.errors import CorruptionError, UsageError, shortened
from gapless.core.ids import PubendId

if TYPE_CHECKING:
    from gapless.messages.stored import StoredPubend
    from gapless.storage import StoppedStore

__all__ = ["read_tick", "remove_durable", "show_trimmed", "trim_logs"]


class TrimmedLog(msgspec.Struct, frozen=True):
    """The release of one log."""

    pubend: PubendId
    released: int
    """The tick up to which the log is released now."""
    events: int
    """The events that were removed."""


class Trimmed(msgspec.Struct, frozen=True):
    """The result of trimming logs."""

    logs: tuple[TrimmedLog, ...]
    freed_bytes: int
    """By how much the files of the data directory have become smaller."""


def read_tick(text: str) -> int | None:
    """Return the tick of ``--up-to``; None for everything.

    >>> read_tick("17"), read_tick("2026-03-01T09:30Z"), read_tick("latest")
    (17, 1772357400000000, None)
    """
    if text == "latest":
        return None
    if text.isascii() and text.isdecimal():
        return int(text)
    try:
        moment = dt.datetime.fromisoformat(text).astimezone(_zone(text))
    except ValueError:
        raise UsageError(
            f"{shortened(text)!r} is neither a tick nor a time; write a tick, a time such as "
            "2026-03-01T09:30 (without a time zone: local time), or latest"
        ) from None
    return int(moment.timestamp()) * 1_000_000 + moment.microsecond


def _zone(text: str) -> dt.tzinfo | None:
    return dt.datetime.fromisoformat(text).tzinfo


def trim_logs(directory: Path, pubends: list[str], up_to: int | None) -> Trimmed:
    """Release logs of a stopped broker up to a tick; all of them if no pubend is named."""
    from gapless.pubend.forced_release import forced_release
    from gapless.storage import list_logs, open_stopped

    before = _bytes_of(directory)
    with open_stopped(directory) as store:
        counted_before = {each.pubend: each.events for each in list_logs(directory)}
        trimmed: dict[PubendId, int] = {}
        for stored in _chosen(store, directory, pubends):
            pubend = stored.record.pubend
            end = store.log_end(pubend)
            changes = forced_release(stored, end if up_to is None else min(up_to, end))
            if changes:
                store.write(changes)
                trimmed[pubend] = end if up_to is None else min(up_to, end)
        store.reclaim()
        left = {each.pubend: each.events for each in list_logs(directory)}
    logs = tuple(
        TrimmedLog(pubend, tick, counted_before[pubend] - left[pubend])
        for pubend, tick in trimmed.items()
    )
    return Trimmed(logs, before - _bytes_of(directory))


def _chosen(store: StoppedStore, directory: Path, pubends: list[str]) -> list[StoredPubend]:
    """Return the logs with these names, or all; UsageError if one does not exist."""
    known = {str(each.record.pubend): each for each in store.state.pubends}
    corrupt = {str(pubend): why for pubend, why in store.loaded.corrupt.items()}
    for name in pubends:
        if name in corrupt:
            raise CorruptionError(f"the records of {name} are corrupt: {corrupt[name]}")
        if name not in known:
            raise UsageError(
                f"{directory} has no log of {name}; it has {', '.join(known) or 'none'}"
            )
    return [known[name] for name in dict.fromkeys(pubends)] if pubends else [*known.values()]


def _bytes_of(directory: Path) -> int:
    if not directory.is_dir():
        return 0
    return sum(each.stat().st_blocks * 512 for each in directory.iterdir() if each.is_file())


def show_trimmed(trimmed: Trimmed, *, as_json: bool) -> None:
    """Print the result of trimming."""
    if as_json:
        logs = [
            {"pubend": str(each.pubend), "released": each.released, "events": each.events}
            for each in trimmed.logs
        ]
        print_json({"logs": logs, "freed_bytes": trimmed.freed_bytes})
        return
    out = console()
    if not trimmed.logs:
        out.print("nothing was released: these logs have no events up to there")
        return
    rows = [
        (str(each.pubend), f"{each.events:,}", str(each.released), timestamp(each.released))
        for each in trimmed.logs
    ]
    out.print(listing("pubend", "events removed", "released up to", "time", rows=rows))
    out.print(f"{size(max(0, trimmed.freed_bytes))} are free again")


def remove_durable(directory: Path, name: str, *, as_json: bool) -> None:
    """End a durable subscription of a stopped broker."""
    from gapless.storage import open_stopped
    from gapless.subscribers.removal import removal

    with open_stopped(directory) as store:
        corrupt = store.loaded.subscriptions
        store.write(removal(store.state, name, corrupt))
        left = len({*(each.subscription for each in store.state.subscriptions), *corrupt}) - 1
    if as_json:
        print_json({"removed": name})
    else:
        remaining = counted(left, "durable subscription")
        console().print(f"{name} is removed; {remaining} left. Start the broker to release logs.")
