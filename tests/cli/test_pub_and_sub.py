"""``gapless pub`` and ``gapless sub`` against real brokers, and their errors."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import os
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar

import pytest

from gapless.cli import sub as subscribing
from gapless.cli.main import EXIT_FOUND, EXIT_NO_BROKER, EXIT_REFUSED, EXIT_WRONG_INPUT, main
from gapless.cli.pub import read_line
from gapless.cli.sub import _copy, _report_pending, _Writer
from gapless.client import connect_sync
from gapless.core.errors import ConnectionLostError, UsageError
from gapless.core.parameters import Parameters
from gapless.testing import SyncOverlay
from tests.cli.overlays import (
    DEADLINE_S,
    GAPLESS,
    Overlay,
    environment,
    event,
    events,
    gapless,
    overlay,
    running,
    until,
)

Captured = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def brokers() -> Iterator[Overlay]:
    with overlay(topology="line:2") as found:
        yield found


@pytest.fixture
def pubend(request: pytest.FixtureRequest) -> str:
    """Return a pubend that no other test uses."""
    name: str = request.node.name
    return name.removeprefix("test_")[:60]


def pub(brokers: Overlay, pubend: str, source: Path | str, *options: str) -> int:
    return main(["pub", str(source), "-p", pubend, "--url", brokers.url(), *options])


def sub(brokers: Overlay, *options: str) -> int:
    return main(["sub", *options, "--url", brokers.url()])


def read(captured: Captured) -> list[Any]:
    return [json.loads(line) for line in captured.readouterr().out.splitlines()]


def lines_in(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


# --- publishing -----------------------------------------------------------------------------------


def test_a_file_is_published_and_printed_with_all_fields(
    brokers: Overlay, pubend: str, tmp_path: Path, capsys: Captured
) -> None:
    source = tmp_path / "events"
    binary = base64.b64encode(b"\xff\x00").decode()
    lines: list[dict[str, Any]] = [
        {"attributes": {"k": pubend, "n": 1, "x": 1.5, "is": True}, "payload": "héllo"},
        {"attributes": {"k": pubend}, "payload_base64": binary},
        {"attributes": {"k": pubend, "last": True}},
    ]
    source.write_text("\n".join(map(json.dumps, lines)))  # the last line has no end
    assert pub(brokers, pubend, source, "--publisher", "ann", "--json") == 0
    (summary,) = [json.loads(capsys.readouterr().out)]
    assert summary["published"] == 3
    assert summary["publisher"] == "ann"
    assert sub(brokers, f"k = '{pubend}'", "--start", "earliest", "--count", "3") == 0
    first, second, third = read(capsys)
    assert first.keys() == {"attributes", "payload", "pubend", "tick", "publisher", "sequence"}
    assert first["attributes"] == lines[0]["attributes"]
    assert (first["payload"], first["publisher"], first["sequence"]) == ("héllo", "ann", 1)
    assert "payload" not in second
    assert second["payload_base64"] == binary
    assert third["payload"] == ""
    assert summary["position"] == {pubend: third["tick"]}


def test_printed_lines_can_be_published_again(
    brokers: Overlay, pubend: str, tmp_path: Path, capsys: Captured
) -> None:
    pub(brokers, pubend, lines_in(tmp_path / "in", event(7, "x")))
    capsys.readouterr()
    sub(brokers, "n = 7", "--start", "earliest", "--count", "1")
    again = lines_in(tmp_path / "again", capsys.readouterr().out)
    assert pub(brokers, f"{pubend} again", again) == 0
    assert capsys.readouterr().out.startswith("1 event published, up to ")


def test_the_events_before_a_refused_one_are_counted_and_its_line_is_named(
    brokers: Overlay, pubend: str, tmp_path: Path, capsys: Captured
) -> None:
    large = '{"attributes": {"n": 2}, "payload": "' + "x" * 2_000_000 + '"}\n'
    source = lines_in(tmp_path / "events", event(1) + "\n" + large + event(3))
    assert pub(brokers, pubend, source) == EXIT_WRONG_INPUT
    captured = capsys.readouterr()
    assert "1 event published" in captured.err
    assert "does not fit into a frame" in captured.err
    assert "is line 3)" in captured.err
    assert main(["log", "read", pubend, "--url", brokers.url()]) == 0
    assert [each["attributes"]["n"] for each in read(capsys)] == [1]


def test_the_lines_before_an_invalid_one_are_published_and_reported(
    brokers: Overlay, pubend: str, tmp_path: Path, capsys: Captured
) -> None:
    source = lines_in(
        tmp_path / "events", event(1) + "\n" + event(2) + '{"attributes": {}, "n": 3}\n' + event(4)
    )
    assert pub(brokers, pubend, source) == EXIT_WRONG_INPUT
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "2 events published, up to " in captured.err
    assert "error: line 4 is no event: " in captured.err
    assert "`n`" in captured.err
    assert "Traceback" not in captured.err
    assert main(["log", "read", pubend, "--url", brokers.url()]) == 0
    assert [each["attributes"]["n"] for each in read(capsys)] == [1, 2]


@pytest.mark.parametrize(
    ("line", "event"),
    [
        (b'{"symbol": "IBM", "price": 91}', ({"symbol": "IBM", "price": 91}, b"")),
        (b'{"attributes": {"price": 91}, "payload": "x"}', ({"price": 91}, b"x")),
        (b'{"payload": "x"}', ({}, b"x")),
        (b'{"tick": 7, "publisher": "ann"}', ({"tick": 7, "publisher": "ann"}, b"")),
        (b'{"symbol": "IBM", "price": null}', ({"symbol": "IBM", "price": None}, b"")),
        (b"{}", ({}, b"")),
    ],
)
def test_a_line_is_an_event_or_an_object_of_attributes(line: bytes, event: object) -> None:
    assert read_line(line, 1) == event


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b"nonsense", "JSON is malformed"),
        (b"[1]", "Expected `object`"),
        (b'{"attributes": {"a": [1]}}', "attribute 'a' is a list"),
        (b'{"symbol": "IBM", "legs": {"a": 1}}', "attribute 'legs' is a dict"),
        (b'{"attributes": {"a": 99999999999999999999}}', "attribute 'a' is about 2**66"),
        (b'{"attributes": {}, "paylod": "x"}', "unknown field `paylod`"),
        (b'{"attributes": {}, "payload": 1}', "at `$.payload`"),
        (b'{"attributes": {}, "payload_base64": "?"}', "not base64"),
        (b'{"attributes": {"a": "\xff"}}', "UTF-8"),
    ],
)
def test_an_invalid_line_is_refused_with_the_problem(line: bytes, problem: str) -> None:
    with pytest.raises(UsageError, match="line 1,234 is no event") as raised:
        read_line(line, 1_234)
    assert problem.lower() in str(raised.value).lower()


def test_lines_of_the_standard_input_are_published_one_by_one(
    brokers: Overlay, pubend: str
) -> None:
    reader_options = ("sub", f"k = '{pubend}'", "--start", "earliest", "--url", brokers.url())
    with (
        running("pub", "-p", pubend, "--url", brokers.url()) as writer,
        running(*reader_options) as reader,
    ):
        assert writer.process.stdin is not None
        for number in range(3):
            line = json.dumps({"attributes": {"k": pubend, "n": number}})
            writer.process.stdin.write(line + "\n")
            writer.process.stdin.flush()
            assert reader.line()["attributes"]["n"] == number, "before the next is written"
        writer.process.stdin.close()
        assert writer.process.wait(timeout=DEADLINE_S) == 0


def test_an_interrupted_publisher_prints_its_progress(brokers: Overlay, pubend: str) -> None:
    with running("pub", "-p", pubend, "--url", brokers.url()) as writer:
        assert writer.process.stdin is not None
        writer.process.stdin.write(events(1, 2))
        writer.process.stdin.flush()
        read_back = ("log", "read", pubend, "--url", brokers.url())
        until(lambda: len(gapless(*read_back).stdout.splitlines()) == 2)
        writer.interrupt()
        assert writer.wait() == 130
        output = "".join(writer.errors)
        assert "2 events published" in output
        assert "Traceback" not in output


def test_events_that_are_not_advertised_are_refused_by_line(
    brokers: Overlay, pubend: str, tmp_path: Path, capsys: Captured
) -> None:
    source = lines_in(tmp_path / "events", events(1, 2, 30))
    assert pub(brokers, pubend, source, "--advertise", "n < 10") == EXIT_WRONG_INPUT
    output = capsys.readouterr().err
    assert "2 events published" in output
    assert "line 3 does not match --advertise" in output


def test_a_pubend_of_another_broker_is_refused_with_its_phb(
    brokers: Overlay, pubend: str, tmp_path: Path, capsys: Captured
) -> None:
    source = lines_in(tmp_path / "events", event(1))
    assert pub(brokers, pubend, source) == 0
    elsewhere = ["pub", str(source), "-p", pubend, "--url", brokers.url(1)]
    deadline = ["sub", f"n = 1 AND '{pubend}' <> ''", "--start", "earliest", "--count", "1"]
    main([*deadline, "--url", brokers.url(1)])  # now the broker knows the pubend
    capsys.readouterr()
    assert main(elsewhere) == EXIT_REFUSED
    assert "is at the broker b1" in capsys.readouterr().err


def test_best_effort_and_a_rate_are_options(
    brokers: Overlay, pubend: str, tmp_path: Path, capsys: Captured
) -> None:
    source = lines_in(tmp_path / "events", events(1, 2, 3))
    assert pub(brokers, pubend, source, "--best-effort", "--rate", "1000") == 0
    assert capsys.readouterr().out == "3 events published\n"


def test_a_missing_file_is_an_error(brokers: Overlay, pubend: str, capsys: Captured) -> None:
    assert pub(brokers, pubend, "/nonexistent/file") == EXIT_WRONG_INPUT
    assert "/nonexistent/file cannot be read" in capsys.readouterr().err


# --- subscribing ----------------------------------------------------------------------------------


def test_a_durable_subscription_continues_after_the_printed_events(
    brokers: Overlay, pubend: str, tmp_path: Path, capsys: Captured
) -> None:
    lines = "".join(
        json.dumps({"attributes": {"k": pubend, "n": number}}) + "\n" for number in range(5)
    )
    pub(brokers, pubend, lines_in(tmp_path / "events", lines))
    capsys.readouterr()
    options = (f"k = '{pubend}'", "--durable", pubend, "--start", "earliest", "--order", "total")
    found, notes = [], []
    for count in ("2", "1", "2"):
        assert sub(brokers, *options, "--count", count) == 0
        printed = capsys.readouterr()
        found.append([json.loads(each)["attributes"]["n"] for each in printed.out.splitlines()])
        notes.append(printed.err)
    assert found == [[0, 1], [2], [3, 4]]
    assert notes == [f"{pubend} is a new subscription, at the broker b1\n", "", ""]


def test_a_subscription_starts_at_a_position_or_a_time(
    brokers: Overlay, pubend: str, tmp_path: Path, capsys: Captured
) -> None:
    pub(brokers, pubend, lines_in(tmp_path / "events", events(91, 92)))
    capsys.readouterr()
    wanted = "n > 90 AND n < 93"
    recently = datetime.now(UTC) - timedelta(minutes=1)
    assert sub(brokers, wanted, "--start", recently.isoformat(), "--count", "2") == 0
    first, second = read(capsys)
    assert [first["attributes"]["n"], second["attributes"]["n"]] == [91, 92]
    sub(brokers, wanted, "--start", f"{pubend}:{first['tick']}", "--count", "1")
    assert [each["tick"] for each in read(capsys)] == [second["tick"]]
    sub(brokers, wanted, "--start", json.dumps({pubend: first["tick"]}), "--count", "1")
    assert [each["tick"] for each in read(capsys)] == [second["tick"]]


def test_a_gap_is_printed_as_a_line(capsys: Captured) -> None:
    with SyncOverlay(parameters=Parameters(retention_s=0, ack_ms=50)) as overlay:

        def released() -> int:
            capsys.readouterr()
            main(["status", "--json", "--url", overlay.url()])
            (pubend,) = json.loads(capsys.readouterr().out)["pubends"]
            found: int = pubend["hosted"]["released"]
            return found

        with (
            connect_sync(overlay.url()) as session,
            session.publisher("quotes") as publisher,
        ):
            gone = publisher.publish({"n": 1})["quotes"]
            until(lambda: released() >= gone)
            with session.subscribe("n = 2", durable="keeper"):
                pass  # it keeps the events from now on
            publisher.publish({"n": 2})
        options = ("--start", "2020-01-01", "--count", "1", "--url", overlay.url())
        assert main(["sub", "n > 0", *options]) == EXIT_FOUND
    captured = capsys.readouterr()
    gap, event = (json.loads(each) for each in captured.out.splitlines())
    assert gap["gap"]["pubend"] == "quotes"
    assert gone <= gap["gap"]["high"] < event["tick"]  # silence after it may be released too
    assert event["attributes"] == {"n": 2}
    assert "the log of quotes no longer has the ticks from" in captured.err


@pytest.mark.parametrize(
    ("options", "output"),
    [
        (["n >"], "column 4"),
        (["TRUE", "--start", "yesterday"], "'yesterday' is not a start position"),
        (["TRUE", "--order", "random"], "random"),
        (["TRUE", "--count", "0"], "--count"),
        (["TRUE", "--durable", ""], "durable has 1 to 256 characters, not 0"),
    ],
)
def test_an_invalid_subscription_is_an_error(
    brokers: Overlay, options: list[str], output: str, capsys: Captured
) -> None:
    assert sub(brokers, *options) == EXIT_WRONG_INPUT
    captured = capsys.readouterr()
    assert captured.out == ""
    assert output in captured.err
    assert "Traceback" not in captured.err


def test_a_filter_that_is_read_as_an_option_gets_a_hint(capsys: Captured) -> None:
    assert main(["sub", "-n > 1"]) == EXIT_WRONG_INPUT
    assert "gapless sub -- '-n > 1'" in capsys.readouterr().err


def test_a_closed_output_pipe_ends_sub_quietly(brokers: Overlay, pubend: str) -> None:
    gapless("pub", "-p", pubend, "--url", brokers.url(), lines=events(*range(100, 200)))
    command = f"{' '.join(GAPLESS)} sub 'n >= 100' --start earliest --url {brokers.url()} | head -2"
    ran = subprocess.run(
        ["bash", "-c", f"{command}; exit ${{PIPESTATUS[0]}}"],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
        env=environment(),
    )
    assert len(ran.stdout.splitlines()) == 2
    assert ran.stderr == ""


def test_events_that_could_not_be_written_are_delivered_again(
    brokers: Overlay, pubend: str
) -> None:
    line = json.dumps({"attributes": {"k": pubend}}) + "\n"
    options = [
        f"k = '{pubend}'",
        "--durable",
        pubend,
        "--start",
        "earliest",
        "--url",
        brokers.url(),
    ]
    read_end, write_end = os.pipe()
    os.close(read_end)  # nothing reads the pipe
    with os.fdopen(write_end, "wb") as unread:
        gapless("pub", "-p", pubend, "--url", brokers.url(), lines=line)
        ran = subprocess.run(
            [*GAPLESS, "sub", *options],
            stdout=unread,
            stderr=subprocess.PIPE,
            timeout=DEADLINE_S,
            check=False,
            env=environment(),
        )
    new = f"{pubend} is a new subscription, at the broker b1\n"
    assert (ran.returncode, ran.stderr.decode()) == (0, new)
    again = gapless("sub", *options, "--count", "1")
    assert json.loads(again.stdout)["attributes"] == {"k": pubend}


def test_a_closed_subscription_ends_the_output() -> None:
    class Closed:
        """Has no more events; a caller that repeated the call would not end."""

        fetched = 0

        async def next_batch(self, events_max: int | None) -> list[Any]:
            del events_max
            self.fetched += 1
            assert self.fetched == 1
            return []

    subscription: Any = Closed()
    asyncio.run(_copy(subscription, _Writer(io.BytesIO(), None), acknowledge=False))
    assert subscription.fetched == 1


def test_sub_reports_when_a_stream_is_cut_off_and_when_it_continues(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.setattr(subscribing, "PENDING_INTERVAL_S", 0.0)
    found: list[dict[str, str] | Exception] = [
        {"q": "no way"},
        {"q": "no way"},
        ConnectionLostError("gone"),
        {"q": "corrupt", "r": "no way"},
        {"r": "no way"},
    ]

    class CutOff:
        pending: ClassVar = {"p": "not begun"}

        async def fetch_pending(self, *, deadline_s: float) -> dict[str, str]:
            del deadline_s
            if not found:
                raise asyncio.CancelledError
            answer = found.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer

    subscription: Any = CutOff()
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(_report_pending(subscription))
    assert capsys.readouterr().err.splitlines() == [
        "waiting for p: not begun",
        "p continues",
        "waiting for q: no way",
        "no broker answers: gone",
        "a broker answers again",
        "waiting for q: corrupt",
        "waiting for r: no way",
        "q continues",
    ]


# --- no broker ------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", [["pub", "-p", "q", os.devnull], ["sub"], ["status"]])
def test_without_a_broker_there_is_one_readable_error(command: list[str], capsys: Captured) -> None:
    nowhere = ["--url", "gapless://127.0.0.1:1", "--deadline", "0.3"]
    assert main([*command, *nowhere]) == EXIT_NO_BROKER
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "error: no broker listens on 127.0.0.1:1 (connection refused)" in captured.err
    assert "Traceback" not in captured.err


def test_the_url_comes_from_the_environment(
    brokers: Overlay, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.setenv("GAPLESS_URL", brokers.url(1))
    assert main(["status", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["broker"] == "b2"
    monkeypatch.setenv("GAPLESS_URL", "http://example")
    assert main(["status"]) == EXIT_WRONG_INPUT
    assert "http://example" in capsys.readouterr().err
