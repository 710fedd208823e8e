"""Staging with a crash at every write: a writer that repeats its requests is done once."""

from __future__ import annotations

from typing import Any

import pytest

from gapless.broker import Broker
from gapless.core.effects import Effect, Write
from gapless.messages.clients import OpenPubend
from gapless.messages.staging import BatchCommitted, ChunkStaged, CommitBatch, StageChunk
from tests.broker.harness import BrokerHarness, P
from tests.pubend.writers import Writer, commits, labels, logged, staged
from tests.scenarios.brokers import Node, Subscriber

WRITES = range(1, 13)
"""The writes of the scenario."""

NEVER = 10**9


class Fragile(BrokerHarness):
    """A world in which p crashes at one of its writes: before it is durable, or right after."""

    def __init__(self, *chains: str, at: int, survives: bool) -> None:
        self._left = NEVER
        super().__init__(*chains, retention_s=3_600)
        self._at = at
        self._survives = survives
        self.struck = False

    def arm(self) -> None:
        """Count writes from here on."""
        self._left = self._at

    def _carry_out(self, node: Node, broker: Broker, effect: Effect) -> None:
        if node.broker is not broker:
            return  # it crashed at an effect before this one
        super()._carry_out(node, broker, effect)
        if node.name == "p" and isinstance(effect, Write):
            self._left -= 1
            if self._left == 0:
                self.struck = True
                if self._survives:
                    node.disk.sync()
                self.crash("p")


class RepeatingWriter(Writer):
    """Repeats a request until it is answered, over as many incarnations of the broker as needed."""

    def repeat(self, request: Any) -> Any:
        for _ in range(5):
            if self.world.nodes["p"].broker is None:
                self.world.start("p")
                self.connect()
            self.call(OpenPubend(self.number(), "P"))
            answer = self.call(request)
            if answer is not None:
                return answer
        raise AssertionError(f"{request} is never answered")


def write(
    writer: RepeatingWriter, batch: int, *chunks: tuple[int, str, int, tuple[str, ...]]
) -> Any:
    """Stage chunks of a batch, and commit the attempt called good of each partition."""
    for partition, attempt, number, chunk_labels in chunks:
        request: Any = writer.chunk(*chunk_labels, at=(batch, partition, attempt, number))
        assert isinstance(request, StageChunk)
        assert isinstance(writer.repeat(request), ChunkStaged)
    counts: dict[int, int] = {}
    for partition, attempt, _, _ in chunks:
        counts[partition] = counts.get(partition, 0) + (attempt == "good")
    parts = tuple((partition, "good", count) for partition, count in sorted(counts.items()))
    return writer.repeat(CommitBatch(writer.number(), P, "w", batch, parts))


@pytest.mark.parametrize("survives", [False, True], ids=["lost", "durable"])
@pytest.mark.parametrize("at", WRITES)
def test_a_crash_at_any_write_leaves_every_batch_whole_and_once(at: int, survives: bool) -> None:
    world = Fragile("p-n", at=at, survives=survives)
    writer = RepeatingWriter(world)
    reader: Subscriber = world.subscriber("n", "reader", "TRUE", durable=True)
    world.run(s=1)
    world.arm()
    first = write(
        writer,
        1,
        (1, "good", 0, ("c",)),
        (0, "bad", 0, ("lost",)),
        (0, "good", 0, ("a", "b")),
    )
    second = write(writer, 2, (0, "good", 0, ("d",)), (0, "good", 1, ("e",)))
    world.run(s=5)
    assert world.struck
    assert labels(world) == ["a", "b", "c", "d", "e"]
    assert [each.sequence for each in logged(world)] == [1, 2, 3, 4, 5]
    assert reader.events == ["a", "b", "c", "d", "e"]
    assert staged(world) == []
    assert [each.batch for each in commits(world)] == [2]
    ticks = [each.tick for each in logged(world)]
    for answer, low, high in ((first, 0, 2), (second, 3, 4)):
        assert isinstance(answer, BatchCommitted)
        assert (answer.first, answer.last) == (ticks[low], ticks[high])
