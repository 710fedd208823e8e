"""The short run of the fuzzer: real brokers survive hostile frames, and a healthy pair is served."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from gapless_lab.fuzz.report import FuzzOptions
from gapless_lab.fuzz.run import perform


@pytest.mark.slow
def test_brokers_survive_20_000_hostile_frames_and_serve_a_healthy_pair(tmp_path: Path) -> None:
    options = FuzzOptions(frames=20_000, seed=1, rate=0, judges_times=False)
    report = asyncio.run(perform(options, tmp_path, lambda _: None))
    assert not report.faults, "\n".join(report.faults)
    assert report.frames_sent >= options.frames
    assert report.audit is not None
    assert report.audit.is_clean
    assert len(report.memory) == 3
    assert len(report.refusals) > 1, "requests of many kinds are refused"
