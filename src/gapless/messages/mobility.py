"""Messages of mobility: which broker hosts a durable subscription."""

from __future__ import annotations

import msgspec

from gapless.core.ids import BrokerId
from gapless.core.numbers import Count, Signed

__all__ = ["Superseded"]


class Superseded(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A broker claims a durable subscription; former hosting brokers end it (MV-14). Flooded."""

    incarnation_key: str
    """Identifies the subscription. Unlike a name it is never used twice."""
    epoch: Count
    """How many times the subscription had changed its hosting broker, this one included."""
    broker: BrokerId
    sent_at: Signed = 0
    """When the hosting broker last sent the claim, by its clock. It repeats the claim, others
    expire it."""

    @property
    def rank(self) -> tuple[int, BrokerId]:
        """The claim with the greater rank wins: the greater epoch, then the greater broker id."""
        return self.epoch, self.broker
