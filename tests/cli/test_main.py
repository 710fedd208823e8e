"""The command line as a whole: exit codes, errors, interruption."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import gapless
from gapless.cli import doctor
from gapless.cli.main import EXIT_INTERRUPTED, EXIT_WRONG_INPUT, main


def test_version_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"gapless {gapless.__version__}\n"


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    assert "doctor" in shown
    assert "explain" in shown


def test_a_filter_error_is_one_block_with_the_caret_under_its_column(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["explain", "price >"]) == EXIT_WRONG_INPUT
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: ")
    shown, caret = captured.err.splitlines()[-2:]
    assert shown == "  price >"
    assert caret.rstrip() == " " * caret.index("^") + "^"
    assert "Traceback" not in captured.err


def test_a_filter_error_as_json_is_one_document(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "price >", "--json"]) == EXIT_WRONG_INPUT
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "price >" in json.loads(captured.err)["error"]


def test_debug_adds_the_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--debug", "explain", "price >"]) == EXIT_WRONG_INPUT
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["nonsense"], ["explain"], ["doctor", "--nonsense"]])
def test_a_wrong_command_line_exits_with_two(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == EXIT_WRONG_INPUT
    assert "Traceback" not in capsys.readouterr().err


def test_an_interruption_is_quiet(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt() -> doctor.Diagnosis:
        raise KeyboardInterrupt

    monkeypatch.setattr(doctor, "diagnose", interrupt)
    assert main(["doctor"]) == EXIT_INTERRUPTED
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "Traceback" not in captured.err


def test_the_module_runs_as_the_command() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "gapless", "--version"], capture_output=True, text=True, check=True
    )
    assert ran.stdout == f"gapless {gapless.__version__}\n"
