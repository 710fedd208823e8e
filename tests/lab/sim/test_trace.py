"""Traces: readable lines, and digests of everything."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest

from gapless.core.effects import Notify, Send, Write
from gapless.core.events import ClientRequest, Received, Written
from gapless.core.ids import PubendId, ShbId, VectorEntry, VirtualTime
from gapless.core.ticks import TickRange
from gapless.messages import (
    clients,
    mobility,
    overlay,
    plans,
    propagation,
    records,
    reshape,
    staging,
    streams,
)
from gapless.messages import pubend_requests as requests
from gapless.messages.clients import Credit, Published, SetFilter
from gapless.messages.overlay import Packet, PeerSessionId, Quality
from gapless.messages.propagation import TableDelta, TableFull, TableId
from gapless.messages.records import DeleteRecord
from gapless.messages.streams import KnowledgeRange, Nack, Publication, StreamSilence
from gapless_lab.sim.options import SimulationOptions
from gapless_lab.sim.runner import run_options
from gapless_lab.sim.trace import EVENT_CODES, SHOWN_MAX, Trace
from gapless_lab.sim.trace_format import LISTED, WALL_START, TraceFormatter
from gapless_lab.sim.trace_forms import FORMS

MODULES = (
    clients,
    mobility,
    overlay,
    plans,
    propagation,
    records,
    requests,
    reshape,
    staging,
    streams,
)
P = PubendId("P")


def messages() -> list[type[msgspec.Struct]]:
    found = [getattr(module, name) for module in MODULES for name in module.__all__]
    return [each for each in found if isinstance(each, type) and issubclass(each, msgspec.Struct)]


def lines_of(*steps: tuple[Any, list[Any]]) -> list[str]:
    lines: list[str] = []
    trace = Trace(lines.append)
    for event, effects in steps:
        trace.step(25_087, "b1", event, effects)
    return lines


# --- forms ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", messages(), ids=lambda each: each.__name__)
def test_every_message_and_record_has_a_short_form(kind: type) -> None:
    assert kind in FORMS


def test_every_event_of_a_step_has_a_short_form() -> None:
    assert EVENT_CODES.keys() - {type(None)} <= FORMS.keys()


@pytest.mark.parametrize("kind", FORMS, ids=lambda each: each.__name__)
def test_a_form_names_only_existing_fields(kind: type) -> None:
    named = set(re.findall(r"\{(\w+)\}", FORMS[kind]))
    assert named <= {*kind.__struct_fields__, "constraint"}  # type: ignore[attr-defined]
    assert all("{" in part for part in re.findall(r"<([^<>]*)>", FORMS[kind]))


def test_a_kind_without_a_form_is_written_with_its_name_and_its_fields() -> None:
    class Oddity(msgspec.Struct):
        name: str
        quality: Quality = Quality.BEST_EFFORT
        nothing: int | None = None

    assert TraceFormatter().format(Oddity("x")) == "Oddity name x quality best effort"


# --- values ---------------------------------------------------------------------------------------


def test_all_times_are_relative_to_the_start_of_the_run() -> None:
    tick = WALL_START + 25_087
    assert (
        TraceFormatter().format(Nack(P, (TickRange(tick, tick + 5),)))
        == "Nack P ([0.025087, 0.025092])"
    )
    assert TraceFormatter().format(PeerSessionId(tick, 2)) == "0.025087/2"
    assert TraceFormatter().format(Published(7, (tick - 30_000,))) == "Published 7: (-0.004913)"
    assert TraceFormatter().format(Published(7, (0, 12_345))) == "Published 7: (0, 12345)"


def test_ids_are_written_in_their_usual_form() -> None:
    text = TraceFormatter().format((ShbId("b", "c"), VirtualTime(7, 2), PubendId("P", 2)))
    assert text == "(b@c, 7:2, P#2)"
    assert TraceFormatter().format(Quality.BEST_EFFORT) == "best effort"
    assert (
        TraceFormatter().format(VectorEntry(VirtualTime(7, 2), 3, retired=True))
        == "7:2 cv3 retired"
    )


def test_the_record_of_a_cell_has_its_members_its_edges_and_its_version() -> None:
    record = overlay.CellRecord.first("n0", ("n0b", "n0a"), ("n1",))
    assert (
        TraceFormatter().format(record)
        == "n0 (n0a, n0b) by (n1 t0 s1) led by n0a t0 shape t0 s1 m1"
    )
    member = overlay.CellMember("n0a", overlay.CellRole.REPLACED, ("host:1",))
    assert TraceFormatter().format(member) == 'n0a replaced at ("host:1")'
    assert TraceFormatter().format(overlay.Term(2, "n0a")) == "t2 n0a"


def test_long_lists_and_texts_are_shortened_with_a_count() -> None:
    text = TraceFormatter().format(Published(1, tuple(range(LISTED + 3))))
    assert text == "Published 1: (0, 1, 2, 3, … 3 more)"
    text = TraceFormatter().format(SetFilter(1, "s", "x = 1 OR " * 20 + "y"))
    assert text.endswith('x = 1 … 121 more characters"')


def test_empty_and_zero_fields_are_omitted_where_that_is_usual() -> None:
    event = Publication(WALL_START, "p", 3, {"kind": "a", "hot": True}, b"")
    knowledge = KnowledgeRange(WALL_START, WALL_START, 4, 0, (event,))
    assert (
        TraceFormatter().format(knowledge)
        == "[0.000000, 0.000000] e4 (0.000000 p/3 {kind=a hot=yes})"
    )
    silence = StreamSilence(
        ((P, 2, KnowledgeRange(1, 5, 4, 6), True), (P, 3, KnowledgeRange(6, 7, 4, 0), False))
    )
    assert (
        TraceFormatter().format(silence)
        == "StreamSilence (P #2 first [1, 5] e4 cv6, P #3 [6, 7] e4)"
    )


# --- the constraint of a change (R19) ---------------------------------------------------------------

TABLE = TableId("a", 1, "n")
S, T = ShbId("s", "n"), ShbId("t", "n")


def whole(part: int, *entries: tuple[ShbId, int]) -> TableFull:
    vector = tuple((shb, VectorEntry(VirtualTime(1, counter))) for shb, counter in entries)
    return TableFull(TABLE, 5, part, 2, (), vector, (), (), 0)


def change(base: int, *entries: tuple[ShbId, int], forgotten: tuple[ShbId, ...] = ()) -> TableDelta:
    vector = tuple((shb, VectorEntry(VirtualTime(1, counter))) for shb, counter in entries)
    return TableDelta(TABLE, base, base + 1, (), (), vector, forgotten, (), (), (), 0)


def test_a_table_delta_is_written_with_the_entries_of_its_base() -> None:
    formatter = TraceFormatter()
    for part in (whole(0, (S, 3)), whole(1, (T, 4))):
        formatter.format(part)
    assert "v5 to v6 if (s@n 1:3, t@n 1:4) entries (s@n 1:9)" in formatter.format(change(5, (S, 9)))
    assert "v6 to v7 if (s@n 1:9, t@n 1:4) removes (t@n)" in formatter.format(
        change(6, forgotten=(T,))
    )
    assert "v7 to v8 if (s@n 1:9)" in formatter.format(change(7))
    assert "if (unknown)" in formatter.format(change(20))


def test_a_table_delta_is_known_also_if_its_packet_was_shortened() -> None:
    formatter = TraceFormatter()
    ends = PeerSessionId(1, 1), PeerSessionId(2, 1)
    formatter.format(Packet(*ends, 1, (*[Nack(P, ())] * 9, whole(0, (S, 3)))))
    assert "if (s@n 1:3)" in formatter.format(change(5))


# --- lines ----------------------------------------------------------------------------------------


def test_a_line_has_time_broker_event_and_effects() -> None:
    event = ClientRequest("c.1", SetFilter(4, "s", "price < 3"))
    lines = lines_of((event, [Write(2, ()), Notify("c.1", Credit("s", 1))]))
    asked = 'c.1 requests SetFilter 4: s "price < 3"'
    assert lines == [f"    0.025087 b1     {asked} => write 2; notifies c.1 Credit s 1"]


def test_effects_that_do_not_fit_continue_on_the_next_lines() -> None:
    effects = [
        Write(number, (DeleteRecord(("incarnation", "a name of some length", str(number))),))
        for number in range(5)
    ]
    lines = lines_of((Written(1), effects))
    assert lines[0] == "    0.025087 b1     write 1 is on disk"
    assert (
        lines[3]
        == '    0.025087 b1       => write 2: erases (incarnation, "a name of some length", 2)'
    )
    assert len(lines) == 6


def test_steps_in_which_only_time_passed_have_no_line() -> None:
    assert lines_of((None, [])) == []
    assert lines_of((None, [Write(1, ())])) == ["    0.025087 b1     time passes => write 1"]


def test_omitted_contents_are_in_the_digest() -> None:
    digests = []
    for last in (1, 2):
        trace = Trace(lambda _: None)
        trace.step(
            0, "b1", Received("b2", Nack(P, (*[TickRange(0, 1)] * 9, TickRange(5, 5 + last)))), []
        )
        digests.append(trace.text_digest)
    assert digests[0] != digests[1]


def test_a_run_of_the_broker_is_written_in_short_lines() -> None:
    lines: list[str] = []
    result = run_options(
        SimulationOptions(seed=5, cells=4, safety_ms=600, rates={"crash": 2.0}), sink=lines.append
    )
    assert not result.violations
    steps = [line for line in lines[1:] if " ** " not in line]
    assert len(steps) > 200
    assert max(map(len, steps)) < SHOWN_MAX + 60
    assert sum(map(len, steps)) / len(steps) < 160
    assert not any(re.search(r"\b1[67]\d{14}|Struct|object at", line) for line in lines)
    deltas = [line for line in steps if "TableDelta" in line]
    assert deltas
    assert all(re.search(r"v\d+ to v\d+ if \((n\da@n\d [\d.]+:\d+)", line) for line in deltas)
    assert any(
        re.search(r"=> .*to n\da .*StreamData P\d #\d+ first \[[\d.]+, [\d.]+\] e\d+ ", line)
        for line in steps
    )


def test_writing_lines_does_not_change_a_run() -> None:
    options = SimulationOptions(seed=5, cells=2, safety_ms=300)
    with_lines, without_lines = run_options(options, sink=lambda _: None), run_options(options)
    assert with_lines.trace_hash == without_lines.trace_hash
    assert with_lines.text_hash
    assert not without_lines.text_hash


def test_a_packet_is_written_with_its_peer_its_session_and_its_messages() -> None:
    packet = Packet(
        PeerSessionId(WALL_START, 2), PeerSessionId(2, 1), 7, (Nack(P, ()), Nack(P, ()))
    )
    (line,) = lines_of((Received("b2", packet), [Send("b3", packet)]))
    text = "0.000000/2 #7: Nack P (); Nack P ()"
    assert line.endswith(f" from b2 {text} => to b3 {text}")
