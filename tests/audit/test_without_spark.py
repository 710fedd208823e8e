"""The second audit of the demo is skipped with a message if Spark is not installed."""

from __future__ import annotations

from pathlib import Path

import pytest

from gapless.cli.main import main
from gapless.spark import extra
from gapless_lab.commands.demo_audit import audit_and_profile


def test_without_spark_the_second_audit_is_skipped_with_a_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(extra, "_PACKAGES", ("pyspark_that_nobody_has",))
    assert audit_and_profile(tmp_path, tmp_path / "overlay.toml")
    output = capsys.readouterr().err
    assert "no second audit with Spark" in output
    assert "pip install" in output


def test_the_demo_does_not_mix_tables_into_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--spark", "--json"]) == 2
    assert "gapless spark audit" in capsys.readouterr().err
