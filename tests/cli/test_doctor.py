"""``gapless doctor``."""

from __future__ import annotations

import json
import platform

import pytest

import gapless
from gapless.cli import doctor
from gapless.cli.main import main
from gapless.client.sync import connect_sync
from gapless.content import matching
from gapless.packed.scan import ColumnScan, fallback
from gapless.testing import SyncOverlay


def test_doctor_shows_the_kernel_and_the_reason(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 0
    shown = capsys.readouterr().out
    assert matching.KERNEL in {"compiled", "fallback"}
    assert f"{matching.KERNEL}: " in shown
    assert gapless.__version__ in shown


def test_doctor_as_json_has_every_fact(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["gapless"] == gapless.__version__
    assert facts["python"].startswith(platform.python_version())
    assert facts["kernel"] == {"name": matching.KERNEL, "reason": matching.KERNEL_REASON}
    assert facts["column_scan"] == ("fallback" if ColumnScan is fallback.ColumnScan else "compiled")
    assert facts["packages"]["numpy"]
    assert {"compiler", "java", "platform", "executable"} <= facts.keys()


def test_a_missing_program_is_reported_as_not_found(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    diagnosis = doctor.diagnose()
    assert diagnosis.java is None
    assert diagnosis.compiler is None
    doctor.show(diagnosis)
    assert "not found" in capsys.readouterr().out


def test_a_missing_package_has_no_version() -> None:
    assert doctor.installed_version("gapless-package-that-is-not-there") is None


def test_a_program_that_fails_counts_as_not_found() -> None:
    assert doctor.first_line("false", "--version") is None


def test_doctor_looks_at_the_overlay_of_the_default_url_if_a_broker_answers(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with SyncOverlay("line:2", on_disk=False) as made:
        with connect_sync(made.url("b2")) as session, session.subscribe("", durable="desk"):
            pass
        url = made.url("b1")
        monkeypatch.setattr(doctor, "URL_DEFAULT", url)
        assert main(["doctor", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["overlay"]["subscriptions"] == 1
    assert main(["doctor"]) == 0, "a broker need not run"
    assert "not looked at: no broker listens" in " ".join(capsys.readouterr().out.split())
    monkeypatch.setenv("GAPLESS_URL", url)
    assert main(["doctor"]) != 0, "the broker of a given URL must answer"
