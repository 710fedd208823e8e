"""Options of reads: values, defaults, and errors that name the valid values."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import pytest

from gapless.core.errors import FilterWarning, UsageError
from gapless.spark.columns import AttributeColumn, ColumnType
from gapless.spark.offsets import Offset
from gapless.spark.options import SourceOptions, parse_options
from gapless.spark.sink_options import parse_sink_options
from tests.guides import ROOT

SERVERS = {"servers": "gapless://127.0.0.1:7400"}


def parsed(**given: str) -> SourceOptions:
    return parse_options({**SERVERS, **given})


def test_the_shortest_query_reads_everything() -> None:
    options = parsed()
    assert (options.filter, options.pubends, options.start) == ("TRUE", (), None)


@pytest.mark.parametrize("text", ["gapless://a,b:7500", "gapless://a, gapless://b:7500/"])
def test_servers_are_urls_or_one_url_with_several_addresses(text: str) -> None:
    assert parse_options({"servers": text}).servers == ("gapless://a:7400", "gapless://b:7500")


def test_the_case_of_a_name_does_not_count() -> None:
    assert parsed(MAXEVENTSPERTRIGGER="5").events_max == 5
    assert parsed(onrelease="skip").on_release == "skip"


def test_a_task_reads_more_bytes_with_a_filter_unless_partition_bytes_is_given() -> None:
    plain, filtered = parsed(), parsed(filter="price > 1")
    assert filtered.partition_bytes == 4 * plain.partition_bytes
    assert parsed(filter="price > 1", partitionBytes="1000").partition_bytes == 1_000


def test_columns_have_types() -> None:
    assert parsed(columns="symbol STRING, `unit price`: double").columns == (
        AttributeColumn("symbol", ColumnType.STRING),
        AttributeColumn("unit price", ColumnType.DOUBLE),
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("latest", "latest"),
        ("earliest", "earliest"),
        ('{"quotes": 1700}', {"quotes": 1700}),
        ('{"positions": {"quotes": 1700}, "skipped": {"quotes": 3}}', {"quotes": 1700}),
        ("quotes:1700,orders:5", {"quotes": 1700, "orders": 5}),
        ("2026-01-31T08:00:00Z", datetime(2026, 1, 31, 8, tzinfo=UTC)),
    ],
)
def test_start_and_end_are_a_word_a_position_or_a_time(text: str, expected: object) -> None:
    assert parsed(start=text).start == expected
    assert parsed(end=text).end == expected


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"server": "x"}, "no option 'server'; there are .*servers"),
        ({"password": "x"}, "no option 'password': brokers authenticate users"),
        ({"api_key": "x"}, "no option 'api_key': brokers authenticate users"),
        ({"path": "x"}, "no path: name the pubends with the option pubends"),
        ({"servers": "http://x"}, "option servers: 'http://x' is not an address"),
        ({"servers": "gapless://x:99999"}, "option servers: .*'99999' is not a port"),
        ({"filter": "price >"}, "option filter: expected a value after '>'"),
        ({"pubends": " , "}, "option pubends: name some pubends"),
        ({"columns": "symbol"}, "option columns: cannot read 'symbol'"),
        ({"columns": "a STRING, a LONG"}, "option columns: 'a' is declared twice"),
        ({"columns": "tick LONG"}, "option columns: every row has a column 'tick' already"),
        ({"columns": "a DECIMAL"}, "option columns: 'a' cannot be 'DECIMAL'; .*STRING, BIGINT"),
        ({"start": "yesterday"}, "option start: 'yesterday' is neither 'latest', 'earliest'"),
        ({"start": "2026-01-31T08:00:00"}, "option start: .*has no time zone"),
        ({"end": '{"quotes": -1}'}, "option end: .*-1 is no tick of 'quotes'"),
        ({"end": "{1}"}, "option end: '.1.' is neither"),
        (
            {"maxEventsPerTrigger": "0"},
            "option maxEventsPerTrigger: '0' is not a number of at least 1",
        ),
        ({"partitionBytes": "many"}, "option partitionBytes: 'many' is not a number"),
        ({"reader": ""}, "option reader: reader has 1 to 256 characters, not 0"),
        ({"reader": "x" * 300}, "option reader: reader has 1 to 256 characters, not 300"),
        ({"reader": "a\x00b"}, "option reader: reader has the control character"),
        ({"start": '{"a":' * 3_000}, "option start: "),
        ({"pushDown": "maybe"}, "option pushDown: 'maybe' is neither 'true' nor 'false'"),
        ({"onRelease": "ignore"}, "option onRelease: 'ignore' is neither 'fail' nor 'skip'"),
        ({"deadline": "-1"}, "option deadline: '-1' is not a time in seconds above 0"),
    ],
)
def test_an_invalid_option_is_named_with_the_valid_values(
    given: dict[str, str], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        parse_options({**SERVERS, **given})


def test_a_filter_that_compares_with_a_name_is_warned_of() -> None:
    with pytest.warns(FilterWarning, match="write 'IBM' if IBM is a string"):
        parsed(filter='symbol = "IBM"')
    with pytest.warns(FilterWarning, match="write 'IBM' if IBM is a string"):
        parse_sink_options({**SERVERS, "advertisement": "symbol = IBM"})


def test_the_guide_names_every_option_of_reads_and_writes() -> None:
    guide = (ROOT / "docs/spark.md").read_text()
    named = {name.lower() for name in re.findall(r"^\| `(\w+)` \|", guide, re.MULTILINE)}
    for parse in (parse_options, parse_sink_options):
        with pytest.raises(UsageError, match="there are") as caught:
            parse({**SERVERS, "nothing": "x"})
        there = str(caught.value).partition("there are ")[2].split(", ")
        assert len(there) > 4
        assert {name.lower() for name in there} <= named


def test_servers_are_required() -> None:
    with pytest.raises(UsageError, match="option servers is missing"):
        parse_options({})


def test_options_of_streams_are_refused_in_a_batch_and_vice_versa() -> None:
    with pytest.raises(UsageError, match="maxEventsPerTrigger is for streaming"):
        parsed(maxEventsPerTrigger="5").refuse_for("batch")
    with pytest.raises(UsageError, match="option reader is for streaming"):
        parsed(reader="desk").refuse_for("batch")
    with pytest.raises(UsageError, match="option pushDown is for batches; use the option filter"):
        parsed(pushDown="true").refuse_for("streaming")
    with pytest.raises(UsageError, match=r"option end is for batches.*availableNow"):
        parsed(end="latest").refuse_for("streaming")


def test_an_offset_survives_a_checkpoint() -> None:
    offset = Offset({"b": 2, "a": 1}, {"a": 7})
    assert list(offset.stored()["positions"]) == ["a", "b"]
    assert Offset.of(offset.stored()) == Offset({"a": 1, "b": 2}, {"a": 7})


def test_a_checkpoint_of_another_source_is_refused() -> None:
    with pytest.raises(UsageError, match="checkpoint has no valid position"):
        Offset.of({"topic": {"0": 5}})
