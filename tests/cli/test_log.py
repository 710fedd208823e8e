"""``gapless log`` on data directories: valid, corrupt, empty and missing."""

from __future__ import annotations

import json
import shutil
import sqlite3
from pathlib import Path

import pytest

from gapless.cli.main import EXIT_DISK, EXIT_FOUND, EXIT_NO_BROKER, EXIT_WRONG_INPUT, main
from tests.cli.overlays import event, events, gapless, overlay

Captured = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the data directory of a broker that has run, with five events in two rows."""
    data = tmp_path_factory.mktemp("overlay")
    with overlay("--data", str(data), topology="line:1") as brokers:
        for lines in (events(1, 2, 3), events(4) + event(5, "x" * 100)):
            ran = gapless("pub", "-p", "quotes", "--url", brokers.url(), lines=lines)
            assert ran.returncode == 0, ran.stderr
    return data / "b1" / "store"


@pytest.fixture
def corrupt(stored: Path, tmp_path: Path) -> Path:
    """Return a copy of the directory with one bit flipped in the second row."""
    for path in stored.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    connection = sqlite3.connect(tmp_path / "broker.db")
    with connection:
        (frame,) = connection.execute("SELECT frame FROM log ORDER BY first DESC").fetchone()
        broken = bytes([*frame[:-1], frame[-1] ^ 1])
        connection.execute("UPDATE log SET frame=? WHERE frame=?", (broken, frame))
    connection.close()
    return tmp_path


def test_ls_lists_the_contents_of_each_log(stored: Path, capsys: Captured) -> None:
    assert main(["log", "ls", str(stored), "--json"]) == 0
    (log,) = json.loads(capsys.readouterr().out)
    assert (log["pubend"], log["events"]) == ("quotes", 5)
    assert main(["log", "ls", str(stored)]) == 0
    assert "quotes" in capsys.readouterr().out


def test_a_valid_log_is_verified(stored: Path, capsys: Captured) -> None:
    assert main(["log", "verify", str(stored), "--structure", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["corruptions"] == []
    assert report["logs"][0]["events"] == 5
    assert main(["log", "verify", str(stored)]) == 0
    assert "valid" in capsys.readouterr().out


def test_verify_reports_corruption_with_its_exit_code(corrupt: Path, capsys: Captured) -> None:
    assert main(["log", "verify", str(corrupt), "--json"]) == EXIT_FOUND
    report = json.loads(capsys.readouterr().out)
    assert len(report["corruptions"]) == 1
    assert "quotes" in report["corruptions"][0]
    assert main(["log", "verify", str(corrupt)]) == EXIT_FOUND
    assert "corrupt" in capsys.readouterr().out


def test_export_prints_the_events_before_the_corruption_and_then_the_error(
    corrupt: Path, capsys: Captured
) -> None:
    assert main(["log", "export", str(corrupt), "quotes"]) == EXIT_FOUND
    captured = capsys.readouterr()
    numbers = [json.loads(line)["attributes"]["n"] for line in captured.out.splitlines()]
    assert numbers == [1, 2, 3]
    assert captured.err.startswith("error: ")


def test_export_accepts_a_range_and_a_file(stored: Path, tmp_path: Path, capsys: Captured) -> None:
    assert main(["log", "export", str(stored), "quotes"]) == 0
    everything = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [each["attributes"]["n"] for each in everything] == [1, 2, 3, 4, 5]
    ticks = [each["tick"] for each in everything]
    some = ("--from", str(ticks[1]), "--up-to", str(ticks[3]), "-o", str(tmp_path / "out"))
    assert main(["log", "export", str(stored), "quotes", *some]) == 0
    lines = (tmp_path / "out").read_text().splitlines()
    assert [json.loads(line) for line in lines] == everything[1:4]


def test_a_missing_log_is_an_error(stored: Path, tmp_path: Path, capsys: Captured) -> None:
    assert main(["log", "export", str(stored), "orders"]) == EXIT_WRONG_INPUT
    assert "has no log of orders; it has quotes" in capsys.readouterr().err
    assert main(["log", "ls", str(tmp_path)]) == EXIT_DISK
    captured = capsys.readouterr()
    assert captured.err.startswith("error: ")
    assert "Traceback" not in captured.err


def test_log_read_needs_a_broker(capsys: Captured) -> None:
    nowhere = ["--url", "gapless://127.0.0.1:1", "--deadline", "0.2"]
    assert main(["log", "read", "quotes", *nowhere]) == EXIT_NO_BROKER
    assert "error: no broker listens on 127.0.0.1:1 (connection refused)" in capsys.readouterr().err


def test_doctor_inspects_a_data_directory(stored: Path, tmp_path: Path, capsys: Captured) -> None:
    assert main(["doctor", "--data", str(stored), "--json"]) == 0
    data = json.loads(capsys.readouterr().out)["data"]
    assert (data["logs"], data["problem"], data["writable"]) == (1, None, True)
    assert main(["doctor", "--data", str(tmp_path / "new")]) == 0
    assert "has no data of a broker yet" in capsys.readouterr().out
    (tmp_path / "broker.db").write_text("this is no database")
    assert main(["doctor", "--data", str(tmp_path)]) == 0
    assert "cannot be used" in capsys.readouterr().out


def test_the_directory_of_a_broker_of_an_overlay_is_accepted(
    stored: Path, tmp_path: Path, capsys: Captured
) -> None:
    for name in ("b1", "b2"):
        shutil.copytree(stored, tmp_path / "overlay" / name / "store")
    broker = tmp_path / "overlay" / "b1"
    for command in (["log", "ls"], ["log", "verify"]):
        assert main([*command, str(broker)]) == 0
        found = capsys.readouterr()
        assert main([*command, str(broker / "store")]) == 0
        assert capsys.readouterr().out == found.out
    assert main(["doctor", "--data", str(broker)]) == 0
    assert f"{broker / 'store'} has 1 log" in "".join(capsys.readouterr().out.split("\n"))
    assert main(["log", "export", str(broker), "quotes"]) == 0
    capsys.readouterr()


def test_the_directory_of_an_overlay_is_accepted(
    stored: Path, tmp_path: Path, capsys: Captured
) -> None:
    # it is the path that gapless up prints
    overlay = tmp_path / "overlay"
    for name in ("b1", "b2"):
        shutil.copytree(stored, overlay / name / "store")
    assert main(["log", "ls", str(overlay)]) == 0
    assert capsys.readouterr().out.count("quotes") == 2
    assert main(["log", "ls", str(overlay), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    directories = [str(overlay / name / "store") for name in ("b1", "b2")]
    assert [each["directory"] for each in found] == directories
    assert main(["log", "verify", str(overlay)]) == 0
    assert capsys.readouterr().out.count("valid") == 2
    assert main(["log", "verify", str(overlay), "--json"]) == 0
    assert [*json.loads(capsys.readouterr().out)] == directories
    assert main(["log", "export", str(overlay), "quotes"]) == 0
    capsys.readouterr()
    assert main(["doctor", "--data", str(overlay), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["data"]["logs"] == 2
    assert main(["log", "trim", str(overlay), "--all", "--up-to", "1"]) == EXIT_WRONG_INPUT
    problem = " ".join(capsys.readouterr().err.split())
    assert "has the data of several brokers; choose one:" in problem
    assert str(overlay / "b1") in problem
