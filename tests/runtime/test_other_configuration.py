"""A broker does not start with data of another topology or another broker."""

from __future__ import annotations

from pathlib import Path

import pytest

from gapless.core.errors import UsageError
from gapless.core.parameters import Parameters
from gapless.runtime import BrokerSettings, Node, Supervisor, overlay_of
from gapless.runtime.supervisor import BrokerStartError
from tests.runtime.nodes import run, world


async def started_and_stopped(
    data: Path, words: str, name: str = "b1", parameters: Parameters | None = None
) -> None:
    node = Node(
        BrokerSettings(
            name=name,
            overlay=overlay_of(words),
            data=data,
            parameters=parameters or Parameters(),
        )
    )
    await node.start()
    await node.stop()


def test_a_broker_restarts_with_the_topology_of_its_data(
    tmp_path: Path,
) -> None:
    for _ in range(3):
        run(started_and_stopped(tmp_path, "line:3"))


@pytest.mark.parametrize(
    ("words", "parameters", "reason"),
    [
        ("line:4", Parameters(), "the cell c3 was"),
        ("line:2", Parameters(), "the cell c3 is missing"),
        ("star:3", Parameters(), "the cell c1 was"),
        ("line:3", Parameters(delta=0), "delta was 1 and is 0"),
    ],
)
def test_another_topology_is_refused_and_the_data_is_unchanged(
    tmp_path: Path, words: str, parameters: Parameters, reason: str
) -> None:
    run(started_and_stopped(tmp_path, "line:3"))
    with pytest.raises(UsageError, match=reason):
        run(started_and_stopped(tmp_path, words, parameters=parameters))
    run(started_and_stopped(tmp_path, "line:3"))


def test_the_data_of_another_broker_is_refused(tmp_path: Path) -> None:
    run(started_and_stopped(tmp_path, "line:3"))
    with pytest.raises(UsageError, match="belongs to the broker b1 of the cell c1, not to b2"):
        run(started_and_stopped(tmp_path, "line:3", name="b2"))


def test_an_overlay_over_the_data_of_another_fails_in_one_line(tmp_path: Path) -> None:
    async def first() -> None:
        async with world("line:2", data=tmp_path / "made"):
            pass

    async def second() -> str:
        data = tmp_path / "again"
        for name in ("b1", "b2"):
            (data / name).mkdir(parents=True)
            (tmp_path / "made" / name).rename(data / name / "store")
        (data / "b1" / "broker.log").write_text("what an older process said\n")
        with pytest.raises(BrokerStartError) as caught:
            await Supervisor(overlay_of("line:3"), data, port=0).start()
        return str(caught.value)

    run(first())
    headline, line = run(second()).split("\n")
    assert headline == "the broker b1 cannot start:"
    assert "the data of b1 was made in another tree" in line
    assert "or with an empty data directory" in line
