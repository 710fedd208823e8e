"""``gapless up`` with real processes: events are delivered, a broker is killed, nothing remains."""

from __future__ import annotations

import json
import signal
import socket
import urllib.request
from pathlib import Path

from gapless.cli.main import EXIT_DISK, EXIT_WRONG_INPUT
from tests.cli.overlays import (
    event,
    events,
    gapless,
    is_alive,
    overlay,
    running,
    until,
)


def numbers(output: str) -> list[int]:
    return [json.loads(line)["attributes"]["n"] for line in output.splitlines()]


def test_events_are_delivered_and_a_killed_broker_restarts_with_its_data(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with overlay("--data", str(data)) as brokers:
        assert [each["name"] for each in brokers.brokers] == ["b1", "b2", "b3"]
        assert [each["cell"] for each in brokers.brokers] == ["c1", "c2", "c3"]
        sub = ("sub", "n >= 0", "--durable", "desk", "--url", brokers.url(2))
        with running(*sub, "--start", "earliest") as reader:
            ran = gapless("pub", "-p", "quotes", "--url", brokers.url(0), lines=events(1, 2))
            assert ran.returncode == 0, ran.stderr
            assert [reader.line()["attributes"]["n"] for _ in range(2)] == [1, 2]
            brokers.kill(2)
            again = brokers.await_stage("ready")
            assert again["broker"] == "b3"
            assert again["pid"] != brokers.pid(2)
            assert again["metrics"] == brokers.brokers[2]["metrics"]
            with urllib.request.urlopen(f"{again['metrics']}/metrics") as page:  # noqa: S310
                assert b"gapless_restarts 1" in page.read()
            ran = gapless("pub", "-p", "quotes", "--url", brokers.url(0), lines=events(3))
            assert ran.returncode == 0, ran.stderr
            assert reader.line()["attributes"]["n"] == 3, "it continues without a duplicate"
            reader.interrupt()
            assert reader.wait() == 130
        gapless("pub", "-p", "quotes", "--url", brokers.url(0), lines=events(4))
        brokers.kill(0)
        brokers.await_stage("ready")
        ran = gapless(*sub, "--count", "1")
        assert numbers(ran.stdout) == [4], ran.stderr
        brokers.command.interrupt()
        assert brokers.command.wait() == 0
    with overlay("--data", str(data)) as brokers:
        gapless("pub", "-p", "quotes", "--url", brokers.url(0), lines=events(5))
        ran = gapless("sub", "--durable", "desk", "--url", brokers.url(2), "--count", "1")
        assert numbers(ran.stdout) == [5], "acknowledgements outlive the whole overlay"


def test_an_interruption_leaves_no_process_and_no_data() -> None:
    with overlay() as brokers:
        directory = Path(brokers.first["data"])
        assert (directory / "b1").is_dir()
        brokers.command.interrupt()
        assert brokers.command.wait() == 0
        assert not any(is_alive(each["pid"]) for each in brokers.brokers)
        assert not directory.exists()
        assert "Traceback" not in "".join(brokers.command.errors)


def test_brokers_end_when_their_supervisor_is_killed() -> None:
    with overlay(topology="line:2") as brokers:
        brokers.command.process.send_signal(signal.SIGKILL)
        assert brokers.command.wait() == -signal.SIGKILL
        until(lambda: not any(is_alive(each["pid"]) for each in brokers.brokers))


def test_without_restarts_a_killed_broker_stays_dead() -> None:
    with overlay("--no-restart", topology="line:2") as brokers:
        brokers.kill(1)
        report = brokers.await_stage("failed")
        assert (report["broker"], report["detail"]) == ("b2", "killed by SIGKILL")
        ran = gapless("status", "--json", "--url", brokers.url(0))
        assert ran.returncode == 0, ran.stderr
        ran = gapless("status", "--url", brokers.url(1), "--deadline", "0.5")
        assert ran.returncode == 4


def test_the_printed_table_names_every_broker() -> None:
    with running("up", "--port", "0", "--topology", "line:1") as command:
        assert command.process.stdout is not None
        shown: list[str] = []

        def is_ready() -> bool:
            line = command._lines.get(timeout=60)
            shown.append(line or "")
            return "Ctrl-C stops all" in shown[-1]

        until(is_ready)
        row = next(line for line in shown if line.startswith("b1 "))
        assert "gapless://127.0.0.1:" in row
        assert "http://127.0.0.1:" in row
        command.process.send_signal(signal.SIGTERM)
        assert command.wait() == 0
        assert "all brokers have stopped" in "".join(command.errors)


def test_an_invalid_topology_is_refused_before_anything_is_started() -> None:
    ran = gapless("up", "--topology", "ring:3")
    assert ran.returncode == EXIT_WRONG_INPUT
    assert ran.stderr.startswith("error: 'ring:3' is no overlay")
    ran = gapless("up", "--topology", "missing.toml")
    assert ran.returncode == EXIT_WRONG_INPUT
    assert "missing.toml cannot be read" in ran.stderr


def test_a_second_overlay_does_not_change_a_running_one(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with overlay("--data", str(data), topology="line:2") as brokers:
        before = {path: path.read_text() for path in data.rglob("*.toml")}
        again = ("up", "--data", str(data), "--topology", "line:2", "--port", "0")
        ran = gapless(*again, "--delta", "3")
        assert ran.returncode == EXIT_DISK
        pid = brokers.command.process.pid
        assert ran.stderr.startswith(f"error: {data} is in use by process {pid}: ")
        assert {path: path.read_text() for path in data.rglob("*.toml")} == before
        brokers.kill(0)
        assert brokers.await_stage("ready")["broker"] == "b1"
        brokers.command.interrupt()
        assert brokers.command.wait() == 0
    ran = gapless(*again, "--delta", "3")
    assert ran.returncode == EXIT_WRONG_INPUT
    assert "its delta is 1, not 3" in ran.stderr
    assert (data / "overlay.toml").read_text() == before[data / "overlay.toml"]


def test_the_data_of_a_broker_that_is_in_use_has_its_exit_code(tmp_path: Path) -> None:
    config = tmp_path / "b1" / "broker.toml"
    config.parent.mkdir()
    config.write_text('name = "b1"\ndata = "store"\nlisten = "127.0.0.1:0"\n')
    with running("broker", "--config", str(config)) as command:
        until(lambda: any("broker is ready" in line for line in command.errors))
        ran = gapless("up", "--data", str(tmp_path), "--topology", "line:1", "--port", "0")
        assert ran.returncode == EXIT_DISK
        assert "the broker b1 cannot start" in ran.stderr
        assert "is in use by process" in ran.stderr


def test_an_invalid_delta_or_name_is_refused_in_one_line(tmp_path: Path) -> None:
    ran = gapless("up", "--delta", "99")
    assert ran.returncode == EXIT_WRONG_INPUT
    assert "'--delta'" in ran.stderr
    assert "16" in ran.stderr
    tree = tmp_path / "tree.toml"
    data = tmp_path / "below" / "data"
    for text, problem in (
        ('[cells]\na = ["../x"]\n', "'../x' is no name of a cell or a broker"),
        ('[cells]\na = ["overlay.toml"]\n', "a broker cannot be named overlay.toml"),
        ('delta = -1\n[cells]\na = ["b"]\n', "delta is -1, and must be 0 to 16"),
    ):
        tree.write_text(text)
        ran = gapless("up", "--topology", str(tree), "--data", str(data), "--port", "0")
        assert ran.returncode == EXIT_WRONG_INPUT
        assert problem in ran.stderr
        assert ran.stderr.count("\n") == 1
    assert not data.parent.exists()


def test_a_broker_runs_with_its_file_and_ends_on_a_signal(tmp_path: Path) -> None:
    config = tmp_path / "broker.toml"
    config.write_text('name = "alone"\ndata = "store"\nlisten = "127.0.0.1:0"\n')
    with running("broker", "--config", str(config)) as command:
        until(lambda: any("broker is ready" in line for line in command.errors))
        report = next(line for line in command.errors if "broker is ready" in line)
        url = next(part[4:] for part in report.split() if part.startswith("url="))
        ran = gapless("pub", "-p", "quotes", "--url", url, lines=event(1))
        assert ran.returncode == 0, ran.stderr
        command.interrupt()
        assert command.wait() == 0
    ran = gapless("log", "export", str(tmp_path / "store"), "quotes")
    assert numbers(ran.stdout) == [1]


def test_an_invalid_configuration_file_is_refused_with_the_problem(tmp_path: Path) -> None:
    config = tmp_path / "broker.toml"
    config.write_text('nmae = "b1"\ndata = "store"\n')
    ran = gapless("broker", "--config", str(config))
    assert ran.returncode == EXIT_WRONG_INPUT
    assert "nmae" in ran.stderr
    assert "Traceback" not in ran.stderr


def test_retention_is_an_option_and_is_shown(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with overlay("--data", str(data), "--retention", "2h", topology="line:1") as brokers:
        assert brokers.first["parameters"] == {"retention_s": 7_200}
        ran = gapless("status", "--json", "--url", brokers.url(0))
        assert json.loads(ran.stdout)["retention_s"] == 7_200
        ran = gapless("status", "--url", brokers.url(0))
        assert "2 h 0 min (retention_s), at most" in ran.stdout
    config = data / "b1" / "broker.toml"
    config.write_text(config.read_text() + "\n[parameters]\nretention_s = '5min'\n")
    with running("up", "--port", "0", "--data", str(data)) as command:
        until(lambda: any("was edited: it is used as it is" in each for each in command.errors))
        command.process.send_signal(signal.SIGTERM)
        assert command.wait() == 0
    assert "'5min'" in config.read_text()


def test_a_port_that_another_process_uses_is_refused_before_anything_is_started(
    tmp_path: Path,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as used:
        port = used.getsockname()[1]
        ran = gapless("up", "--port", str(port), "--data", str(tmp_path), "--topology", "line:1")
    assert ran.returncode == EXIT_WRONG_INPUT
    assert ran.stderr == (
        f"error: cannot listen on 127.0.0.1:{port}: Address already in use; choose another first "
        "port with --port, or --port 0 for free ports\n"
    )
    assert not (tmp_path / "b1").exists()
