"""Corrupt records on disk are refused with the reason; the rest of the broker starts."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from gapless.cli.main import main
from gapless.core.ids import PubendId
from gapless.messages.clients import (
    OpenPubend,
    OpenPublisher,
    Publish,
    Refused,
    Subscribe,
    Unsubscribed,
)
from gapless.messages.operating import RemoveDurable
from gapless.messages.reading import ReadLog
from gapless.storage.codec import encode_key, record_checksum
from tests.runtime.nodes import run, world
from tests.runtime.raw_client import RawClient


def corrupt(directory: Path, kind: str, name: str) -> None:
    """Change a record, but not its checksum."""
    with closing(sqlite3.connect(directory / "broker.db")) as database:
        changed = database.execute(
            "UPDATE records SET body = CAST(body || x'00' AS BLOB) WHERE key LIKE ?",
            (f'["{kind}","{name}%',),
        )
        assert changed.rowcount == 1
        database.commit()


def test_a_corrupt_pubend_is_refused_and_the_rest_starts(tmp_path: Path) -> None:
    async def first_incarnation() -> None:
        async with world(data=tmp_path) as brokers, RawClient(brokers["b1"].url) as client:
            for pubend in ("quotes", "trades"):
                opened = await client.open(pubend)
                await client.publish(pubend, opened.session, 1, count=3)

    async def second_incarnation() -> None:
        async with world(data=tmp_path) as brokers, RawClient(brokers["b1"].url) as client:
            assert list(brokers["b1"].refused) == ["pubend trades"]
            assert brokers["b1"].health().refused
            for request in (
                OpenPubend(11, "trades"),
                OpenPublisher(12, PubendId("trades"), "desk"),
                Publish(13, PubendId("trades"), "desk", 1, 4, (({"n": 4}, b""),)),
                ReadLog(14, PubendId("trades"), "", 0, 2**62),
            ):
                refused = await client.request(Refused, request)
                assert "could not be restored" in refused.reason
            opened = await client.open("quotes")
            assert opened.last_sequence == 3
            await client.publish("quotes", opened.session, 4)

    run(first_incarnation())
    corrupt(tmp_path / "b1", "pubend", "trades")
    run(second_incarnation())
    run(second_incarnation_again(tmp_path))


async def second_incarnation_again(directory: Path) -> None:
    """Starting neither repairs nor removes the corrupt record."""
    async with world(data=directory) as brokers:
        assert list(brokers["b1"].refused) == ["pubend trades"]


def test_a_corrupt_subscription_is_refused_and_not_overwritten(tmp_path: Path) -> None:
    async def first_incarnation() -> None:
        async with world(data=tmp_path) as brokers, RawClient(brokers["b1"].url) as client:
            await client.open("trades")
            for name in ("left", "right"):
                await client.subscribe(name, durable=True)

    async def second_incarnation() -> None:
        async with world(data=tmp_path) as brokers, RawClient(brokers["b1"].url) as client:
            assert list(brokers["b1"].refused) == ["subscription left"]
            refused = await client.request(Refused, Subscribe(11, "left", "", durable=True))
            assert "could not be restored" in refused.reason
            await client.subscribe("right", durable=True)

    run(first_incarnation())
    corrupt(tmp_path / "b1", "subscription", "left")
    for _ in range(2):
        run(second_incarnation())


def test_a_record_under_the_name_of_another_subscription_refuses_both(tmp_path: Path) -> None:
    # somebody has edited the database: neither name may be created anew, or restored twice
    async def first_incarnation() -> None:
        async with world(data=tmp_path) as brokers, RawClient(brokers["b1"].url) as client:
            await client.subscribe("left", durable=True)

    async def second_incarnation() -> None:
        async with world(data=tmp_path) as brokers:
            assert sorted(brokers["b1"].refused) == ["subscription left", "subscription right"]

    run(first_incarnation())
    with closing(sqlite3.connect(tmp_path / "b1" / "broker.db")) as database:
        left, right = (encode_key(("subscription", name)) for name in ("left", "right"))
        found = database.execute("SELECT body FROM records WHERE key = ?", (left,)).fetchone()
        database.execute(
            "UPDATE records SET key = ?, checksum = ? WHERE key = ?",
            (right, record_checksum(right, found[0]), left),
        )
        database.commit()
    run(second_incarnation())


def test_an_operator_ends_a_corrupt_subscription_and_its_name_is_free(tmp_path: Path) -> None:
    async def incarnation(*, removes: bool = False, refused: Sequence[str]) -> None:
        async with world(data=tmp_path) as brokers, RawClient(brokers["b1"].url) as client:
            assert list(brokers["b1"].refused) == [f"subscription {name}" for name in refused]
            if removes:
                await client.request(Unsubscribed, RemoveDurable(11, "left"))
            if removes or not refused:
                assert (await client.subscribe("left", durable=True)).is_new

    run(incarnation(refused=()))
    corrupt(tmp_path / "b1", "subscription", "left")
    run(incarnation(removes=True, refused=["left"]))
    corrupt(tmp_path / "b1", "subscription", "left")
    run(incarnation(refused=["left"]))
    assert main(["durable", "rm", "left", "--directory", str(tmp_path / "b1")]) == 0
    run(incarnation(refused=()))
