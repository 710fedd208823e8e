"""The record of where a pubend is."""

from __future__ import annotations

import msgspec

from gapless.core.ids import BrokerId, PubendId

__all__ = [
    "PubendLocationRecord",
]


class PubendLocationRecord(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Another broker has a pubend, so this broker creates none of that name."""

    pubend: PubendId
    broker: BrokerId
    host_retired: bool = False
    """Whether that broker was retired: the name is free and no broker waits for the pubend."""
    lost: bool = False
    """Whether that broker returned without the pubend. True until a broker feeds it again."""

    @property
    def key(self) -> tuple[str, ...]:
        """One record per pubend."""
        return ("pubend location", str(self.pubend))
