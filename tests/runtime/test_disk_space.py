"""The share of the disk for logs, and the warning when little space is left."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path

import pytest

from gapless.core.address import Address
from gapless.core.limits import DISK_WARNING_BYTES, MEMORY_LOG_BYTES
from gapless.core.parameters import DEFAULTS, Parameters
from gapless.runtime import disk_space
from gapless.runtime.disk_space import DiskSpace, DiskWatch, with_log_limits
from gapless.runtime.logs import StructuredLog
from tests.runtime.nodes import run, world

GIB = 2**30


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> list[DiskSpace]:
    """Replace the disk; the last element is its present space."""
    spaces = [DiskSpace(1_000 * GIB, 400 * GIB)]
    monkeypatch.setattr(disk_space, "disk_space", lambda _: spaces[-1])
    return spaces


def test_all_logs_get_a_share_of_the_free_space_and_one_log_may_use_all_of_it(
    tmp_path: Path, disk: list[DiskSpace]
) -> None:
    found = with_log_limits(DEFAULTS, tmp_path)
    assert disk
    assert found.all_logs_bytes_max == found.log_bytes_max == 100 * GIB


def test_brokers_on_one_disk_divide_the_share(tmp_path: Path, disk: list[DiskSpace]) -> None:
    assert disk
    assert with_log_limits(DEFAULTS, tmp_path, 4).all_logs_bytes_max == 25 * GIB


def test_what_the_broker_has_stored_counts_as_free_so_that_the_share_stays_the_same(
    tmp_path: Path, disk: list[DiskSpace]
) -> None:
    before = with_log_limits(DEFAULTS, tmp_path)
    (tmp_path / "broker.db").write_bytes(b"x" * 40_000)
    disk.append(DiskSpace(1_000 * GIB, 400 * GIB - 40_000))
    assert with_log_limits(DEFAULTS, tmp_path) == before


def test_limits_that_an_operator_has_set_are_kept(tmp_path: Path, disk: list[DiskSpace]) -> None:
    assert disk
    one = with_log_limits(Parameters(log_bytes_max=300 * GIB), tmp_path)
    assert (one.log_bytes_max, one.all_logs_bytes_max) == (300 * GIB, 300 * GIB)
    both = Parameters(log_bytes_max=5 * GIB, all_logs_bytes_max=3 * GIB)
    assert with_log_limits(both, tmp_path) == both


def test_logs_in_memory_have_a_limit_too() -> None:
    assert with_log_limits(DEFAULTS, None).all_logs_bytes_max == MEMORY_LOG_BYTES


def test_the_warning_comes_below_a_tenth_of_the_disk_at_most_10_gib_or_below_the_parameter(
    tmp_path: Path, disk: list[DiskSpace]
) -> None:
    default, given = (DiskWatch(tmp_path, least, StructuredLog()) for least in (0, 500 * GIB))
    default.review()
    given.review()
    assert (default.warning, bool(given.warning)) == ("", True)
    disk.append(DiskSpace(1_000 * GIB, DISK_WARNING_BYTES - 1))
    default.review()
    assert f"has {DISK_WARNING_BYTES - 1:,} bytes free" in default.warning
    assert "all_logs_bytes_max" in default.warning
    disk.append(DiskSpace(50 * GIB, 6 * GIB))
    default.review()
    assert default.warning == ""


def test_a_broker_without_a_data_directory_never_warns() -> None:
    watch = DiskWatch(None, 10**18, StructuredLog())
    watch.review()
    assert (watch.warning, watch.space) == ("", None)


def test_little_space_is_in_the_log_in_healthz_and_in_the_metrics(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def body() -> tuple[dict[str, object], str]:
        parameters = Parameters(disk_free_bytes_min=10**18)
        async with world(data=tmp_path, parameters=parameters) as nodes:
            await nodes["b1"].stop()
            node = await nodes.start("b1", metrics=Address.parse("127.0.0.1:0"))
            loop = node._loop

            def get(page: str) -> bytes:
                url = f"http://{node.metrics_address}/{page}"
                with urllib.request.urlopen(url, timeout=30) as answer:
                    assert answer.status == 200
                    return bytes(answer.read())

            health = await loop.run_in_executor(None, get, "healthz")
            metrics = await loop.run_in_executor(None, get, "metrics")
            return json.loads(health), metrics.decode()

    health, metrics = run(body())
    assert "bytes free" in str(health["disk_warning"])
    assert int(str(health["disk_free_bytes"])) > 0
    assert "gapless_disk_short 1.0" in metrics
    assert "gapless_disk_free_bytes" in metrics
    assert any("disk is nearly full" in each.getMessage() for each in caplog.records)
