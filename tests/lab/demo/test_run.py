"""The demo end to end: real processes, a kill, a clean audit, and no process left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gapless.cli.main import EXIT_WRONG_INPUT, main
from gapless.core.errors import UsageError
from gapless_lab.demo.run import EXIT_INTERRUPTED, DemoOptions, perform_and_show

CODE = """
import sys
from pathlib import Path
from gapless_lab.demo.run import DemoOptions, perform_and_show
sys.exit(perform_and_show(DemoOptions(seconds=60, topology="line:2"), Path(sys.argv[1])))
"""


def test_a_short_demo_with_a_kill_is_clean(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = DemoOptions(seconds=4, topology="line:3", rate=200)
    assert perform_and_show(options, tmp_path / "data", as_json=True) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["clean"]
    assert result["kills"] == result["restarts"] == 1
    assert result["audit"]["published"] > 100
    total = result["audit"]["total"]
    assert total["expected"] > 100
    assert total["lost"] == total["duplicates"] == total["out_of_order"] == total["spurious"] == 0
    assert {row["subscriber"] for row in result["audit"]["rows"]} == {
        *("tape", "blue", "desk", "ledger", "abroad", "late")
    }
    switches = (tmp_path / "data/records/desk.delivered").read_text()
    assert '"type":"switched"' in switches


def test_a_demo_refuses_a_directory_that_is_not_empty(tmp_path: Path) -> None:
    (tmp_path / "diary").write_text("dear")
    with pytest.raises(UsageError, match="not empty"):
        perform_and_show(DemoOptions(), tmp_path)
    assert (tmp_path / "diary").read_text() == "dear"


def test_the_command_names_invalid_input(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = str(tmp_path / "data")
    assert main(["demo", "--topology", "ring:3", "--data", data]) == EXIT_WRONG_INPUT
    assert "ring:3" in capsys.readouterr().err


def brokers_of(directory: Path) -> set[int]:
    """Return the processes that run a broker of a demo."""
    found = set()
    for each in Path("/proc").iterdir():
        if each.name.isdigit():
            try:
                line = (each / "cmdline").read_bytes().decode(errors="replace")
            except OSError:
                continue
            if "gapless.runtime" in line and str(directory) in line:
                found.add(int(each.name))
    return found


def test_an_interrupted_demo_stops_its_brokers_with_a_message(tmp_path: Path) -> None:
    data = tmp_path / "data"
    process = subprocess.Popen(
        [sys.executable, "-c", CODE, str(data)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=os.environ,
    )
    assert process.stdout is not None
    for line in process.stdout:
        if "brokers are ready" in line:
            break
    assert len(brokers_of(data)) == 2
    process.send_signal(signal.SIGINT)
    rest, _ = process.communicate(timeout=60)
    assert process.returncode == EXIT_INTERRUPTED
    assert "stopping the brokers" in rest
    assert "Traceback" not in rest
    assert brokers_of(data) == set()
