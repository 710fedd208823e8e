"""The principals to which brokers sent events or log reads, for the audit of rights."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from gapless.audit.facts import Control, client_session_key
from gapless.audit.records import LogReadSent
from gapless.audit.session_timelines import session_timelines, subscription_key
from gapless.audit.writer_runs import logs_of

__all__ = ["Reading", "Recipient", "readings_of", "recipients_of"]


class Recipient(NamedTuple):
    """The principal of a client session at a broker."""

    run: str
    client_session: str
    subscription: str
    principal: str


class Reading(NamedTuple):
    """Ticks above ``low`` up to ``high`` of a pubend whose matching events a principal has read."""

    principal: str
    pubend: str
    filter: str
    low: int
    high: int


def recipients_of(controls: Iterable[Control]) -> list[Recipient]:
    """Return the client sessions in brokers' records. Records of clients are not trusted."""
    ordered = sorted(controls, key=lambda each: (each.header.run, each.offset))
    client_sessions = session_timelines(ordered, logs_of(ordered))
    return [
        Recipient(
            run,
            client_session_key(name, subscription),
            subscription_key(client_session.opened),
            client_session.opened.principal,
        )
        for (run, subscription, name), client_session in client_sessions.items()
        if client_session.log.header.side == "broker"
    ]


def readings_of(controls: Iterable[Control]) -> list[Reading]:
    """Return the log reads, with adjacent ranges merged."""
    found: dict[tuple[str, str, str], list[tuple[int, int]]] = {}
    for each in controls:
        record = each.record
        if isinstance(record, LogReadSent):
            key = (record.principal, str(record.pubend), record.filter)
            found.setdefault(key, []).append((record.low - 1, record.high))
    return [Reading(*key, low, high) for key in sorted(found) for low, high in _merged(found[key])]


def _merged(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for low, high in sorted(spans):
        if merged and low <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(high, merged[-1][1])
        else:
            merged.append((low, high))
    return merged
