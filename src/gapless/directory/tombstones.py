"""Tombstones: the pubends that this broker closed (RS-34).

The id of a closed pubend is never given again. So its broker remembers it for ever, and announces its
end for ``tombstone_ttl_s``, so that brokers hear of it that were down meanwhile. An id with a number
is forgotten after that time: no broker gives a number twice (:mod:`.name_query`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gapless.core.context import Context
from gapless.core.ids import PubendId
from gapless.core.overlay_limits import TOMBSTONES_MAX
from gapless.core.parameters import microseconds
from gapless.messages.records import DeleteRecord, TombstoneRecord

__all__ = ["Tombstones", "closed_reason"]


def closed_reason(pubend: PubendId) -> str:
    """Return the text of a refusal because a pubend is a tombstone."""
    return (
        f"the pubend {pubend} was closed, and nothing is left of it; its id is not given again, so "
        "use another pubend"
    )


class Tombstones:
    """The closed pubends of this broker."""

    def __init__(self, context: Context, records: Iterable[TombstoneRecord]) -> None:
        self._context = context
        self._records = {each.pubend: each for each in records}
        self._added = 0

    def __contains__(self, pubend: object) -> bool:
        """Return whether this broker closed a pubend."""
        return pubend in self._records

    def __len__(self) -> int:
        """Return the number of tombstones."""
        return len(self._records)

    def __iter__(self) -> Iterator[TombstoneRecord]:
        """Return all tombstones, the oldest first."""
        return iter([*self._records.values()])

    def get(self, pubend: PubendId) -> TombstoneRecord | None:
        """Return the tombstone of a pubend, or None if there is none."""
        return self._records.get(pubend)

    @property
    def is_full(self) -> bool:
        """Whether no further tombstone is kept."""
        return len(self._records) >= TOMBSTONES_MAX

    @property
    def added(self) -> int:
        """How many pubends this incarnation has closed."""
        return self._added

    def add(self, record: TombstoneRecord) -> None:
        """Remember a pubend that is being closed; the caller writes the record."""
        self._added += 1
        self._records[record.pubend] = record

    def recent_us(self, record: TombstoneRecord, clock: int) -> int:
        """Return for how long a tombstone must still be announced, by the median clock."""
        ttl_us = microseconds(s=self._context.parameters.tombstone_ttl_s)
        return min(ttl_us, record.closed_at + ttl_us - clock)

    def forget_numbered(self, clock: int) -> None:
        """Forget ids with a number that need not be announced any more."""
        old = [
            each
            for each in self._records.values()
            if each.pubend.incarnation > 1 and self.recent_us(each, clock) <= 0
        ]
        for each in old:
            del self._records[each.pubend]
        if old:
            self._context.write(tuple(DeleteRecord(each.key) for each in old))
