"""Commands of operators against real brokers: output, changes and refusals."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from gapless.cli.inspection import _tree
from gapless.cli.main import EXIT_NO_BROKER, EXIT_REFUSED, EXIT_WRONG_INPUT, main
from gapless.client.sync import connect_sync
from gapless.core.limits import SHOWN_CURSORS_LISTED_MAX
from gapless.core.parameters import Parameters
from gapless.messages.operating import CellState, RemoveDurable, TopologyReply
from gapless.testing import SyncOverlay
from tests.cli.overlays import Overlay, event, events, gapless, overlay, running, until

Captured = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def brokers() -> Iterator[Overlay]:
    """Three brokers; b1 has the pubend quotes with the events 1, 2, 3."""
    with overlay(topology="line:3") as found:
        ran = gapless("pub", "-p", "quotes", "--url", found.url(), lines=events(1, 2, 3))
        assert ran.returncode == 0, ran.stderr
        yield found


@pytest.fixture
def name(request: pytest.FixtureRequest, brokers: Overlay) -> str:
    """Return a durable subscription at b3, unique to the test, that has acknowledged all three events."""
    made: str = request.node.name
    options = ("--durable", made, "--start", "earliest", "--count", "3", "--url", brokers.url(2))
    assert len(gapless("sub", "n >= 0", *options).stdout.splitlines()) == 3
    return made


def shown(capsys: Captured, *arguments: str) -> Any:
    """Run a command and return its JSON document."""
    assert main([*arguments, "--json"]) == 0, capsys.readouterr().err
    return json.loads(capsys.readouterr().out)


def events_of(name: str, brokers: Overlay, count: int) -> list[int]:
    options = ("--durable", name, "--count", str(count), "--url", brokers.url(2))
    ran = gapless("sub", "n >= 0", *options)
    return [json.loads(line)["attributes"]["n"] for line in ran.stdout.splitlines()]


# --- showing --------------------------------------------------------------------------------------


def test_status_shows_the_broker_and_its_pubends(brokers: Overlay, capsys: Captured) -> None:
    document = shown(capsys, "status", "--url", brokers.url())
    assert (document["broker"], document["cell"]) == ("b1", "c1")
    assert {each["broker"] for each in document["peers"]} == {"b2", "b3"}
    (pubend,) = document["pubends"]
    assert (pubend["pubend"], pubend["quality"]) == ("quotes", "guaranteed")
    assert pubend["hosted"]["log_bytes"] > 0
    assert main(["status", "--url", brokers.url()]) == 0
    text = capsys.readouterr().out
    assert "b1 in the cell c1" in text
    assert "quotes" in text


def test_topo_show_all_shows_the_same_whole_tree_at_every_broker(
    brokers: Overlay, capsys: Captured
) -> None:
    documents = [shown(capsys, "topo", "show", "--all", "--url", brokers.url(n)) for n in range(3)]
    assert documents[0] == documents[1] == documents[2]
    assert documents[0]["silent"] == []
    middle = documents[0]["cells"][1]
    assert (middle["cell"], middle["leader"]) == ("c2", "b2")
    assert (middle["brokers"], middle["neighbours"]) == (["b2"], ["c1", "c3"])
    assert main(["topo", "show", "--all", "--url", brokers.url(2)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.strip("└─ ") for line in lines] == ["c1  b1", "c2  b2", "c3  b3"]


def test_topo_show_draws_the_neighbourhood_of_a_broker(brokers: Overlay, capsys: Captured) -> None:
    document = shown(capsys, "topo", "show", "--url", brokers.url(1))
    assert [each["cell"] for each in document["cells"]] == ["c2", "c1", "c3"]
    assert main(["topo", "show", "--url", brokers.url(0)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].strip() == "c1  b1 (this one)"
    assert [line.strip("└─ ") for line in lines[1:3]] == ["c2  b2", "c3  b3"]


def test_subscriptions_lists_also_those_that_are_not_durable(
    brokers: Overlay, capsys: Captured
) -> None:
    with running("sub", "n = 77", "--url", brokers.url(2)):
        listed = ("subscriptions", "--url", brokers.url(2))

        def is_listed() -> bool:
            return any(each["filter"] == "n = 77" for each in shown(capsys, *listed))

        until(is_listed)
        (found,) = [each for each in shown(capsys, *listed) if each["filter"] == "n = 77"]
        assert (found["durable"], found["order"]) == (False, "publisher")
        assert found["client"]
        assert main([*listed]) == 0
        assert "n = 77" in capsys.readouterr().out
        durable = shown(capsys, "durable", "ls", "--url", brokers.url(2))
        assert all(each["durable"] for each in durable)


def test_a_pending_stream_is_shown_also_for_a_subscription_with_many_streams(
    capsys: Captured,
) -> None:
    with (
        SyncOverlay("line:2") as brokers,
        connect_sync(brokers.url("b1")) as near,
        connect_sync(brokers.url("b2")) as here,
    ):
        with near.publisher("z") as publisher:
            publisher.publish({"n": 0})
        for number in range(SHOWN_CURSORS_LISTED_MAX):
            with here.publisher(f"a{number:02}") as publisher:
                publisher.publish({"n": number})
        with here.subscribe("n >= 0", durable="desk", start="earliest") as events:
            for _ in range(SHOWN_CURSORS_LISTED_MAX + 1):
                events.get()
            assert events.fetch_pending() == {}
            brokers.kill("b1")
            until(lambda: list(events.fetch_pending()) == ["z"])
            reason = events.fetch_pending()["z"]
        assert reason.startswith("there is no route to its broker b1 in cell c1 now")
        assert main(["subscriptions", "--url", brokers.url("b2")]) == 0
        text = " ".join(capsys.readouterr().out.split())
        assert "17 (1 pending)" in text
        assert "unknown" in text, "the head of z is not known here"
        assert "desk waits for z: there is no route to its broker b1" in text
        (listed,) = shown(capsys, "subscriptions", "--url", brokers.url("b2"))
        assert [each["pubend"] for each in listed["cursors"] if each["pending_reason"]] == ["z"]
        assert listed["cursors_omitted"] == 0
        assert main(["durable", "info", "desk", "--url", brokers.url("b2")]) == 0
        assert "pending: there is no route" in " ".join(capsys.readouterr().out.split())


def test_partitions_are_listed(brokers: Overlay, capsys: Captured) -> None:
    assert shown(capsys, "partitions", "--url", brokers.url()) == []
    assert main(["partitions", "--url", brokers.url()]) == 0
    assert "no partitions" in capsys.readouterr().out


def test_a_relayed_session_is_drawn_with_its_relays() -> None:
    cells = (
        CellState("c1", 0, ("b1a", "b1b"), ("b1a", "b1b"), ("c2",)),
        CellState("c2", 1, ("b2a", "b2b"), ("b2a",), ("c1",), (("b2a", ("b1b",)),)),
    )
    drawn = Console(width=100, file=io.StringIO(), record=True)
    drawn.print(_tree(TopologyReply(1, "b1a", "c1", 1, cells), [*cells]))
    assert "c2  b2a (over b1b)  b2b (no session)" in drawn.export_text()


CELLS = """
delta = 1
edges = [["paris", "london"], ["london", "tokyo"]]
[cells]
paris = ["p1", "p2"]
london = ["l1", "l2"]
tokyo = ["t1", "t2"]
"""


def test_cells_of_several_brokers_are_shown_and_a_dead_cell_is_a_partition(
    tmp_path: Path, capsys: Captured
) -> None:
    file = tmp_path / "cells.toml"
    file.write_text(CELLS)
    with overlay("--no-restart", topology=str(file)) as found:
        urls = {each["name"]: each["url"] for each in found.brokers}
        index = {each["name"]: number for number, each in enumerate(found.brokers)}
        topology = ("topo", "show", "--url", urls["p1"])

        def reached() -> dict[str, list[str]]:
            cells = shown(capsys, *topology)["cells"]
            return {each["cell"]: each["reached"] for each in cells}

        all_brokers = {"paris": ["p1", "p2"], "london": ["l1", "l2"], "tokyo": ["t1", "t2"]}
        until(lambda: reached() == all_brokers)
        gapless("pub", "-p", "quotes", "--url", urls["t1"], lines=events(1))
        sub = ("sub", "n >= 0", "--start", "earliest", "--url", urls["p1"])
        with running(*sub) as reader:
            assert reader.line()["attributes"]["n"] == 1
            found.kill(index["l1"])
            until(lambda: reached() == {**all_brokers, "london": ["l2"]})
            assert shown(capsys, "partitions", "--url", urls["p1"]) == [], "one of two is left"
            found.kill(index["l2"])
            until(lambda: reached() == {**all_brokers, "london": []})
            partitions = {
                each["pid"]: each for each in shown(capsys, "partitions", "--url", urls["p1"])
            }
            own = partitions["p1/1"]
            assert (own["detector"], own["counter"], own["cells"]) == ("p1", 1, ["london"])
            assert own["since"] > 0
            gapless("pub", "-p", "quotes", "--url", urls["t1"], lines=events(2))
            assert reader.line()["attributes"]["n"] == 2, (
                "the event came by a bypass of the dead cell"
            )
            states = [shown(capsys, "status", "--url", urls[each]) for each in ("p1", "p2")]
            assert sum(each["feeds_bypassing"] for each in states) == 1, "one feeds the cell"
            assert main(["status", "--url", urls["p1"]]) == 0
            assert "partitions known: see gapless partitions" in capsys.readouterr().out
        assert main(["partitions", "--url", urls["p1"]]) == 0
        assert "p1/1" in capsys.readouterr().out
        assert main([*topology]) == 0
        assert "l1 (no session)  l2 (no session)" in capsys.readouterr().out


def test_a_running_broker_is_not_retired(brokers: Overlay, capsys: Captured) -> None:
    assert main(["retire", "b2", "--cell", "c2", "--url", brokers.url()]) == EXIT_REFUSED
    assert "the broker b2 is alive" in capsys.readouterr().err


def test_an_unknown_broker_is_not_retired(brokers: Overlay, capsys: Captured) -> None:
    assert main(["retire", "b9", "--cell", "c9", "--url", brokers.url()]) == EXIT_REFUSED
    printed = " ".join(capsys.readouterr().err.split())
    assert "no broker b9 in the cell c9 is known here; known are b2 in c2" in printed


def test_a_dead_broker_is_retired(capsys: Captured) -> None:
    with SyncOverlay("line:2", on_disk=False) as brokers:
        brokers.kill("b2")
        retire = ["retire", "b2", "--cell", "c2", "--url", brokers.url("b1"), "--json"]
        until(lambda: main(retire) == 0)
        assert json.loads(capsys.readouterr().out) == {"retired": "b2", "cell": "c2"}


# --- durable subscriptions ------------------------------------------------------------------------


def test_info_shows_the_progress_of_a_subscription(
    brokers: Overlay, name: str, capsys: Captured
) -> None:
    document = shown(capsys, "durable", "info", name, "--url", brokers.url(2))
    assert (document["name"], document["client"], document["filter"]) == (name, None, "n >= 0")
    (cursor,) = document["cursors"]
    assert (cursor["pubend"], cursor["state"]) == ("quotes", "disconnected")
    assert main(["durable", "info", name, "--url", brokers.url(2)]) == 0
    text = capsys.readouterr().out
    assert "disconnected since" in text
    assert "quotes" in text


def test_after_a_seek_the_events_from_there_are_delivered_again(
    brokers: Overlay, name: str, capsys: Captured
) -> None:
    document = shown(capsys, "durable", "seek", name, "earliest", "--url", brokers.url(2))
    assert document.keys() == {"position", "pending"}
    assert document["pending"] == {}
    assert events_of(name, brokers, 3) == [1, 2, 3]
    (cursor,) = shown(capsys, "durable", "info", name, "--url", brokers.url(2))["cursors"]
    before_last = f"quotes:{cursor['acked'] - 1}"
    assert main(["durable", "seek", name, before_last, "--url", brokers.url(2)]) == 0
    assert capsys.readouterr().out == f"{name} continues after {before_last}\n"


def test_a_connected_subscription_is_moved_by_seek_only_with_force(
    brokers: Overlay, name: str, capsys: Captured
) -> None:
    sub = ("sub", "n >= 0", "--durable", name, "--url", brokers.url(2))
    seek = ["durable", "seek", name, "earliest", "--url", brokers.url(2)]
    info = ("durable", "info", name, "--url", brokers.url(2))
    with running(*sub) as reader:
        until(lambda: shown(capsys, *info)["client"] is not None)
        assert main(seek) == EXIT_REFUSED
        assert "is connected" in capsys.readouterr().err
        assert main([*seek, "--force"]) == 0
        assert reader.wait() == EXIT_REFUSED
        assert "an operator moved the subscription" in "".join(reader.errors)
    assert events_of(name, brokers, 3) == [1, 2, 3]


def test_a_filter_set_by_an_operator_applies_to_a_connected_subscription(
    brokers: Overlay, name: str, capsys: Captured
) -> None:
    info = ("durable", "info", name, "--url", brokers.url(2))
    publish = ("pub", "-p", "quotes", "--url", brokers.url())
    sub = ("sub", "n >= 40 AND n < 50", "--durable", name, "--url", brokers.url(2))
    with running(*sub) as reader:
        until(lambda: shown(capsys, *info)["client"] is not None)
        gapless(*publish, lines=event(41))
        assert reader.line()["attributes"]["n"] == 41
        changed = shown(capsys, "durable", "set-filter", name, "n = 52", "--url", brokers.url(2))
        gapless(*publish, lines=event(42) + event(52))
        found = reader.line()
        assert found["attributes"]["n"] == 52
        assert changed["position"]["quotes"] < found["tick"]
        assert shown(capsys, *info)["filter"] == "n = 52"


def test_a_removed_subscription_no_longer_exists(
    brokers: Overlay, name: str, capsys: Captured
) -> None:
    remove = ("durable", "rm", name, "--url", brokers.url(2))
    assert shown(capsys, *remove) == {"removed": name}
    assert main([*remove]) == EXIT_REFUSED
    assert f"there is no subscription {name!r}" in capsys.readouterr().err
    assert main(["durable", "info", name, "--url", brokers.url(2)]) == EXIT_REFUSED


def test_invalid_positions_and_filters_are_refused(
    brokers: Overlay, name: str, capsys: Captured
) -> None:
    to = ("--url", brokers.url(2))
    assert main(["durable", "seek", name, "nowhere", *to]) == EXIT_WRONG_INPUT
    assert "'nowhere' is not a start position" in capsys.readouterr().err
    assert main(["durable", "seek", name, "2999-01-01", *to]) == EXIT_REFUSED
    assert "is in the future" in capsys.readouterr().err
    assert main(["durable", "set-filter", name, "n >", *to]) == EXIT_WRONG_INPUT
    assert "column 4" in capsys.readouterr().err
    assert main(["--debug", "durable", "set-filter", name, "n >", *to]) == EXIT_WRONG_INPUT
    assert "Traceback" in capsys.readouterr().err


# --- looking without taking -----------------------------------------------------------------------


@pytest.fixture
def own(request: pytest.FixtureRequest, brokers: Overlay) -> Iterator[str]:
    """Return a durable subscription at b3 to a pubend that no other test uses."""
    made: str = request.node.name
    with connect_sync(brokers.url(2)) as session:
        with session.subscribe(f"k = '{made}' AND m >= 0", durable=made, start="earliest"):
            pass
        yield made
        session.request(RemoveDurable(0, made, force=True))


def publish_own(brokers: Overlay, own: str, *numbers: int) -> None:
    """Publish events that only the subscription of this test matches."""
    with connect_sync(brokers.url()) as session, session.publisher("own") as publisher:
        publisher.publish_many({"k": own, "m": m} for m in numbers)


def peeked(capsys: Captured, *arguments: str) -> list[int]:
    assert main(["durable", "peek", *arguments]) == 0, capsys.readouterr().err
    lines = capsys.readouterr().out.splitlines()
    return [json.loads(line)["attributes"]["m"] for line in lines]


def test_peek_shows_the_next_events_and_acknowledges_nothing(
    brokers: Overlay, own: str, capsys: Captured
) -> None:
    url = brokers.url(2)
    with connect_sync(url) as session, session.subscribe(durable=own) as consumer:
        publish_own(brokers, own, 10, 11, -1, 12)
        for _ in range(2):
            assert peeked(capsys, own, "--url", url) == [10, 11, 12]
        assert peeked(capsys, own, "--count", "1", "--url", url) == [10]
        assert [consumer.get().attributes["m"] for _ in range(3)] == [10, 11, 12]
    assert peeked(capsys, own, "--url", url) == []


def test_peek_uses_the_filter_that_applies_at_each_tick(
    brokers: Overlay, own: str, capsys: Captured
) -> None:
    url = brokers.url(2)
    with connect_sync(url) as session, session.subscribe(durable=own, ack="manual") as consumer:
        publish_own(brokers, own, 20, -20)
        consumer.get()
        consumer.set_filter(f"k = '{own}' AND m < 0")
        publish_own(brokers, own, 21, -21)
        assert consumer.get().attributes["m"] == -21
    assert peeked(capsys, own, "--url", url) == [20, -21]


def test_peek_of_a_name_that_does_not_exist_is_refused(brokers: Overlay, capsys: Captured) -> None:
    assert main(["durable", "peek", "nowhere", "--url", brokers.url()]) == EXIT_REFUSED
    assert "nowhere" in capsys.readouterr().err


def test_sub_keeps_the_filter_and_takes_a_subscription_over_only_on_request(
    brokers: Overlay, own: str
) -> None:
    url, options = brokers.url(2), ("--durable", own, "--count", "1")
    with connect_sync(url, name="consumer") as session, session.subscribe(durable=own) as consumer:
        ran = gapless("sub", *options, "--url", url)
        assert ran.returncode == EXIT_REFUSED
        assert "in use by the client consumer" in ran.stderr
        assert "--take-over" in ran.stderr
        publish_own(brokers, own, -30, 30)
        assert consumer.get().attributes["m"] == 30
        assert str(consumer.filter) == f"k = '{own}' AND m >= 0"
        ran = gapless("sub", *options, "--take-over", "--url", url)
        assert ran.returncode == 0, ran.stderr
        assert json.loads(ran.stdout)["attributes"]["m"] == 30, "it was not acknowledged"


def test_sub_of_a_durable_name_that_does_not_exist_asks_for_a_filter(brokers: Overlay) -> None:
    ran = gapless("sub", "--durable", "nowhere", "--url", brokers.url(2))
    assert ran.returncode == EXIT_WRONG_INPUT
    assert "give a filter to create it" in ran.stderr


def test_a_filter_with_a_name_where_a_string_was_meant_is_warned_of(
    brokers: Overlay, name: str, capsys: Captured
) -> None:
    url = ("--url", brokers.url(2))
    warning = "warning: symbol = IBM compares two attributes; write 'IBM' if IBM is a string\n"
    assert main(["explain", "symbol = IBM"]) == 0
    assert capsys.readouterr().err == warning
    assert main(["durable", "set-filter", name, "symbol = IBM", *url]) == 0
    assert capsys.readouterr().err == warning
    assert main(["log", "read", "quotes", "symbol = IBM", *url]) == 0
    assert capsys.readouterr().err == warning


# --- the whole overlay ----------------------------------------------------------------------------


def test_commands_find_a_durable_subscription_at_another_broker(
    brokers: Overlay, name: str, capsys: Captured
) -> None:
    # MV-15: it is hosted by b3, and the commands ask b1
    at_b1 = ("--url", brokers.url(0))
    assert shown(capsys, "durable", "info", name, *at_b1)["name"] == name
    assert "quotes" in shown(capsys, "durable", "seek", name, "earliest", *at_b1)["position"]
    shown(capsys, "durable", "set-filter", name, "n >= 2", *at_b1)
    assert shown(capsys, "durable", "info", name, *at_b1)["filter"] == "n >= 2"
    # the change has its tick above these events, so the former filter applies to them (R47)
    ran = gapless("sub", "n >= 2", "--durable", name, "--count", "3", *at_b1)
    assert [json.loads(line)["attributes"]["n"] for line in ran.stdout.splitlines()] == [1, 2, 3]
    assert shown(capsys, "durable", "rm", name, *at_b1) == {"removed": name}
    assert name not in {each["name"] for each in all_of(capsys, brokers)}


def all_of(capsys: Captured, brokers: Overlay) -> list[dict[str, Any]]:
    """Return the durable subscriptions of the whole overlay."""
    listed = shown(capsys, "durable", "ls", "--all", "--url", brokers.url())
    assert listed["silent"] == []
    found: list[dict[str, Any]] = listed["subscriptions"]
    return found


def test_ls_all_lists_the_durable_subscriptions_of_every_broker(
    brokers: Overlay, name: str, capsys: Captured
) -> None:
    options = ("TRUE", "--durable", f"{name}-b1", "--start", "earliest", "--count", "3")
    assert gapless("sub", *options, "--url", brokers.url()).returncode == 0
    listed = {each["name"]: each["host"]["broker"] for each in all_of(capsys, brokers)}
    assert (listed[name], listed[f"{name}-b1"]) == ("b3", "b1")
    assert main(["durable", "ls", "--all", "--url", brokers.url(1)]) == 0
    assert name in capsys.readouterr().out
    some = shown(capsys, "durable", "ls", "--all", f"{name}-b?", "--url", brokers.url())
    assert [each["name"] for each in some["subscriptions"]] == [f"{name}-b1"]
    first = shown(
        capsys, "durable", "ls", "--all", f"{name}*", "--limit", "1", "--url", brokers.url()
    )
    assert [each["name"] for each in first["subscriptions"]] == [name]


def test_two_subscriptions_of_one_name_are_reported_and_one_is_removed(capsys: Captured) -> None:
    # they were created while their brokers did not answer each other
    parameters = Parameters(find_timeout_ms=200, session_timeout_ms=1_100)
    with SyncOverlay("line:2", parameters=parameters) as made:
        urls = {broker: made.url(broker) for broker in ("b1", "b2")}
        for broker, other in (("b1", "b2"), ("b2", "b1")):
            made.kill(other)
            with (
                connect_sync(urls[broker]) as session,
                session.subscribe("", durable="desk", create=True) as subscription,
            ):
                assert subscription.is_new
            made.restart(other)
        url = urls["b1"]
        while len(shown(capsys, "durable", "ls", "--all", "--url", url)["subscriptions"]) < 2:
            pass  # the brokers have just started
        assert main(["durable", "ls", "--all", "--url", url]) == 0
        warned = "desk is the name of 2 subscriptions, at b1, b2"
        assert warned in capsys.readouterr().err
        overlay = shown(capsys, "doctor", "--url", url)["overlay"]
        assert overlay["duplicates"] == {"desk": ["b1", "b2"]}
        assert main(["doctor", "--url", url]) == 0
        assert "2 subscriptions" in capsys.readouterr().out
        assert main(["durable", "rm", "desk", "--url", url]) == EXIT_REFUSED
        assert "2 subscriptions, at b1, b2" in capsys.readouterr().err
        assert main(["durable", "rm", "desk", "--at", "b3", "--url", url]) == EXIT_REFUSED
        assert "it is at b1, b2" in capsys.readouterr().err
        assert main(["durable", "rm", "desk", "--at", "b2", "--url", url]) == 0
        capsys.readouterr()
        left = shown(capsys, "durable", "ls", "--all", "--url", url)["subscriptions"]
        assert [each["host"]["broker"] for each in left] == ["b1"]


# --- closing pubends --------------------------------------------------------------------------------


@pytest.fixture
def closable() -> Iterator[SyncOverlay]:
    """Two brokers that keep nothing for replay; b1 has the pubend orders with an event."""
    quick = Parameters(retention_s=0, ack_ms=50, ack_report_ttl_ms=200)
    with SyncOverlay("line:2", on_disk=False, parameters=quick) as overlay:
        with connect_sync(overlay.url("b1")) as session, session.publisher("orders") as publisher:
            publisher.publish({"n": 1})
        yield overlay


def test_a_pubend_is_closed_through_another_broker_and_listed(
    closable: SyncOverlay, capsys: Captured
) -> None:
    url = closable.url("b2")
    found = shown(capsys, "pubend", "ls", "ord*", "--url", closable.url("b1"))
    assert [(each["pubend"], each["state"]) for each in found["pubends"]] == [("orders", "open")]
    closed = shown(capsys, "pubend", "close", "orders", "--url", url)
    assert (closed["pubend"], closed["state"], closed["waits_for"]) == ("orders", "closed", [])
    (listed,) = shown(capsys, "pubend", "ls", "--url", closable.url("b1"))["pubends"]
    assert (listed["state"], listed["last"]) == ("closed", closed["last"])
    assert main(["pubend", "close", "orders", "--url", url]) == 0
    assert capsys.readouterr().out == "orders is closed\n"


def test_closing_shows_whom_it_waits_for_until_its_deadline(
    closable: SyncOverlay, capsys: Captured
) -> None:
    url = closable.url("b1")
    with (
        connect_sync(url) as session,
        # who has acknowledged the last event needs nothing more, and the pubend waits no longer
        session.subscribe("TRUE", durable="desk", ack="manual") as events,
    ):
        with session.publisher("orders") as publisher:
            publisher.publish({"n": 2})
        events.get()
    arguments = ["pubend", "close", "orders", "--url", url]
    assert main([*arguments, "--deadline", "2"]) == EXIT_NO_BROKER
    shown_error = capsys.readouterr().err
    assert "orders is sealed; it waits for the broker b1 for durable subscriptions" in shown_error
    assert main([*arguments, "--no-wait"]) == 0
    assert "orders is sealed" in capsys.readouterr().out
    assert main(["pubend", "ls", "--limit", "1", "--url", url]) == 0
    assert "sealed" in capsys.readouterr().out
    assert main(["pubend", "close", "nothing", "--url", url]) == EXIT_REFUSED
    assert "there is no pubend nothing" in capsys.readouterr().err
