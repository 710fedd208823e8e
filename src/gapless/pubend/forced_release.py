"""The release of a log by an operator while its broker is stopped, whoever needs the log (R56).

The records become those of a release that all members allowed: ``released``, the last released
event, the marks of the log's size, ack floors and log holds at or above the released tick, and no
stream epoch below it. So the broker starts as after any release: a subscription that needed a
released event receives a gap.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from gapless.core.parameters import DEFAULTS
from gapless.core.ticks import Tick
from gapless.messages.records import DeleteRecord, PutRecord, StorageChange, TrimLog
from gapless.messages.stored import StoredPubend
from gapless.pubend.epochs import outlived
from gapless.pubend.log_size import LogSize
from gapless.pubend.publishers import Publishers
from gapless.pubend.retention import last_released_event

__all__ = ["forced_release"]


def forced_release(stored: StoredPubend, up_to: Tick) -> tuple[StorageChange, ...]:
    """Return the changes that release a log up to a tick; none if that is released already.

    The caller makes them in one write. The tick must not be above the last row of the log.
    """
    if up_to <= stored.record.released:
        return ()
    return tuple(_changes(stored, up_to))


def _changes(stored: StoredPubend, up_to: Tick) -> Iterator[StorageChange]:
    record = stored.record
    logged = Publishers(record.pubend, DEFAULTS.publisher_window, stored.publishers).logged
    size = LogSize(0, record.log_size_marks, logged, record.released)
    size.release(up_to)
    yield PutRecord(
        msgspec.structs.replace(
            record,
            released=up_to,
            last_released_event=last_released_event(record, logged[0], up_to),
            log_size_marks=size.marks,
        )
    )
    for member in stored.members:
        if member.ack_floor < up_to:
            yield PutRecord(msgspec.structs.replace(member, ack_floor=up_to))
    for log_hold in stored.log_holds:
        if log_hold.tick < up_to:
            yield PutRecord(msgspec.structs.replace(log_hold, tick=up_to))
    stream_epochs = sorted(stored.stream_epochs, key=lambda each: each.number)
    for stream_epoch in stream_epochs[: outlived(stream_epochs, up_to)]:
        yield DeleteRecord(stream_epoch.key)
    yield TrimLog(record.pubend, up_to)
