"""The verdict of a run: each kind of fault is found and its attacks are saved."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from gapless.cli.main import main
from gapless.core.address import Address
from gapless.runtime.ports import ReservedPorts
from gapless_lab.fuzz.attacks import (
    Attack,
    AttackerRole,
    AttackerState,
    FrameKind,
    FuzzFrame,
    load_attacks,
)
from gapless_lab.fuzz.pair import Latencies, PairAudit
from gapless_lab.fuzz.probe import BrokerMeasurement, MemoryUse, SlowStep
from gapless_lab.fuzz.processes import AttackedOverlay, EndedError
from gapless_lab.fuzz.report import FuzzOptions, FuzzReport
from gapless_lab.fuzz.run import GROWTH_BYTES_MAX, FuzzRun

CLEAN = PairAudit(published=9, delivered=9, lost=0, repeated=0, reordered=0, spurious=0, errors=[])
FAST = Latencies(count=9, p50_ms=1.0, p99_ms=2.0, max_ms=3.0)


class FakeBroker:
    """Returns the given measurements, the last one again and again."""

    def __init__(self, port: int, *answers: BrokerMeasurement | EndedError) -> None:
        self.address = Address("127.0.0.1", port)
        self._answers = list(answers)

    async def measure(self, *, with_memory: bool = False) -> BrokerMeasurement:
        del with_memory
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, EndedError):
            raise answer
        return answer


class FakePair:
    """Returns given latencies and an audit."""

    def __init__(self, audit: PairAudit, *latencies: Latencies) -> None:
        self._audit = audit
        self._latencies = list(latencies)

    async def ask(self, word: str, kind: type) -> Any:
        del kind
        return self._audit if word == "audit" else self._latencies.pop(0)


class FakeOverlay:
    """An overlay of one fake broker at a port at which nothing listens."""

    def __init__(self, broker: FakeBroker, pair: FakePair) -> None:
        self.brokers = {"b1": broker}
        self.pair = pair


def measured(
    in_use: int = 1_000, slowest: tuple[SlowStep, ...] = (), errors: tuple[str, ...] = ()
) -> BrokerMeasurement:
    memory = MemoryUse(in_use=in_use, resident=in_use, objects=1, types={"dict": 1})
    return BrokerMeasurement(
        memory=memory, frames=1, steps=1, slowest=[*slowest], errors=[*errors], stored={}
    )


def attack(number: int) -> Attack:
    frame = FuzzFrame(kind=FrameKind.BOMB, type="noise", body=b"\xff")
    role, state = AttackerRole.CLIENT, AttackerState.CONNECTED
    return Attack(number=number, role=role, target="b1", state=state, frames=(frame,))


def replayed(
    saved: Path,
    *answers: BrokerMeasurement | EndedError,
    audit: PairAudit = CLEAN,
    options: FuzzOptions | None = None,
) -> FuzzReport:
    ports = ReservedPorts(1)
    overlay = FakeOverlay(FakeBroker(ports.ports[0], *answers), FakePair(audit, FAST))
    found = FuzzRun(
        options or FuzzOptions(rest_s=0), cast("AttackedOverlay", overlay), saved, lambda _: None
    )
    asyncio.run(found.replay([attack(1), attack(2)]))
    ports.release()
    return found.report(1.0)


def test_a_run_without_faults_is_clean(tmp_path: Path) -> None:
    report = replayed(tmp_path, measured())
    assert report.faults == []
    assert report.saved == []
    assert report.attacks == 2


def test_a_broker_that_ends_is_a_fault_and_its_attacks_are_saved(tmp_path: Path) -> None:
    report = replayed(tmp_path, measured(), EndedError("b1", "b1 has ended with exit code 1"))
    assert report.faults == ["b1 has ended with exit code 1"]
    assert load_attacks(Path(report.saved[0])) == [attack(1)]


def test_an_unhandled_error_is_a_fault(tmp_path: Path) -> None:
    report = replayed(tmp_path, measured(), measured(errors=("RecursionError",)), measured())
    assert report.faults == ["b1 has an unhandled error: RecursionError"]


@pytest.mark.parametrize(("judges_times", "faults"), [(True, 1), (False, 0)])
def test_a_slow_step_is_a_fault_if_times_are_judged(
    tmp_path: Path, judges_times: bool, faults: int
) -> None:
    slow = measured(slowest=(SlowStep(120.0, 300.0, "Subscribe of fuzz-1.1", 1),))
    options = FuzzOptions(judges_times=judges_times, rest_s=0)
    report = replayed(tmp_path, measured(), slow, measured(), options=options)
    assert len(report.faults) == len(report.saved) == faults
    assert report.slowest[0].frames == ["bomb noise (1 bytes)"]
    if faults:
        assert load_attacks(Path(report.saved[0])) == [attack(1)]


def test_memory_that_remains_is_a_fault(tmp_path: Path) -> None:
    kept = measured(in_use=1_001 + GROWTH_BYTES_MAX)
    report = replayed(tmp_path, measured(), measured(), measured(), kept)
    assert report.faults == ["the memory of b1 has grown by 4.0 MiB"]


def test_an_audit_that_is_not_clean_is_a_fault(tmp_path: Path) -> None:
    report = replayed(tmp_path, measured(), audit=msgspec.structs.replace(CLEAN, lost=1))
    assert len(report.faults) == 1
    assert "the audit of the healthy pair is not clean" in report.faults[0]


def test_late_deliveries_are_a_fault(tmp_path: Path) -> None:
    slow = msgspec.structs.replace(FAST, p99_ms=6.1)
    ports = ReservedPorts(1)
    overlay = FakeOverlay(FakeBroker(ports.ports[0], measured()), FakePair(CLEAN, slow))
    found = FuzzRun(
        FuzzOptions(rest_s=0), cast("AttackedOverlay", overlay), tmp_path, lambda _: None
    )
    found.calm = FAST
    asyncio.run(found.replay([]))
    ports.release()
    assert found.faults == ["p99 is 6.1 ms, more than 3 times the 2.0 ms without attack"]


def test_a_file_without_attacks_cannot_be_replayed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fuzz", "--replay", str(tmp_path / "absent")]) == 2
    assert "cannot be read" in capsys.readouterr().err
