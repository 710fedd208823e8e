"""Metrics, health and log lines of a broker."""

from __future__ import annotations

import asyncio
import json
import logging

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from gapless.core.parameters import Parameters
from gapless.core.version import PROTOCOL_VERSIONS, VERSION
from gapless.runtime import Address, Health, LogFormat, Node
from gapless.runtime.logs import JsonLines, StructuredLog, TextLines, set_up_logs
from tests.runtime.nodes import LOOPS, run, until, world
from tests.runtime.raw_client import DEADLINE_S, RawClient


async def get(node: Node, path: str, method: str = "GET") -> tuple[str, bytes]:
    """Return the first line and the body of a response."""
    assert node.metrics_address is not None
    reader, writer = await asyncio.open_connection(*node.metrics_address)
    writer.write(f"{method} {path} HTTP/1.1\r\nHost: here\r\n\r\n".encode())
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    head, _, body = answer.partition(b"\r\n\r\n")
    return head.split(b"\r\n")[0].decode(), body


async def samples(node: Node) -> dict[str, float]:
    _, body = await get(node, "/metrics")
    return {
        sample.name + ",".join(f" {key}={value}" for key, value in sorted(sample.labels.items())):
        sample.value
        for family in text_string_to_metric_families(body.decode())
        for sample in family.samples
    }  # fmt: skip


@pytest.mark.parametrize("loop", LOOPS)
def test_metrics_count_events_and_connections(loop: str) -> None:
    async def scenario() -> None:
        async with world("line:1") as brokers:
            node = brokers["b1"]
            await node.stop()
            node = await brokers.start("b1", metrics=Address(), restarts=3)
            async with RawClient(node.url) as client:
                opened = await client.open("trades")
                await client.subscribe("all", "n > 5")
                await client.publish("trades", opened.session, 1, count=10)
                await client.events(5)
                found = await samples(node)
            assert found["gapless_events_published_total"] == 10
            assert found["gapless_events_delivered_total"] == 5
            assert found["gapless_clients"] == 1
            assert found["gapless_pubends"] == 1
            assert found["gapless_subscriptions"] == 1
            assert found["gapless_restarts"] == 3
            protocol = PROTOCOL_VERSIONS[-1]
            assert found[f"gapless_build_info protocols={protocol}, version={VERSION}"] == 1
            assert found["process_resident_memory_bytes"] > 0
            assert found["process_open_fds"] > 0
            assert found["process_cpu_seconds_total"] > 0
            assert found["gapless_links_open"] == found["gapless_links_expected"] == 0
            assert found["gapless_frames_total connection=client, direction=in"] >= 4
            assert found["gapless_bytes_total connection=client, direction=out"] > 100
            assert found["gapless_step_seconds_count"] > 5
            assert 0 < found["gapless_step_max_recent_seconds"] <= found["gapless_step_max_seconds"]
            assert found["gapless_reshape_operation_seconds_count"] == 0
            assert found["gapless_reshape_pause_seconds_count"] == 0
            assert found["gapless_reshape_streams_paused"] == 0
            assert found["gapless_reshape_publications_delayed_total"] == 0
            assert 0 < found["gapless_commits_total"] <= found["gapless_writes_total"]
            assert found["gapless_log_bytes pubend=trades"] > 100
            assert found["gapless_log_last_tick pubend=trades"] > 0

    run(scenario(), loop)


def test_metrics_count_partitions_and_bypasses() -> None:
    names = (
        "partitions",
        "cells_unreachable",
        "feeds_bypassing",
        "sessions_relayed",
        "feeds_relayed",
    )

    async def values(node: Node) -> list[float]:
        found = await samples(node)
        return [found[f"gapless_{name}"] for name in names]

    # a feed that started as a bypass of b2, because b2 was not ready, returns soon
    parameters = Parameters(attach_refresh_ms=100, feed_switch_delay_ms=50)

    async def scenario() -> None:
        async with world("line:3", parameters=parameters) as brokers:
            await brokers["b3"].stop()
            node = await brokers.start("b3", metrics=Address())
            async with RawClient(brokers["b1"].url) as near, RawClient(node.url) as far:
                await near.open("trades")
                await brokers.knows("b3", "trades")
                await far.subscribe("all", "TRUE")
                while await values(node) != [0, 0, 0, 0, 0]:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
                await brokers["b2"].kill()
                # b1 reports b2 too; and b2 may have reported b1 before its end
                while await values(node) not in ([2, 1, 1, 0, 0], [3, 1, 1, 0, 0]):  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
                found = await samples(node)
                assert (found["gapless_peers_connected"], found["gapless_peers_expected"]) == (1, 2)
                assert found["gapless_streams_cut_off"] == 0
                for direction in ("in", "out"):
                    assert (
                        found[f"gapless_messages_total direction={direction}, kind=Heartbeat"] > 0
                    )
                await brokers["b1"].kill()
                while (await samples(node))["gapless_streams_cut_off"] != 1:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)

    async def bounded() -> None:
        async with asyncio.timeout(DEADLINE_S):
            await scenario()

    run(bounded())


def test_health_names_the_broker_its_links_and_missing_links() -> None:
    async def scenario() -> None:
        async with world("line:3") as brokers:
            await brokers["b2"].stop()
            node = await brokers.start("b2", metrics=Address())
            await brokers["b3"].stop()
            await until(lambda: node.links.open_peers == ["b1"])
            status, body = await get(node, "/healthz")
            health = msgspec.json.decode(body, type=Health)
            assert status == "HTTP/1.1 200 OK"
            assert (health.broker, health.cell, health.status) == ("b2", "c2", "ok")
            assert health.incarnation == node.broker.context.identity.incarnation
            assert (health.links, health.links_missing) == (["b1"], ["b3"])
            assert health.url == node.url

    run(scenario())


def test_an_invalid_http_request_gets_an_error_response() -> None:
    async def scenario() -> None:
        async with world("line:1") as brokers:
            await brokers["b1"].stop()
            node = await brokers.start("b1", metrics=Address())
            assert (await get(node, "/"))[0] == "HTTP/1.1 404 Not Found"
            assert (await get(node, "/metrics", "POST"))[0] == "HTTP/1.1 405 Method Not Allowed"
            assert (await get(node, "/healthz", "HEAD")) == ("HTTP/1.1 200 OK", b"")
            assert (await get(node, "a b c"))[0] == "HTTP/1.1 400 Bad Request"
            assert (await get(node, "/" + "x" * 9_000))[0].startswith("HTTP/1.1 4")
            assert (await get(node, "/healthz?verbose"))[0] == "HTTP/1.1 200 OK"

    run(scenario())


def record(message: str, **fields: object) -> logging.LogRecord:
    made = logging.makeLogRecord({"msg": message, "levelname": "INFO", "created": 0, "msecs": 7})
    made.gapless_fields = fields
    return made


def test_a_line_of_json_has_its_fields() -> None:
    line = json.loads(JsonLines().format(record("link is up", peer="b2", count=3)))
    assert line == {
        "time": "1970-01-01T00:00:00.007Z",
        "level": "info",
        "message": "link is up",
        "peer": "b2",
        "count": 3,
    }


def test_a_line_of_text_quotes_ambiguous_values() -> None:
    line = TextLines().format(record("link is down", peer="b2", reason='a "b"\nc'))
    assert line.endswith(r'link is down                     peer=b2 reason="a \"b\"\nc"')
    assert "\n" not in line


@pytest.mark.parametrize("formatter", [TextLines(), JsonLines()])
def test_control_characters_never_reach_the_log(formatter: logging.Formatter) -> None:
    evil = "b2\x1b[2J\x9b31m\u202e\nb3 is ready"
    each = record(f"cannot reach {evil}", peer=evil)
    each.exc_info = (ValueError, ValueError(evil), None)
    line = formatter.format(each)
    assert not {"\x1b", "\x9b", "\u202e"} & set(line)
    assert "b3 is ready" not in [part.strip() for part in line.split("ValueError")[0].splitlines()]


@pytest.mark.parametrize("shape", LogFormat)
def test_logs_go_to_standard_error(shape: LogFormat, capsys: pytest.CaptureFixture[str]) -> None:
    log = logging.getLogger("gapless")
    try:
        set_up_logs("warning", shape)
        StructuredLog(broker="b1").info("not this")
        StructuredLog(broker="b1").warning("but this", peer="b2")
    finally:
        log.handlers.clear()
        log.setLevel(logging.NOTSET)
        log.propagate = True
    found = capsys.readouterr()
    assert not found.out
    assert "but this" in found.err
    assert "b2" in found.err
    assert "not this" not in found.err


def test_metrics_show_the_lag_of_durable_subscriptions_also_over_another_broker() -> None:
    async def scenario() -> None:
        async with world("line:2") as brokers:
            await brokers["b2"].stop()
            node = await brokers.start("b2", metrics=Address())
            async with RawClient(brokers["b1"].url) as feed:
                opened = await feed.open("trades")
                async with RawClient(node.url) as client:
                    await client.subscribe("desk", "n > 5", durable=True)
                    await feed.publish("trades", opened.session, 1, count=10)
                    await client.events(5)
                    found = await samples(node)
                lags = {name: value for name, value in found.items() if "_lag_" in name}
            labels = " pubend=trades, subscription=desk"
            # the five events before the first that matches are no lag
            assert lags.pop(f"gapless_subscription_lag_events{labels}") == 5
            assert lags.pop(f"gapless_subscription_lag_seconds{labels}") > 0
            assert lags.pop("gapless_lag_seconds_max") > 0
            assert lags == {"gapless_lag_events_max": 5, "gapless_subscriptions_lag_unknown": 0}
            assert found["gapless_subscriptions_behind"] == found["gapless_durable_subscriptions"]

    run(scenario())
