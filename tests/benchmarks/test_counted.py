"""Messages by kind of two commits: the same course gives the same counts, and a difference shows."""

from __future__ import annotations

import asyncio

from benchmarks.streams.counted import Counted, differences, measure_counted
from benchmarks.streams.report import Findings, counted


def test_the_same_code_sends_the_same_messages_in_every_run() -> None:
    runs = [asyncio.run(measure_counted(commit, 3, 2.0)) for commit in ("one", "two")]
    assert runs[0].messages == runs[1].messages
    assert runs[0].messages["StreamData"] >= 2 * runs[0].events
    assert all(run.cpu_us > 0 for run in runs)
    assert differences(runs) == {3: []}
    assert "All counts are equal." in counted(Findings(counted=runs))


def test_a_kind_that_one_commit_sends_more_often_is_named() -> None:
    runs = [
        Counted("one", 3, 10, {"Attach": 1, "StreamData": 20}, 0.1),
        Counted("two", 3, 10, {"StreamData": 20}, 0.1),
    ]
    assert differences(runs) == {3: ["Attach"]}
    assert "Different: Attach (3 hops)." in counted(Findings(counted=runs))
