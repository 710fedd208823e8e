"""The pubends of an overlay and the locations of their logs, while brokers start, stop and move."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic

import pytest

pytest.importorskip("pyspark", reason='Spark is not installed: pip install "gapless[spark]"')

from gapless.client.sync import connect_sync
from gapless.core.address import Address
from gapless.core.errors import DeadlineError, UsageError
from gapless.core.parameters import Parameters
from gapless.spark import network
from gapless.spark.network import OverlayClient
from gapless.spark.source import GaplessSource
from gapless.testing import SyncOverlay
from tests.spark.rows import until


def publish(overlay: SyncOverlay, broker: str, pubend: str) -> int:
    with connect_sync(overlay.url(broker)) as session, session.publisher(pubend) as publisher:
        return publisher.publish({"n": 1})[pubend]


def servers_of(overlay: SyncOverlay, *brokers: str) -> tuple[str, ...]:
    return tuple(overlay.url(each) for each in brokers)


@contextmanager
def connected(*servers: str, deadline_s: float = 30.0) -> Iterator[OverlayClient]:
    made = OverlayClient(servers, deadline_s)
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def line() -> Iterator[SyncOverlay]:
    """Return two brokers with a pubend each: quotes at b1, orders at b2."""
    with SyncOverlay("line:2") as overlay:
        publish(overlay, "b1", "quotes")
        publish(overlay, "b2", "orders")
        yield overlay


def forget(overlay: SyncOverlay) -> None:
    """Stop the second broker, and let the first one forget it."""
    overlay.kill("b2")
    overlay.restart("b1")


def test_all_pubends_are_the_union_over_all_servers() -> None:
    # there is no broker in the middle that could forward announcements
    with SyncOverlay("line:3", parameters=Parameters(delta=0)) as overlay:
        publish(overlay, "b1", "quotes")
        publish(overlay, "b3", "orders")
        overlay.kill("b2")
        overlay.restart("b1")
        overlay.restart("b3")
        ends = servers_of(overlay, "b1", "b3")
        with connected(*ends) as both, connected(ends[0]) as one:
            assert both.pubends() == {"quotes": (ends[0],), "orders": (ends[1],)}
            assert one.pubends() == {"quotes": (ends[0],)}


def test_a_broker_that_has_just_started_gets_time_to_learn_of_pubends(
    line: SyncOverlay,
) -> None:
    for _ in range(3):
        line.restart("b1")
        with connected(line.url("b1")) as driver:
            assert [*driver.chosen(("orders",))] == ["orders"]


def test_an_unreachable_server_is_named_in_one_warning(
    line: SyncOverlay, caplog: pytest.LogCaptureFixture
) -> None:
    servers = servers_of(line, "b1", "b2")
    forget(line)
    with connected(*servers, deadline_s=1.0) as driver:
        for _ in range(2):
            assert [*driver.chosen(())] == ["quotes"]
    (reason,) = (each.message for each in caplog.records if each.name == "gapless.spark")
    assert reason.startswith(f"cannot query the pubends of {servers[1]}, b2: pubends")


def test_no_warning_is_logged_while_all_servers_answer(
    line: SyncOverlay, caplog: pytest.LogCaptureFixture
) -> None:
    with connected(*servers_of(line, "b1", "b2")) as driver:
        assert {*driver.chosen(())} == {"quotes", "orders"}
    assert caplog.messages == []


def test_a_named_pubend_is_awaited_until_its_broker_returns(line: SyncOverlay) -> None:
    servers = servers_of(line, "b1", "b2")
    forget(line)
    back = threading.Timer(0.5 + network._SETTLE_S, lambda: line.restart("b2"))
    back.start()
    with connected(*servers, deadline_s=120.0) as driver:
        assert driver.chosen(("orders",)) == {"orders": (servers[1],)}
    back.join()


def test_a_missing_pubend_is_refused_with_the_unreachable_servers(line: SyncOverlay) -> None:
    servers = servers_of(line, "b1", "b2")
    forget(line)
    reason = (
        f"there is no log of orders; the overlay has quotes, and {servers[1]}, b2 cannot be queried"
    )
    with connected(*servers, deadline_s=1.0) as driver, pytest.raises(UsageError, match=reason):
        driver.chosen(("orders",))


def test_an_unknown_name_is_refused_long_before_the_deadline(line: SyncOverlay) -> None:
    started = monotonic()
    with (
        connected(*servers_of(line, "b1", "b2"), deadline_s=600.0) as driver,
        pytest.raises(
            UsageError, match=r"there is no log of order; the overlay has orders, quotes$"
        ),
    ):
        driver.chosen(("order",))
    assert monotonic() - started < 300


def test_without_any_server_the_list_of_pubends_fails(line: SyncOverlay) -> None:
    with connected(line.url("b1"), deadline_s=0.5) as driver:
        driver.caller()
        line.kill("b1")
        with pytest.raises(DeadlineError, match=f"no broker has listed.*{line.url('b1')}"):
            driver.chosen(())


# --- a log that moves -------------------------------------------------------------------------------


@pytest.fixture
def impatience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retry soon."""
    monkeypatch.setattr(network, "_STUCK_S", 0.3)


def free_address() -> Address:
    with socket.create_server(("127.0.0.1", 0)) as made:
        return Address("127.0.0.1", made.getsockname()[1])


def move(overlay: SyncOverlay, broker: str, address: Address) -> None:
    """Start a broker with its disk at another address."""
    overlay.kill(broker)
    overlay._overlay._addresses[broker] = address
    overlay.restart(broker)


@pytest.mark.usefixtures("impatience")
def test_a_stream_of_named_pubends_finds_a_log_that_moved_to_another_server() -> None:
    with SyncOverlay() as overlay:
        publish(overlay, "b1", "quotes")
        elsewhere = free_address()
        servers = f"{overlay.url()},{elsewhere}"
        given = {"servers": servers, "pubends": "quotes", "start": "earliest", "deadline": "60"}
        source = GaplessSource({**given, "columns": "n LONG"})
        reader = source.streamReader(source.schema())
        offset = reader.initialOffset()
        limit = reader.getDefaultReadLimit()
        offset = reader.latestOffset(offset, limit)
        move(overlay, "b1", elsewhere)
        tick = publish(overlay, "b1", "quotes")
        ends: list[dict[str, dict[str, int]]] = []

        def has_come() -> bool:
            ends.append(reader.latestOffset(offset, limit))
            return ends[-1]["positions"]["quotes"] >= tick

        until(has_come, "what was published at the other address")
        rows = [
            row
            for part in reader.partitions(offset, ends[-1])
            for each in reader.read(part)
            for row in each.to_pylist()
        ]
        reader.stop()
        assert [row["tick"] for row in rows] == [tick]


@pytest.mark.usefixtures("impatience")
def test_a_log_whose_broker_moved_to_an_unknown_address_is_read_through_the_others(
    line: SyncOverlay,
) -> None:
    servers = servers_of(line, "b1", "b2")
    with connected(*servers, deadline_s=120.0) as driver:
        assert driver.chosen(("orders",)) == {"orders": (servers[1],)}
        move(line, "b2", free_address())
        tick = publish(line, "b2", "orders")
        until(lambda: driver.extent("orders", "TRUE").top >= tick, "the log is read again")
        assert driver.phb_addresses("orders") == servers
