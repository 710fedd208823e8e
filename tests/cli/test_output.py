"""Texts from other programs on a terminal and in pipes."""

from __future__ import annotations

import json

import pytest

from gapless.cli import output
from gapless.cli.logs import event_line
from gapless.cli.output import (
    console,
    facts,
    joined,
    listing,
    print_error,
    print_json,
    print_json_line,
    print_note,
    print_traceback,
    styled,
)
from gapless.messages.streams import Publication

EVIL = "desk\x1b[2J\x9b31m\r\u202e\u200f\u061c\u2028"
UNSAFE = {each for each in EVIL if not each.isprintable()}


class Shown:
    """Is shown in errors as it is."""

    def __repr__(self) -> str:
        return EVIL


def test_control_characters_of_names_are_escaped_in_all_output(
    capsys: pytest.CaptureFixture[str],
) -> None:
    console().print(listing("name", rows=[(EVIL,)]))
    console().print(facts([("name", EVIL)]))
    console().print(f"the subscription {EVIL}")
    print_error(f"no subscription {EVIL}", as_json=False)
    print_error(f"no subscription {EVIL}", as_json=True)
    print_note(EVIL)
    print_json({"name": EVIL})
    print_json_line({"name": EVIL})
    console().print(styled(EVIL, "red"))
    console().print(joined(styled("a name: ", "bold"), EVIL))
    try:
        dict[Shown, int]()[Shown()]
    except KeyError:
        print_traceback()
    captured = capsys.readouterr()
    for text in (captured.out, captured.err):
        assert not UNSAFE & set(text)
    assert captured.out.count("desk\\x1b[2J\\x9b31m\\r\\u202e") == 5
    assert captured.err.count("desk\\x1b[2J\\x9b31m\\r\\u202e") == 3


def test_control_characters_of_an_event_are_escaped_and_keep_their_value() -> None:
    line = event_line(EVIL, Publication(1, EVIL, 1, {EVIL: EVIL}, EVIL.encode()))
    assert not UNSAFE & set(line.decode())
    found = json.loads(line)
    assert found["attributes"] == {EVIL: EVIL}
    assert found["payload"] == found["pubend"] == found["publisher"] == EVIL


@pytest.mark.parametrize("rows_max", [0, 100])
def test_a_name_cannot_pass_for_another_line_of_a_table(
    rows_max: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "RICH_ROWS_MAX", rows_max)
    output.print_listing("name", "state", rows=[("desk\nb1  removed", "live")])
    console().print(facts([("name", "desk\nb1  removed")]))
    print_note("waiting for desk\nb1 is removed")
    captured = capsys.readouterr()
    assert len(captured.out.splitlines()) == 3
    assert len(captured.err.splitlines()) == 1


def test_json_output_keeps_the_value_of_a_name(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"name": EVIL})
    assert json.loads(capsys.readouterr().out) == {"name": EVIL}


def test_the_lines_of_a_table_in_a_pipe_end_without_spaces(
    capsys: pytest.CaptureFixture[str],
) -> None:
    console().print(listing("name", "position", rows=[("a", "x" * 400), ("b", "y")]))
    lines = capsys.readouterr().out.splitlines()
    assert [line.rstrip() for line in lines] == lines
    assert lines[2].split() == ["b", "y"]


def test_square_brackets_of_a_text_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    console().print("the stream [red]quotes[/red]")
    assert capsys.readouterr().out == "the stream [red]quotes[/red]\n"


def test_a_long_table_is_printed_as_plain_lines_with_the_same_content(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [("desk", "1,200", "a = 1"), ("x\x1b[2J", "0", "")]
    output.print_listing("name", "behind", "filter", rows=rows)
    short = capsys.readouterr().out
    monkeypatch.setattr(output, "RICH_ROWS_MAX", 1)
    monkeypatch.setattr(output, "listing", None)  # the slow layout is not used
    output.print_listing("name", "behind", "filter", rows=rows)
    assert capsys.readouterr().out == short
    assert short.splitlines()[2].startswith("x\\x1b[2J")
