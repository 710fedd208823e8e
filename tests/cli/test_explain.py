"""``gapless explain``."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gapless import Filter
from gapless.cli.main import main

SELECTOR = "price > 90 AND symbol = 'IBM' OR urgent = TRUE"


def explained(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main(["explain", *arguments, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert isinstance(document, dict)
    return document


def test_explain_shows_the_canonical_text_and_the_conjunctions(
    capsys: pytest.CaptureFixture[str],
) -> None:
    document = explained(capsys, SELECTOR)
    assert document["filter"] == str(Filter(SELECTOR))
    assert [each["text"] for each in document["conjunctions"]] == [
        str(each) for each in Filter(SELECTOR).conjunctions
    ]
    assert "matches" not in document


def test_explain_shows_which_condition_an_event_fails(capsys: pytest.CaptureFixture[str]) -> None:
    document = explained(capsys, SELECTOR, '{"price": 95, "symbol": "SUN"}')
    assert document["matches"] is False
    holds = {
        part["subject"]: part["holds"]
        for conjunction in document["conjunctions"]
        for part in conjunction["parts"]
    }
    assert holds == {"price": True, "symbol": False, "urgent": False}


def test_explain_agrees_with_the_filter(capsys: pytest.CaptureFixture[str]) -> None:
    for event in ('{"urgent": true}', '{"urgent": 1}', '{"price": 91, "symbol": "IBM"}', "{}"):
        document = explained(capsys, SELECTOR, event)
        assert document["matches"] is Filter(SELECTOR).matches(json.loads(event))


def test_explain_evaluates_arithmetic_over_several_attributes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    document = explained(capsys, "price * volume > 1000", '{"price": 90, "volume": 10}')
    assert document["matches"] is False
    failing = [part for part in document["conjunctions"][0]["parts"] if not part["holds"]]
    assert [part["value"] for part in failing] == [900]


def test_explain_as_text_names_the_deciding_value(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["explain", SELECTOR, '{"price": 95, "symbol": "it\'s"}']) == 0
    shown = capsys.readouterr().out
    assert "symbol: 'it''s'" in shown
    assert "urgent: no value" in shown
    assert "does not match" in shown


def test_explain_shows_filters_that_match_everything_or_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["explain", "", "{}"]) == 0
    assert "every event" in capsys.readouterr().out
    assert main(["explain", "price > 2 AND price < 1", '{"price": 1}']) == 0
    assert "no event can match" in capsys.readouterr().out


@pytest.mark.parametrize(
    "event",
    ["", "[]", "{", '{"a": [1]}', '{"a": {"b": 1}}', '{"a": 99999999999999999999}'],
)
def test_an_invalid_event_is_an_error(event: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "a = 1", event]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: ")
    assert "Traceback" not in captured.err
