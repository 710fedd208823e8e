"""``gapless topo``: a running overlay is changed from the command line (RS-15, RS-19, RS-36)."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

from gapless.cli.main import EXIT_REFUSED, EXIT_WRONG_INPUT
from tests.cli.overlays import event, gapless, overlay


def test_the_tree_of_a_running_overlay_is_changed_and_kept(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with overlay("--data", str(data)) as brokers:
        url = ("--url", brokers.url(0))

        def topo(*arguments: str) -> Any:
            ran = gapless("topo", *arguments, *url, "--json")
            assert ran.returncode == 0, ran.stderr
            return json.loads(ran.stdout)

        assert stat.S_IMODE((data / "overlay.sock").stat().st_mode) == 0o600
        new = ("append", "d", "--broker", "b4", "--at", "c3", "--start", "--data", str(data))
        appended = topo(*new)
        assert appended["cells"][0].startswith("d#b3.")
        assert '"b4"' in (data / "overlay.toml").read_text()
        assert topo("shift", "d", "c3", "c2")["kind"] == "shift"
        applied = topo("apply", "line:4", "--yes")
        assert applied["done"] == len(applied["steps"]) == 1
        assert applied["operations"][0]["time_us"] > 0
        assert topo("plan", "line:4")["steps"] == []
        assert topo("abort") == {"was_under_way": False}
        ran = gapless("pub", "-p", "quotes", *url, lines=event(1))
        assert ran.returncode == 0, ran.stderr
        refused = gapless("topo", "detach", "c1", "--url", brokers.url(1))
        assert refused.returncode == EXIT_REFUSED
        assert "the pubend quotes" in refused.stderr
        unknown = gapless("topo", "shift", "x", "c3", "c2", *url)
        assert unknown.returncode == EXIT_WRONG_INPUT
        assert "the tree has no cell x" in unknown.stderr
        again = gapless("topo", *new, *url)
        assert again.returncode == EXIT_WRONG_INPUT
        assert "b4" in again.stderr
        topo("detach", "d", "--data", str(data))
        assert '"b4"' not in (data / "overlay.toml").read_text()
        assert (data / "b4.stopped").is_dir()
        cells = topo("show", "--all")["cells"]
        assert [each["cell"] for each in cells] == ["c1", "c2", "c3"]


def test_a_broker_that_nobody_starts_needs_an_address() -> None:
    ran = gapless("topo", "append", "d", "--broker", "b4", "--at", "c3")
    assert ran.returncode == EXIT_WRONG_INPUT
    assert "--address" in ran.stderr
    ran = gapless("topo", "append", "d", "--broker", "b4", "--at", "c3", "--start")
    assert ran.returncode == EXIT_WRONG_INPUT
    assert "--data" in ran.stderr


def test_a_supervisor_that_does_not_run_is_named(tmp_path: Path) -> None:
    new = ("--broker", "b4", "--at", "c3", "--start", "--data", str(tmp_path))
    ran = gapless("topo", "append", "d", *new)
    assert ran.returncode == EXIT_WRONG_INPUT
    assert "no gapless up runs in" in ran.stderr
