"""The durable subscriptions of a whole overlay, and names that several of them have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from gapless.cli.output import print_listing, timestamp

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gapless.client import Session
    from gapless.messages.mobility import DurableEntry

__all__ = [
    "AllDurable",
    "all_durable",
    "duplicates",
    "entry_at",
    "matching",
    "print_table",
    "refuse_duplicates",
    "warnings",
]


class AllDurable(msgspec.Struct, frozen=True):
    """All durable subscriptions that were found, and the brokers that did not answer."""

    entries: list[DurableEntry]
    silent: list[str]


async def all_durable(session: Session, *, of_name: str | None = None) -> AllDurable:
    """Collect the durable subscriptions of all brokers, page by page; all or those of one name."""
    from gapless.messages.operating import ListAllDurable

    entries: list[DurableEntry] = []
    silent: dict[str, None] = {}
    after = (of_name or "", "")
    while True:
        answer = await session.request(ListAllDurable(0, after), changes=False)
        silent |= dict.fromkeys(answer.silent)
        wanted = [each for each in answer.entries if of_name in {None, each.name}]
        entries += wanted
        if not answer.more or not answer.entries or len(wanted) < len(answer.entries):
            return AllDurable(entries, [*silent])
        after = answer.entries[-1].place


def matching(found: AllDurable, pattern: str) -> AllDurable:
    """Return the subscriptions whose names match a pattern with ``*`` and ``?``; empty: all."""
    from gapless.inspection.subscriptions import name_pattern

    matches = name_pattern(pattern or "*").matches
    return AllDurable([each for each in found.entries if matches(each.name)], found.silent)


def duplicates(entries: Sequence[DurableEntry]) -> dict[str, list[str]]:
    """Return the names that several subscriptions have, each with its brokers.

    A subscription that is just moving may be listed at two brokers; that is one subscription.
    """
    found: dict[str, dict[str, list[str]]] = {}
    for each in entries:
        keys = found.setdefault(each.name, {})
        key = each.host.incarnation_key or each.host.broker
        keys.setdefault(key, []).append(each.host.broker)
    return {
        name: [broker for brokers in keys.values() for broker in brokers]
        for name, keys in found.items()
        if len(keys) > 1
    }


def warnings(found: AllDurable) -> list[str]:
    """Return lines for names of several subscriptions, corrupt records and silent brokers."""
    lines = [
        f"{name} is the name of {len(brokers)} subscriptions, at {', '.join(brokers)}: "
        "remove all but one with gapless durable rm NAME --at BROKER"
        for name, brokers in duplicates(found.entries).items()
    ]
    lines += [
        f"the record of {each.name} at {each.host.broker} is corrupt: repair the disk of "
        "that broker, or end the subscription with gapless durable rm NAME --at BROKER"
        for each in found.entries
        if each.host.corrupt
    ]
    if found.silent:
        lines.append(f"no answer from {', '.join(found.silent)}: their subscriptions are missing")
    return lines


def print_table(entries: Sequence[DurableEntry]) -> None:
    """Print a table of subscriptions."""
    rows = [(each.name, each.host.broker, _client(each), each.filter) for each in entries]
    print_listing("subscription", "broker", "client", "filter", rows=rows)


def _client(entry: DurableEntry) -> str:
    if entry.host.corrupt:
        return "the record is corrupt"
    if entry.client is not None:
        return entry.client
    return "" if entry.disconnected_since is None else f"left {timestamp(entry.disconnected_since)}"


async def refuse_duplicates(session: Session, name: str) -> None:
    """Raise RefusedError if several subscriptions have a name."""
    from gapless.core.errors import RefusedError

    found = await all_durable(session, of_name=name)
    brokers = duplicates(found.entries).get(name)
    if brokers is not None:
        raise RefusedError(
            f"{name!r} is the name of {len(brokers)} subscriptions, at {', '.join(brokers)}: "
            "name the broker of the one that is meant with --at"
        )


async def entry_at(session: Session, name: str, broker: str) -> Any:
    """Return the subscription of a name at one broker; RefusedError if it is not there."""
    from gapless.core.errors import RefusedError

    found = await all_durable(session, of_name=name)
    for each in found.entries:
        if each.host.broker == broker:
            return each
    brokers = ", ".join(each.host.broker for each in found.entries) or "no broker"
    missing = f"; no answer from {', '.join(found.silent)}" if found.silent else ""
    raise RefusedError(
        f"the broker {broker} hosts no subscription {name!r}; it is at {brokers}{missing}"
    )
