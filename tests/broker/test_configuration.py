"""A broker does not start with data of another broker or of another tree."""

from __future__ import annotations

import pytest

from gapless.broker import Broker
from gapless.core.context import StepTime
from gapless.core.effects import Write
from gapless.core.errors import UsageError
from gapless.core.events import Written
from gapless.core.parameters import Parameters
from gapless.messages.records import ConfigurationRecord, NeighbourhoodRecord, PutRecord, Record
from gapless.overlay.neighbourhood import Topology

STEP_TIME = StepTime(10, 1_000_000)
LINE = Topology.of({"a": ["a1"], "b": ["b1"], "c": ["c1"]}, [("a", "b"), ("b", "c")])


def start(
    records: list[Record],
    topology: Topology = LINE,
    *,
    broker: str = "b1",
    cell: str = "b",
    delta: int = 1,
    overlay: str = "",
) -> list[Record]:
    """Start an incarnation from records; return them with those that it wrote first."""
    parameters = Parameters(delta=delta)
    neighbourhood = topology.neighbourhood(cell, parameters.neighbourhood_radius)
    made = Broker(broker, cell, parameters, neighbourhood, records, STEP_TIME, overlay=overlay)
    (write,) = made.step(None, STEP_TIME)
    assert isinstance(write, Write)
    made.step(Written(write.write_id), STEP_TIME)
    stored = {each.key: each for each in records}
    for change in write.changes:
        assert isinstance(change, PutRecord)
        stored[change.record.key] = change.record
    return [*stored.values()]


def configurations(records: list[Record]) -> list[ConfigurationRecord]:
    return [each for each in records if isinstance(each, ConfigurationRecord)]


def refusal(records: list[Record], topology: Topology = LINE, **options: str | int) -> str:
    with pytest.raises(UsageError) as caught:
        start(records, topology, **options)  # type: ignore[arg-type]
    return str(caught.value)


def test_the_first_incarnation_writes_its_configuration_and_later_ones_read_it() -> None:
    records = start([])
    (configuration,) = configurations(records)
    assert (configuration.broker, configuration.cell, configuration.delta) == ("b1", "b", 1)
    assert [cell.name for cell in configuration.cells] == ["b", "a", "c"]
    assert configurations(start(records)) == [configuration]


def test_data_without_a_configuration_record_is_accepted() -> None:
    old: list[Record] = [each for each in start([]) if not isinstance(each, ConfigurationRecord)]
    assert len(configurations(start(old))) == 1


@pytest.mark.parametrize(("broker", "cell"), [("a1", "a"), ("b2", "b"), ("b1", "c")])
def test_data_of_another_broker_is_refused(broker: str, cell: str) -> None:
    text = refusal(start([]), broker=broker, cell=cell)
    assert text.startswith("this data belongs to the broker b1 of the cell b, not to ")
    assert text.endswith("or this one with an empty data directory")


def test_another_tree_is_refused_and_the_difference_is_named() -> None:
    records = start([])
    longer = {"a": ["a1"], "b": ["b1"], "c": ["c1"], "d": ["d1"]}
    grown = Topology.of(longer, [("a", "b"), ("b", "c"), ("b", "d")])
    text = refusal(records, grown)
    assert "the cell b was [b1] next to [a, c] and is [b1] next to [a, c, d]" in text
    assert "the cell d is new" in text
    assert "start it with the topology it was made with, or with an empty data directory" in text
    assert "\n" not in text
    smaller = Topology.of({"a": ["a1"], "b": ["b1"]}, [("a", "b")])
    assert "the cell c is missing" in refusal(records, smaller)
    renamed = Topology.of({"a": ["x1"], "b": ["b1"], "c": ["c1"]}, [("a", "b"), ("b", "c")])
    assert "the cell a was [a1] next to [b] and is [x1] next to [b]" in refusal(records, renamed)
    assert "delta was 1 and is 2" in refusal(records, delta=2)


def test_another_overlay_is_refused() -> None:
    text = refusal(start([], overlay="one"), overlay="two")
    assert "the overlay was 'one' and is 'two'" in text


def test_other_addresses_are_accepted() -> None:
    moved = LINE.with_addresses({"a1": "10.0.0.1:7400"})
    again = LINE.with_addresses({"a1": "10.0.0.2:7400"})
    start(start([], moved), again)


def test_after_the_first_step_the_tree_is_not_compared_with_the_file() -> None:
    # RS-36
    records = start([])
    around = LINE.neighbourhood("b", 2, version=2)
    reshaped = NeighbourhoodRecord("b", 2, around.cells)
    smaller = Topology.of({"a": ["a1"], "b": ["b1"]}, [("a", "b")])
    start([*records, reshaped], smaller)
    assert "delta was 1 and is 2" in refusal([*records, reshaped], smaller, delta=2)
    assert "the overlay was" in refusal([*records, reshaped], smaller, overlay="other")
    assert "belongs to" in refusal([*records, reshaped], smaller, broker="b2")
