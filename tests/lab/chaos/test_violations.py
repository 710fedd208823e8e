"""A faulty run is not clean: each violation is reported, alone and in a whole run."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from gapless.core.ids import BrokerId
from gapless.runtime.overlay_config import overlay_of
from gapless_lab.chaos import run
from gapless_lab.chaos.faults import Fault, FaultAction
from gapless_lab.chaos.networks import ChaosNetworkKind
from gapless_lab.chaos.proxies import Proxies
from gapless_lab.chaos.timing import Timing
from gapless_lab.chaos.verdict import ChaosOptions, ChaosVerdict, show_verdict
from gapless_lab.demo.audit import Audit, AuditSummaryRow
from gapless_lab.demo.clients import DemoCounters
from gapless_lab.demo.screen import Screen, make_console
from tests.client.running import async_test

OPTIONS = ChaosOptions(minutes=0.05, topology="line:2x2", delta=0, seed=3)
TIMING = Timing(
    heartbeat_ms=250,
    session_timeout_ms=1_500,
    redial_max_ms=500,
    attach_timeout_ms=1_000,
    keepalive_ms=500,
    failover_after_s=1.0,
)
CUT = Fault("cut link", "a cut", FaultAction.NOTHING, (), (("b1a", "b2a"), ("b2a", "b1a")), 0.5)


def verdict_of(
    *, lost: int = 0, stuck: Sequence[str] = (), listed: Sequence[str] = ()
) -> ChaosVerdict:
    total = AuditSummaryRow(subscriber="total", expected=10, delivered=10 - lost, lost=lost)
    audit = Audit(
        published=10, unknown=0, unknown_delivered=0, failed=0, rows=[], total=total, examples=[]
    )
    return ChaosVerdict(
        options=OPTIONS,
        network=ChaosNetworkKind.PROXIES,
        timing=TIMING,
        faults=[],
        failover_times=[],
        stuck=[*stuck],
        listed=[*listed],
        kills=0,
        restarts=0,
        failovers=0,
        audit=audit,
    )


WRONG = (
    verdict_of(lost=1),
    verdict_of(stuck=["tape from lse did not advance for 60 s"]),
    verdict_of(listed=["b1a lists a partition"]),
)


@pytest.mark.parametrize("wrong", WRONG, ids=("lost", "stuck", "listed"))
def test_one_violation_makes_the_exit_code_1_and_keeps_the_records(
    wrong: ChaosVerdict,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert not wrong.clean
    assert _code_of(wrong, tmp_path, monkeypatch) == run.EXIT_UNCLEAN == 1
    assert [*tmp_path.iterdir()], "the records are needed to find the reason"
    assert "NOT CLEAN" in capsys.readouterr().out


def test_a_clean_run_has_exit_code_0_and_keeps_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _code_of(verdict_of(), tmp_path, monkeypatch) == 0
    assert not [*tmp_path.iterdir()]
    assert "verdict of seed 3: clean" in capsys.readouterr().out


def _code_of(verdict: ChaosVerdict, directory: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """Return the exit code of a run that has this verdict."""

    async def perform(*_: Any) -> ChaosVerdict:
        return verdict

    def empty_directory(*_: Any) -> Path:
        made = directory / "kept"
        made.mkdir()
        return made

    monkeypatch.setattr(run, "perform", perform)
    monkeypatch.setattr(run, "empty_directory", empty_directory)
    return run.perform_and_show(OPTIONS, ChaosNetworkKind.PROXIES)


def test_the_verdict_shows_the_parameters_that_determine_the_times(
    capsys: pytest.CaptureFixture[str],
) -> None:
    show_verdict(make_console(), verdict_of(), DemoCounters())
    output = capsys.readouterr().out
    for words in (
        *("heartbeat_ms 250", "session_timeout_ms 1500", "redial_max_ms 500"),
        *("attach_timeout_ms 1000", "keepalive_ms 500", "fail over after 1 s"),
    ):
        assert words in output


@async_test
async def test_a_filter_change_that_fails_or_times_out_is_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def late() -> str | None:
        await asyncio.sleep(60)
        return None

    async def refused() -> str | None:
        return "fickle could not change its filter: refused"

    async def done() -> str | None:
        return None

    monkeypatch.setattr(run, "TIMEOUT_S", 0.01)
    overlay, screen = overlay_of("line:2"), Screen(make_console(), DemoCounters(), quiet=True)
    made = run._ChaosRun(OPTIONS, overlay, Proxies(), screen, DemoCounters())
    changes = [asyncio.create_task(each()) for each in (late, refused, done)]
    for change in changes:
        await made._await_change(change, "during: a cut")
    changes[0].cancel()
    await asyncio.gather(*changes, return_exceptions=True)
    assert made.stuck == [
        "no filter was changed for 0.01 s during: a cut",
        "fickle could not change its filter: refused during: a cut",
    ]


# --- runs with violations ------------------------------------------------------------------------


class NeverHealed(Proxies):
    """A network on which cuts are not healed."""

    async def heal(self, links: Sequence[tuple[BrokerId, BrokerId]]) -> None:
        del links


class CutsEverything(Proxies):
    """A network on which a cut of one link cuts all links between the cells."""

    _ALL = tuple(
        link
        for here in ("b1a", "b1b")
        for there in ("b2a", "b2b")
        for link in ((here, there), (there, here))
    )

    async def cut(self, links: Sequence[tuple[BrokerId, BrokerId]]) -> None:
        del links
        await super().cut(self._ALL)

    async def heal(self, links: Sequence[tuple[BrokerId, BrokerId]]) -> None:
        del links
        await super().heal(self._ALL)


def wrong_run(
    network: type[Proxies],
    fault: Fault,
    directory: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> tuple[int, Any]:
    """Run one fault on a network with short timeouts; return the exit code and the verdict."""

    def one_fault(*_: Any) -> Iterator[tuple[Fault, ...]]:
        yield (fault,)

    monkeypatch.setattr(run, "Proxies", network)
    monkeypatch.setattr(run, "draw_faults", one_fault)
    monkeypatch.setattr(run, "TIMEOUT_S", 4.0)
    monkeypatch.setattr(run, "DRAIN_S", 3.0)
    code = run.perform_and_show(OPTIONS, ChaosNetworkKind.PROXIES, directory, as_json=True)
    return code, json.loads(capsys.readouterr().out)


@pytest.mark.slow
def test_a_stopped_stream_that_had_a_route_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, verdict = wrong_run(CutsEverything, CUT, tmp_path, monkeypatch, capsys)
    assert code == run.EXIT_UNCLEAN
    assert not verdict["clean"]
    across = "tape from nyse did not advance for 4 s during: a cut"
    assert across in verdict["stuck"]
    assert "tape from lse" not in " ".join(verdict["stuck"]), "that is in its own cell"
    assert verdict["audit"]["total"]["lost"] == 0
    assert verdict["listed"] == []


@pytest.mark.slow
def test_an_unhealed_cut_is_reported_as_loss_stop_and_partition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fault = CUT._replace(cuts=CutsEverything._ALL)
    code, verdict = wrong_run(NeverHealed, fault, tmp_path, monkeypatch, capsys)
    assert code == run.EXIT_UNCLEAN
    assert "tape from nyse did not advance for 4 s after: a cut" in verdict["stuck"]
    assert not [each for each in verdict["stuck"] if "during" in each], "no stream had a route then"
    assert verdict["audit"]["total"]["lost"] > 0
    assert {each.split()[0] for each in verdict["listed"]} == {"b1a", "b1b", "b2a", "b2b"}
    assert verdict["kept"] == str(tmp_path)
