"""Stream epochs at routers and SHBs: the vector of each epoch number (R31, R39).

A knowledge range carries the number of its stream epoch. The vector of the number is sent once per
session, as a change to one sent before where that is shorter (VT 6.1.3). A number has one vector
for ever, so receiving it twice, late or from another broker changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from gapless.core.ids import PubendId, ShbId, VectorEntry
from gapless.core.ticks import Tick
from gapless.messages.records import StreamEpochRecord
from gapless.messages.streams import KnowledgeRange, StreamEpoch

__all__ = ["EMPTY_VECTOR", "StreamEpochs", "StreamVector"]


class StreamVector(NamedTuple):
    """V^m of a stream epoch: the SHBs that it serves, each up to a virtual time."""

    stream_epoch: int
    announcement_version: int
    entries: Mapping[ShbId, VectorEntry]
    start: Tick = 0
    """The first tick of the epoch."""


EMPTY_VECTOR = StreamVector(0, 0, {})
"""Stream epoch 0: ticks before the oldest epoch serve no SHB; no subscription can start there."""


class StreamEpochs:
    """The stream epochs of one pubend that a broker knows, newest last."""

    def __init__(self) -> None:
        self._vectors: dict[int, StreamVector] = {0: EMPTY_VECTOR}

    def __len__(self) -> int:
        """Return the number of known epochs, epoch 0 included."""
        return len(self._vectors)

    @property
    def newest(self) -> int:
        """The greatest known number."""
        return max(self._vectors)

    def knows(self, number: int) -> bool:
        """Return whether the vector of a number is known."""
        return number in self._vectors

    def get(self, number: int) -> StreamVector | None:
        """Return the vector of a number, or None if it is not known."""
        return self._vectors.get(number)

    def opens_at(self, knowledge: KnowledgeRange) -> bool:
        """Return whether a range starts with the first tick of its stream epoch."""
        vector = self._vectors.get(knowledge.stream_epoch)
        return vector is not None and knowledge.stream_epoch > 0 and vector.start == knowledge.low

    def learn_record(self, record: StreamEpochRecord) -> None:
        """Add a stream epoch from disk."""
        entries = dict(record.entries)
        self._vectors[record.number] = StreamVector(
            record.number, record.announcement_version, entries, record.start
        )

    def learn(self, message: StreamEpoch) -> bool:
        """Add a received stream epoch; return False if it was known or its base is unknown."""
        if message.number in self._vectors:
            return False
        entries: dict[ShbId, VectorEntry] = {}
        if message.base is not None:
            base = self._vectors.get(message.base)
            if base is None:
                return False
            entries = {
                shb: entry for shb, entry in base.entries.items() if shb not in message.forgotten
            }
        entries.update(message.entries)
        self._vectors[message.number] = StreamVector(
            message.number,
            message.announcement_version,
            dict(sorted(entries.items())),
            message.start,
        )
        return True

    def forget(self, used: list[int], kept: int) -> None:
        """Forget the stream epochs that no range uses, except the newest ``kept`` (R38)."""
        newest = sorted(self._vectors)[-kept:]
        needed = {0, *used, *newest}
        self._vectors = {
            number: vector for number, vector in self._vectors.items() if number in needed
        }

    def message(self, pubend: PubendId, number: int, base: int | None) -> StreamEpoch:
        """Return the message of a stream epoch, as a change to ``base`` where that is shorter."""
        vector = self._vectors[number]
        whole = StreamEpoch(
            pubend,
            number,
            vector.start,
            vector.announcement_version,
            None,
            tuple(vector.entries.items()),
        )
        before = None if base is None else self._vectors.get(base)
        if before is None:
            return whole
        changed = tuple(
            (shb, entry)
            for shb, entry in vector.entries.items()
            if before.entries.get(shb) != entry
        )
        forgotten = tuple(shb for shb in before.entries if shb not in vector.entries)
        if len(changed) + len(forgotten) >= len(vector.entries):
            return whole
        return StreamEpoch(
            pubend, number, vector.start, vector.announcement_version, base, changed, forgotten
        )
