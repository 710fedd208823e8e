"""``docs/protocol.md`` agrees with the sources."""

from __future__ import annotations

import json
from pathlib import Path
from typing import get_args

import pytest

from gapless.cli import protocol
from gapless.cli.main import main
from gapless.wire.codec import Notice, Request

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "protocol.md"


def test_the_page_is_current() -> None:
    assert PAGE.read_text() == protocol.document(), "make it anew: gapless protocol > " + str(PAGE)


def test_the_page_has_every_message(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["protocol"]) == 0
    page = capsys.readouterr().out
    for kind in (*get_args(Request), *get_args(Notice)):
        assert f"### `{kind.__name__}`\n" in page


def test_fields_have_their_types_defaults_and_notes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["protocol", "--json"]) == 0
    requests = json.loads(capsys.readouterr().out)["requests"]
    (subscribe,) = [each for each in requests if each["name"] == "Subscribe"]
    fields = {each["name"]: each for each in subscribe["fields"]}
    assert fields["filter"] == {
        "name": "filter",
        "type": "str | None",
        "default": None,
        "about": "None: a durable subscription continues with the filter that it has.",
    }
    assert fields["start"]["default"] == "StartPoint()"
    assert fields["order"]["default"] == "PUBLISHER"
    assert fields["credit"]["about"].startswith("How many events the client accepts")
