"""Messages of mobility: where a durable subscription lives now."""

from __future__ import annotations

import msgspec

from gapless.core.ids import BrokerId

__all__ = ["Superseded"]


class Superseded(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A durable subscription lives here since a move; older homes let it go (MV-14). Flooded."""

    incarnation_key: str
    """Which subscription: names may be used twice, this is not."""
    epoch: int
    """How often it had moved when it came here."""
    broker: BrokerId
    sent_at: int = 0
    """By the home's clock when it has said so last: it says so again and again, and others forget."""

    @property
    def rank(self) -> tuple[int, BrokerId]:
        """What wins: the later move; of two that no move tells apart, one, the same everywhere."""
        return self.epoch, self.broker
