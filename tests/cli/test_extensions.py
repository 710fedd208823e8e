"""Subcommands of other packages: found by entry points; the product works without them."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
import typer
import typer.main

from gapless.cli import extensions
from gapless.cli.extensions import GROUP, add_commands
from gapless.cli.main import EXIT_WRONG_INPUT, app
from gapless.core.errors import UsageError

LAB = {"chaos", "demo", "lab", "sim"}
"""The commands of gapless_lab, beside ``spark sweep``."""


def greet(name: str) -> None:
    """Print a greeting."""
    typer.echo(f"hello {name}")


tools = typer.Typer()
tools.command("greet")(greet)


@tools.callback()
def tools_callback() -> None:
    """Make this a group, although it has one command."""


def entry(name: str, value: str) -> EntryPoint:
    return EntryPoint(name, value, GROUP)


def extended(monkeypatch: pytest.MonkeyPatch, *entries: EntryPoint) -> typer.Typer:
    """Return a command line with a group ``spark`` and the commands of these entry points."""

    def found(*, group: str) -> tuple[EntryPoint, ...]:
        assert group == GROUP
        return entries

    monkeypatch.setattr(extensions, "entry_points", found)
    made, spark = typer.Typer(), typer.Typer()

    @made.callback()
    def callback() -> None:
        """Make this a group, although it may have one command."""

    @spark.callback()
    def spark_callback() -> None:
        """Make this a group, although it may have no command."""

    made.add_typer(spark, name="spark")
    add_commands(made, {"spark": spark})
    return made


def run(made: typer.Typer, *arguments: str) -> None:
    made(args=list(arguments), prog_name="gapless", standalone_mode=False)


def test_the_commands_of_the_lab_are_found_by_their_entry_points() -> None:
    command = typer.main.get_command(app)
    groups = getattr(command, "commands")  # noqa: B009  # typer hides click's types
    assert groups.keys() >= LAB
    assert "sweep" in groups["spark"].commands


def test_a_function_becomes_a_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = extended(monkeypatch, entry("greet", f"{__name__}:greet"))
    run(made, "greet", "Ada")
    assert capsys.readouterr().out == "hello Ada\n"


def test_a_typer_becomes_a_group_of_commands(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = extended(monkeypatch, entry("tools", f"{__name__}:tools"))
    run(made, "tools", "greet", "Ada")
    assert capsys.readouterr().out == "hello Ada\n"


def test_an_entry_point_of_two_words_becomes_a_command_of_a_group(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = extended(monkeypatch, entry("spark greet", f"{__name__}:greet"))
    run(made, "spark", "greet", "Ada")
    assert capsys.readouterr().out == "hello Ada\n"


@pytest.mark.parametrize("arguments", [(), ("run", "figure"), ("--seeds", "4"), ("--help",)])
def test_a_command_whose_package_is_missing_names_the_extra_to_install(
    monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    made = extended(monkeypatch, entry("draw", "no_such_package.draw:draw [lab]"))
    with pytest.raises(UsageError) as found:
        run(made, "draw", *arguments)
    assert str(found.value) == (
        "gapless draw needs the package no_such_package, which is not installed: "
        'pip install "gapless[lab]"'
    )


def test_a_command_of_a_group_whose_package_is_missing_names_all_its_extras(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = extended(monkeypatch, entry("spark sweep", "no_such_package:sweep [lab,spark]"))
    with pytest.raises(
        UsageError, match=r'^gapless spark sweep .*: pip install "gapless\[lab,spark\]"$'
    ):
        run(made, "spark", "sweep")


def test_a_command_without_extras_names_the_missing_package(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = extended(monkeypatch, entry("draw", "no_such_package:draw"))
    with pytest.raises(UsageError, match=r"pip install no_such_package$"):
        run(made, "draw")


def test_a_command_whose_package_is_installed_but_broken_does_not_ask_to_install_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "broken_package.py").write_text("from typer import no_such_name\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    made = extended(monkeypatch, entry("draw", "broken_package:draw [lab]"))
    with pytest.raises(
        UsageError, match=r"^gapless draw cannot be loaded: .*no_such_name"
    ) as found:
        run(made, "draw")
    assert "install" not in str(found.value)


def test_a_missing_command_does_not_hide_the_others(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = extended(
        monkeypatch,
        entry("draw", "no_such_package:draw"),
        entry("greet", f"{__name__}:greet"),
    )
    run(made, "greet", "Ada")
    assert capsys.readouterr().out == "hello Ada\n"


def without_the_lab(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command line in a process that cannot import gapless_lab."""
    program = (
        "import sys; sys.modules['gapless_lab'] = None; "
        "from gapless.cli.entry import main; sys.exit(main())"
    )
    return subprocess.run(  # our own program
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=False
    )


def test_the_product_has_a_working_command_line_without_the_lab() -> None:
    done = without_the_lab("explain", "price > 90")
    assert (done.returncode, done.stderr) == (0, "")
    assert "price" in done.stdout


def test_a_command_of_the_lab_fails_with_the_name_of_the_missing_package() -> None:
    done = without_the_lab("sim", "run", "--seeds", "1")
    assert done.returncode == EXIT_WRONG_INPUT
    assert "gapless sim needs the package gapless_lab, which is not installed" in done.stderr
