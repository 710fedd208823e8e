"""The command line as a whole: exit codes, errors, interruption."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import typer.main

import gapless
from gapless.cli import doctor, entry
from gapless.cli.main import (
    EXIT_DISK,
    EXIT_FOUND,
    EXIT_INTERRUPTED,
    EXIT_NO_BROKER,
    EXIT_REFUSED,
    EXIT_WRONG_INPUT,
    app,
    exit_code,
    main,
)
from gapless.core import errors
from gapless.core.errors import UsageError

PAGE = (Path(__file__).resolve().parent.parent.parent / "docs" / "commands.md").read_text()


def test_version_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"gapless {gapless.__version__}\n"


def commands(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield every command as users type it."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name)


COMMANDS = sorted(commands(typer.main.get_command(app)))


def test_help_names_every_command_and_the_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    for name, *_ in COMMANDS:
        assert f" {name} " in shown
    assert "130 interrupted" in shown
    assert "--install-completion" in shown


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_has_help_and_json(
    command: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command, "--help"]) == 0
    shown = capsys.readouterr().out
    assert f"gapless {' '.join(command)}" in shown
    assert "--json" in shown or command == ("broker",), "a broker prints nothing"
    assert f"`gapless {' '.join(command)}" in PAGE, "docs/commands.md does not know it"


def test_the_page_has_the_exit_codes() -> None:
    rows = re.findall(r"^\| (\d+) \|", PAGE, re.MULTILINE)
    codes = [EXIT_FOUND, EXIT_WRONG_INPUT, EXIT_DISK, EXIT_NO_BROKER, EXIT_REFUSED]
    assert [*map(int, rows)] == [0, *codes, EXIT_INTERRUPTED]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.FilterSyntaxError("no", "no", 0), EXIT_WRONG_INPUT),
        (errors.RefusedError("no"), EXIT_REFUSED),
        (errors.UnavailableError("not now"), EXIT_NO_BROKER),
        (errors.OutcomeUnknownError("perhaps"), EXIT_NO_BROKER),
        (errors.ConnectionLostError("gone"), EXIT_NO_BROKER),
        (errors.DiskFullError("full"), EXIT_DISK),
        (errors.CorruptionError("corrupt"), EXIT_FOUND),
    ],
)
def test_an_error_has_the_exit_code_of_its_class(error: errors.GaplessError, code: int) -> None:
    assert exit_code(error) == code


def test_a_file_that_cannot_be_written_is_one_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(**options: object) -> doctor.Diagnosis:
        del options
        raise PermissionError(13, "Permission denied", "/etc/shadow")

    monkeypatch.setattr(doctor, "diagnose", fail)
    assert main(["doctor", "--json"]) == EXIT_DISK
    output = json.loads(capsys.readouterr().err)
    assert output == {"error": "/etc/shadow: Permission denied"}


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
    def interrupt(**options: object) -> doctor.Diagnosis:
        del options
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


def test_a_filter_that_is_read_as_an_option_gets_a_hint(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "-a > 1"]) == EXIT_WRONG_INPUT
    assert "gapless explain -- '-a > 1'" in capsys.readouterr().err
    assert main(["explain", "--", "-a > 1"]) == 0
    assert "-a > 1" in capsys.readouterr().out
    assert main(["explain"]) == EXIT_WRONG_INPUT
    assert "hint" not in capsys.readouterr().err


def test_an_invalid_environment_is_one_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Refusing(ModuleType):
        def __getattr__(self, name: str) -> object:
            raise UsageError("kernel 'fast' is neither 'compiled' nor 'fallback'")

    monkeypatch.setitem(sys.modules, "gapless.cli.main", Refusing("gapless.cli.main"))
    monkeypatch.setattr(sys, "argv", ["gapless", "doctor"])
    assert entry.main() == EXIT_WRONG_INPUT
    captured = capsys.readouterr()
    assert captured.err == "error: kernel 'fast' is neither 'compiled' nor 'fallback'\n"
    monkeypatch.setattr(sys, "argv", ["gapless", "--debug", "doctor", "--json"])
    assert entry.main() == EXIT_WRONG_INPUT
    captured = capsys.readouterr()
    assert "Traceback" in captured.err
    assert json.loads(captured.err.splitlines()[-1])["error"].startswith("kernel 'fast'")


def test_an_interrupt_while_the_program_is_imported_is_one_line() -> None:
    program = (
        "import sys\n"
        "from gapless.cli.entry import main\n"
        "class Interrupting:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'gapless.cli.main': raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupting())\n"
        "sys.exit(main())\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stderr) == (130, "interrupted\n")


def test_the_package_can_be_imported_without_choosing_a_kernel() -> None:
    program = "import sys, gapless, gapless.cli.entry; sys.exit('gapless.content' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        _ = gapless.nonsense
