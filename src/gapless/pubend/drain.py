"""What a sealed pubend waits for before it becomes a tombstone (RS-33)."""

from __future__ import annotations

from typing import NamedTuple, Self

from gapless.core.ids import PubendId
from gapless.core.parameters import microseconds
from gapless.core.ticks import Tick
from gapless.messages.records import LogHoldRecord, MemberRecord, PubendRecord
from gapless.pubend.members import Members

__all__ = ["Drain", "sealed_reason"]


def sealed_reason(pubend: PubendId) -> str:
    """Return the text of a refusal because a pubend is sealed."""
    return f"the pubend {pubend} is closed and accepts nothing any more; publish to another pubend"


class Drain(NamedTuple):
    """Those for which the log of a sealed pubend is kept."""

    members: tuple[MemberRecord, ...]
    """Members with an ack floor below the last tick, the lowest first."""
    log_holds: tuple[LogHoldRecord, ...]
    """Log holds below the last tick, the lowest first."""
    is_joined: bool
    """Whether no SHB may still join that knew the pubend before it was sealed."""
    retained_until: int | None
    """Until when the retention keeps the log, by the median clock; None if not any more."""

    @property
    def is_kept_by_none(self) -> bool:
        """Whether nobody needs a tick up to the last one."""
        return not self.members and not self.log_holds and self.is_joined

    @property
    def is_over(self) -> bool:
        """Whether the log may be erased."""
        return self.is_kept_by_none and self.retained_until is None

    @classmethod
    def of(
        cls,
        record: PubendRecord,
        members: Members,
        last_event: Tick,
        joining_floor: Tick | None,
        present: int,
        retention_s: int,
    ) -> Self:
        """Return what a sealed pubend waits for now."""
        last = record.sealed
        assert last is not None, "only a sealed pubend is drained"
        rows = [row for row in members.rows() if row.ack_floor < last]
        retained_until = last_event + microseconds(s=retention_s)
        is_retained = last_event > record.released and retained_until > present
        return cls(
            tuple(sorted(rows, key=lambda row: (row.ack_floor, row.shb))),
            tuple(members.log_holds_below(last)),
            joining_floor is None or joining_floor >= last,
            retained_until if retention_s and is_retained else None,
        )
