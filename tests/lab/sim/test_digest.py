"""The canonical digest: equal runs have equal digests; texts do not count, decisions do."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

from gapless.core.effects import DisconnectClient, Effect, Notify, Send
from gapless.core.errors import UsageError
from gapless.core.events import MachineEvent
from gapless.core.ids import PubendId
from gapless.core.ticks import TickRange
from gapless.messages import clients, streams
from gapless.messages.records import DeleteRecord, Record, StorageChange
from gapless.wire import codec
from gapless_lab.sim import digest
from gapless_lab.sim.limits import PACED_MS, TINY
from gapless_lab.sim.options import SimulationOptions
from gapless_lab.sim.runner import SimulationRun

RECORDED = Path(__file__).with_name("digests.txt")
OFTEN = range(0, 600, 50)
"""Seeds that every run of the tests compares; ``make digests`` compares all."""


def folded(value: Any) -> list[Any]:
    out: list[Any] = []
    digest._Folder().fold(value, out)
    return out


@pytest.mark.parametrize("seed", OFTEN)
def test_the_digest_equals_the_recorded_one(seed: int) -> None:
    assert digest.digest_of(seed) == digest.load(RECORDED)[seed]


def test_six_hundred_runs_are_recorded() -> None:
    assert sorted(digest.load(RECORDED)) == list(range(600))


def test_the_invariants_do_not_change_a_run() -> None:
    assert digest.digest_of(4, checked=True) == digest.digest_of(4)


def test_the_digest_does_not_depend_on_the_hash_seed() -> None:
    code = "from gapless_lab.sim.digest import digest_of; print(digest_of(2))"
    made = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1")
    }
    assert len(made) == 1


def test_every_event_effect_message_and_record_has_a_number() -> None:
    unions = (
        MachineEvent,
        Effect,
        Record,
        StorageChange,
        codec.Message,
        codec.Request,
        codec.Notice,
    )
    kinds = {kind for union in unions for kind in get_args(union)}
    missing = {
        kind.__name__
        for kind in kinds - {*digest.CODED, type(None)}
        if kind.__module__.startswith(("gapless.messages", "gapless.core"))
    }
    assert not missing
    assert len(digest.CODED) == len({*digest.CODED})


def test_reason_texts_do_not_count() -> None:
    assert folded(DisconnectClient("c1", "too slow")) == folded(
        DisconnectClient("c1", "slow consumer")
    )
    assert folded(clients.Refused(1, "no")) == folded(clients.Refused(1, "not now"))
    assert folded(clients.Refused(1, "no")) != folded(clients.Refused(2, "no"))


def test_the_order_and_the_values_of_effects_count() -> None:
    nack = streams.Nack(PubendId("P0"), (TickRange(1, 5),))
    other = streams.Nack(PubendId("P0"), (TickRange(1, 6),))
    first, second = Send("b1", nack), Notify("c1", clients.Unsubscribed(1))
    assert folded([first, second]) != folded([second, first])
    assert folded(nack) != folded(other)


def test_messages_of_the_same_form_differ_by_their_number() -> None:
    pubend = PubendId("P0")
    assert folded(streams.StreamEpochRequest(pubend, 1)) != folded(streams.Detach(pubend, 1))


def test_a_value_without_a_number_counts_as_its_fields() -> None:
    class Inner(msgspec.Struct):
        low: int
        high: int

    class Outer(msgspec.Struct):
        name: str
        inner: Inner

    class Flat(msgspec.Struct):
        name: str
        low: int
        high: int

    assert folded(Outer("a", Inner(1, 2))) == folded(Flat("a", 1, 2)) == ["a", 1, 2]


def test_the_first_part_of_a_record_key_counts_as_a_number() -> None:
    found = folded(DeleteRecord(("subscription", "desk")))
    assert "subscription" not in found
    assert found != folded(DeleteRecord(("publisher", "desk")))


class AnyField:
    """Stands for a record of which any field may be read."""

    def __init__(self, kind: Any) -> None:
        self.key_of = getattr(kind, "key_of", None)

    def __getattr__(self, name: str) -> AnyField:
        return self

    def __format__(self, form: str) -> str:
        return "0"


def test_the_first_part_of_every_record_key_is_known() -> None:
    words = {kind.__name__: kind.key.fget(AnyField(kind))[0] for kind in get_args(Record)}
    assert len({*words.values()}) == len(words)
    assert {*words.values()} == {*digest.KEY_WORDS}
    assert len(digest.KEY_WORDS) == len({*digest.KEY_WORDS})


def test_a_record_key_with_an_unknown_first_part_is_an_error() -> None:
    with pytest.raises(KeyError):
        folded(DeleteRecord(("nothing", "desk")))


def test_a_value_of_an_unknown_kind_is_an_error() -> None:
    with pytest.raises(AssertionError, match="object cannot be part of a digest"):
        folded(object())


def test_a_run_with_another_decision_has_another_digest() -> None:
    def digest_with(publish_rate: float) -> str:
        run = SimulationRun(
            SimulationOptions(seed=7, safety_ms=300, publish_rate=publish_rate), observers=()
        )
        folded = digest.RunDigest()
        run.world.observers.append(folded)
        run.play()
        return folded.hexdigest()

    assert digest_with(60.0) == digest_with(60.0)
    assert digest_with(60.0) != digest_with(61.0)


def test_digests_are_written_and_read_again(tmp_path: Path) -> None:
    file = tmp_path / "digests.txt"
    digest.save(file, {3: "c", 1: "a"})
    assert digest.load(file) == {1: "a", 3: "c"}
    assert digest.compare({1: "a", 3: "c"}, {1: "a", 3: "d", 4: "e"}) == [3, 4]


def test_an_invalid_line_is_named(tmp_path: Path) -> None:
    file = tmp_path / "digests.txt"
    file.write_text("1 a\nnonsense\n", encoding="utf-8")
    with pytest.raises(UsageError, match=r"digests\.txt:2"):
        digest.load(file)


def test_the_order_of_seeded_parameters_is_frozen() -> None:
    """A run depends on its seed through the order of these names and the names of the streams."""
    assert len(PACED_MS) == 46
    assert [TINY[name] for name in TINY] == [
        (1, 2),
        (0, 300, 2_000),
        (1, 3),
        (0, 1, 3),
        (1, 2),
        (0, 1, 3),
        (1, 2),
        (1, 5),
        (1, 2),
        (1, 3),
        (1, 4),
        (300, 3_000),
        (1, 300),
        (1, 2),
        (1, 2),
        (1, 2),
        (1, 2),
        (1, 3),
        (1, 2, 4),
    ]


def test_the_names_of_the_random_streams_are_frozen() -> None:
    run = SimulationRun(SimulationOptions(seed=1), observers=())
    purposes: list[tuple[str, ...]] = []
    original = run.world.stream

    def stream(*purpose: str) -> Any:
        purposes.append(purpose)
        return original(*purpose)

    run.world.stream = stream  # type: ignore[method-assign]
    run.start()
    operations = [purpose[1] for purpose in purposes if purpose[0] == "operations"]
    assert operations == ["_publish", "_churn", "_read"]
