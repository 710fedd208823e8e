"""Loading all records and marks when a broker starts, and refusing only what is corrupt.

The owner of a corrupt record is named by its key and by its body, if they can be read. Either may
be the corrupt part, so both owners are refused. If neither can be read, it is unknown what is
missing, and the broker is refused.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec

from gapless.core.errors import CorruptionError
from gapless.core.ids import PubendId
from gapless.messages.records import Record
from gapless.storage.codec import (
    NOTHING,
    LogMark,
    decode_key,
    decode_record,
    is_valid,
    pubend_of,
    record_checksum,
)
from gapless.storage.schema import snapshot

__all__ = [
    "CorruptRecord",
    "Loaded",
    "LogMarks",
    "RecordOwner",
    "load_marks",
    "load_records",
    "walk_labels",
    "walk_records",
]

_OF_PUBENDS = frozenset(
    {
        *("pubend", "stream epoch", "member", "log hold", "ended membership", "known host"),
        *("publisher", "staged", "commit", "joined pubend", "pubend location", "tombstone"),
    }
)
"""Kinds of records whose key continues with a pubend."""

_NEXT_LABEL = (
    "SELECT CAST(pubend AS BLOB) FROM log WHERE pubend > CAST(? AS TEXT) ORDER BY pubend LIMIT 1"
)
_LAST_ROW = "SELECT last FROM log WHERE pubend=? ORDER BY first DESC LIMIT 1"


class Loaded(msgspec.Struct, frozen=True):
    """The state from which a broker starts."""

    records: list[Record]
    """The valid records, in the order of their keys, without those of corrupt pubends."""
    corrupt: dict[PubendId, str]
    """Pubends that must not be served, with reasons. Their records and logs stay unchanged."""
    subscriptions: dict[str, str]
    """Durable subscriptions that must not be served, with reasons."""


class LogMarks(NamedTuple):
    """The extent of each log, and the problems of corrupt ones."""

    valid: dict[PubendId, LogMark]
    corrupt: dict[PubendId, str]

    def accept(self, pubend: PubendId, mark: LogMark) -> None:
        """Add the mark of a log."""
        self.valid[pubend] = mark

    def refuse(self, pubend: PubendId, fault: str) -> None:
        """Note that a log is corrupt, and why."""
        self.corrupt[pubend] = f"{pubend}: {fault}"


class RecordOwner(NamedTuple):
    """The owner of a record: ``pubend`` or ``subscription`` with its name, or ``broker``."""

    kind: str
    name: str


class CorruptRecord(NamedTuple):
    """A record that does not fit its checksum or cannot be decoded, and its possible owners."""

    problem: str
    owners: frozenset[RecordOwner]


class ValidRecord(NamedTuple):
    """A record that fits its checksum."""

    key: tuple[str, ...]
    record: Record


def load_records(connection: sqlite3.Connection, corrupt_logs: dict[PubendId, str]) -> Loaded:
    """Return all valid records, and the refused pubends and subscriptions."""
    valid: list[ValidRecord] = []
    broken: list[CorruptRecord] = []
    with snapshot(connection):
        check_structure(connection, "records")
        for found in walk_records(connection):
            if isinstance(found, ValidRecord):
                valid.append(found)
            else:
                broken.append(found)
    valid.sort(key=lambda found: found.key)
    names = {str(pubend): pubend for pubend in corrupt_logs}
    names |= {str(pubend): pubend for each in valid if (pubend := _pubend_in(each.record))}
    corrupt, subscriptions = _refused(broken, names)
    corrupt |= corrupt_logs
    refused = {RecordOwner("pubend", str(pubend)) for pubend in corrupt}
    records = [each.record for each in valid if _owner_of(each.key) not in refused]
    return Loaded(records, corrupt, subscriptions)


def walk_records(connection: sqlite3.Connection) -> Iterator[ValidRecord | CorruptRecord]:
    """Yield every record, valid or not. The caller holds a snapshot."""
    # the key as bytes, because a text that cannot be decoded would end the whole query
    for key, body, checksum in connection.execute(
        "SELECT CAST(key AS BLOB), body, checksum FROM records"
    ):
        yield _examined(_text(key), body, checksum)


def load_marks(connection: sqlite3.Connection) -> LogMarks:
    """Return the extent of each log, and the logs whose rows do not reach it exactly."""
    marks = LogMarks({}, {})
    with snapshot(connection):
        check_structure(connection, "logs")
        for label, trimmed, last, checksum in connection.execute(
            "SELECT CAST(pubend AS BLOB), trimmed, last, checksum FROM logs"
        ).fetchall():
            _take_mark(connection, marks, LogMark(_text(label), trimmed, last), checksum)
        for label in walk_labels(connection):
            if (pubend := _pubend_labelled(label)) and pubend not in marks.valid:
                marks.corrupt.setdefault(pubend, f"{pubend}: the mark of its log is missing")
    return marks


def check_structure(connection: sqlite3.Connection, table: str) -> None:
    """Have SQLite check the pages of a table and of its index, and that the two agree.

    No checksum protects a row that a corrupt page hides, and a row that is missing from the index
    could be written a second time.
    """
    found = connection.execute(f"PRAGMA integrity_check({table})").fetchall()
    if found != [("ok",)]:
        problem = " ".join(str(found[0][0]).split())
        raise CorruptionError(
            f"the table {table} is corrupt: {problem}; nothing was changed: check the disk, and "
            "save the readable rows with gapless log export"
        )


def walk_labels(connection: sqlite3.Connection) -> Iterator[str]:
    """Yield the labels of all pubends that have rows, with one index lookup each."""
    label = b""
    while found := connection.execute(_NEXT_LABEL, (label,)).fetchone():
        if found[0] <= label:
            raise CorruptionError(
                "the index of the logs is not in order"
            )  # otherwise this loop would not end
        label = found[0]
        yield _text(label)


def _take_mark(
    connection: sqlite3.Connection, marks: LogMarks, mark: LogMark, checksum: object
) -> None:
    pubend = _pubend_labelled(mark.label)
    if pubend is None:
        return
    if not is_valid(mark, checksum):
        marks.refuse(pubend, "the mark of its log is corrupt")
        return
    marks.accept(pubend, mark)
    found = connection.execute(_LAST_ROW, (mark.label,)).fetchone()
    end = found[0] if found else NOTHING
    if end > mark.last or max(end, mark.trimmed) < mark.last:
        marks.refuse(
            pubend,
            f"rows are missing or too many: its log ends at {end}, "
            f"but the last row that was written ended at {mark.last}",
        )


def _examined(key_text: str, body: object, checksum: object) -> ValidRecord | CorruptRecord:
    key, record = decode_key(key_text), decode_record(body)
    fits = isinstance(body, bytes) and record_checksum(key_text, body) == checksum
    is_of_key = record is not None and record.key == key
    if fits and key and record and is_of_key:
        return ValidRecord(key, record)
    owners = {_owner_of(record.key)} if record else set()
    if key and (not record or _owner_of(key).kind != "broker"):
        owners.add(_owner_of(key))  # an unknown kind is not the broker's if the body is valid
    why = "its content does not fit its checksum"
    if fits:
        why = "its content is that of another key" if key and record else "it cannot be decoded"
    return CorruptRecord(f"the record {key_text} is corrupt: {why}", frozenset(owners))


def _refused(
    broken: Iterable[CorruptRecord], names: dict[str, PubendId]
) -> tuple[dict[PubendId, str], dict[str, str]]:
    """Return the pubends and the subscriptions that own corrupt records."""
    pubends: dict[PubendId, str] = {}
    subscriptions: dict[str, str] = {}
    for each in broken:
        if not each.owners or any(owner.kind == "broker" for owner in each.owners):
            raise CorruptionError(f"{each.problem}; without it the broker must not start")
        for kind, name in each.owners:
            if kind == "pubend":
                pubends[names.get(name) or _pubend_named(name)] = f"{name}: {each.problem}"
            else:
                subscriptions[name] = f"subscription {name}: {each.problem}"
    return pubends, subscriptions


def _owner_of(key: tuple[str, ...]) -> RecordOwner:
    match key:
        case ("subscription", name):
            return RecordOwner("subscription", name)
        case (kind, name, *_) if kind in _OF_PUBENDS:
            return RecordOwner("pubend", name)
    return RecordOwner("broker", "")


def _pubend_in(record: Record) -> PubendId | None:
    return getattr(record, "pubend", None)


def _pubend_labelled(label: str) -> PubendId | None:
    """Return the pubend of a label, or None if it is corrupt; that pubend then lacks a mark."""
    try:
        return pubend_of(label)
    except CorruptionError:
        return None


def _pubend_named(text: str) -> PubendId:
    """Return the pubend of a printed name, if no valid record has it."""
    name, mark, incarnation = text.rpartition("#")
    if mark and incarnation.isascii() and incarnation.isdecimal() and int(incarnation) > 1:
        return PubendId(name, int(incarnation))
    return PubendId(text)


def _text(stored: object) -> str:
    return stored.decode(errors="backslashreplace") if isinstance(stored, bytes) else repr(stored)
