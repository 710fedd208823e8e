"""Clients that read a log: what they get, what is refused, and what they learn if nobody answers."""

from __future__ import annotations

from typing import Any

from gapless.core.ids import PubendId
from gapless.messages.clients import ReadLog, ReadPart
from gapless.messages.overlay import Quality
from gapless.messages.pubend_requests import Read, ReadReply
from gapless.messages.streams import ReadForm
from gapless.packed.pick import unpack, unpack_ticks
from tests.broker.harness import BrokerHarness, P, reason
from tests.scenarios.brokers import Client, of

FAR = 2**62


def library(**parameters: Any) -> tuple[BrokerHarness, list[int]]:
    """Return a world whose pubend P at p has four events, and their ticks."""
    world = BrokerHarness("p-n", **{"retention_s": 3_600, **parameters})
    ann = world.publisher("p")
    for number in range(4):
        ann.publish(f"e{number}", number=number)
        world.run(ms=10)
    return world, [*ann.ticks.values()]


def read(
    client: Client, wanted: str = "TRUE", low: int = 0, high: int = FAR, **options: Any
) -> Any:
    """Read P and return the answer."""
    pubend = options.pop("pubend", P)
    form, bytes_max = options.pop("form", ReadForm.EVENTS), options.pop("bytes_max", 0)
    request = ReadLog(client.number(), pubend, wanted, low, high, bytes_max, form)
    return client.call(request, **options)


def labels(part: Any) -> list[str]:
    assert isinstance(part, ReadPart), part
    return [each.payload.decode() for each in part.publications]


def test_a_client_reads_what_matches_wherever_the_pubend_is() -> None:
    world, ticks = library()
    for broker in ("p", "n"):
        part = read(world.client(broker), "number >= 2")
        assert labels(part) == ["e2", "e3"]
        assert part.done == part.top >= ticks[-1]
        assert part.released < ticks[0]


def test_every_form_of_a_part_tells_the_same_wherever_the_pubend_is() -> None:
    world, ticks = library()
    for broker in ("p", "n"):
        client = world.client(broker)
        for wanted in ("TRUE", "number >= 2", "number = 9"):
            events = read(client, wanted)
            rows = read(client, wanted, form=ReadForm.ROWS)
            counted = read(client, wanted, form=ReadForm.TICKS)
            assert unpack(rows.rows) == [*events.publications]
            assert unpack_ticks(counted.rows) == [each.tick for each in events.publications]
            assert rows.publications == counted.publications == events.rows == ()
            assert rows.done == counted.done == events.done >= ticks[-1]


def test_a_client_gets_as_much_at_once_as_it_asks_for_within_the_limit() -> None:
    world, ticks = library(read_chunk_bytes=1, read_bytes_max=60)
    client = world.client("p")
    for form in (ReadForm.EVENTS, ReadForm.ROWS):
        little = read(client, form=form)
        more = read(client, form=form, bytes_max=2**62)
        assert ticks[0] <= little.done < ticks[1] <= more.done < ticks[3]


def test_a_range_includes_both_of_its_ends() -> None:
    world, ticks = library()
    part = read(world.client("n"), low=ticks[1], high=ticks[2])
    assert labels(part) == ["e1", "e2"]
    assert part.done == ticks[2]


def test_a_part_ends_where_the_limit_is_and_says_so() -> None:
    world, ticks = library(read_chunk_bytes=1)
    part = read(world.client("n"))
    assert labels(part) == ["e0"]
    assert ticks[0] <= part.done < ticks[1]
    rest = read(world.client("n"), low=part.done + 1)
    assert labels(rest) == ["e1"]


def test_what_the_log_no_longer_has_is_said_to_be_released() -> None:
    world, ticks = library(retention_s=0)
    world.run(s=2)
    part = read(world.client("n"))
    assert labels(part) == []
    assert part.released >= ticks[-1]
    assert part.done >= part.released


def test_a_filter_that_is_none_is_refused_with_the_place() -> None:
    world, _ = library()
    assert "column 8" in reason(read(world.client("n"), "price >"))


def test_a_pubend_that_is_not_known_is_refused() -> None:
    world, _ = library()
    told = reason(read(world.client("n"), pubend=PubendId("nowhere")))
    assert told == "there is no pubend nowhere, as far as this broker knows"


def test_pubends_of_the_same_name_are_named() -> None:
    world, _ = library()
    (known,) = world["n"].components.announcements.pubends()
    told = reason(read(world.client("n"), pubend=PubendId(known.name, 7)))
    assert told.endswith(f"as far as this broker knows, but {known}")


def test_best_effort_has_no_log_to_read() -> None:
    world, _ = library()
    world.publisher("p", "Q", quality=Quality.BEST_EFFORT)
    told = reason(read(world.client("n"), pubend=PubendId("Q")))
    assert told == "the pubend Q is best effort: it has no log to read"


def test_a_range_that_is_none_is_refused() -> None:
    world, _ = library()
    assert reason(read(world.client("n"), low=9, high=8)) == "[9, 8] is no range"


def test_a_range_may_begin_before_all_ticks() -> None:
    world, _ = library()
    assert len(labels(read(world.client("n"), low=-5))) == 4


def test_a_broker_that_cannot_be_reached_is_said_to_be_so() -> None:
    world, _ = library(retry_max_ms=2_000)
    world.cut("p", "n")
    client = world.client("n")
    assert read(client, s=3) is None
    world.run(s=2)
    told = reason(client.answer(1))
    assert told == "the broker of P cannot be reached now; try again later"
    since = world.now
    world.heal("p", "n")
    world.run(s=3)
    assert world.sent_over(Read, "n", "p", since) == [], "nobody waits for it any more"
    assert len(client.notices) == 1


def test_an_answer_that_was_lost_is_asked_for_again() -> None:
    world, _ = library()
    lost = world.lose(of(ReadReply))
    client = world.client("n")
    assert read(client) is None
    lost.end()
    world.run(s=3)
    assert len(labels(client.answer(1))) == 4
    assert len(client.notices) == 1


def test_a_read_that_is_asked_under_the_same_number_takes_the_place_of_the_one_before() -> None:
    world, _ = library()
    client = world.client("n")
    client.request(ReadLog(1, P, "number = 0", 0, FAR))
    client.request(ReadLog(1, P, "number = 3", 0, FAR))
    world.run(s=1)
    (part,) = client.notices
    assert labels(part) == ["e3"]


def test_a_client_that_is_gone_is_told_nothing_and_nobody_asks_for_it() -> None:
    world, _ = library()
    world.cut("p", "n")
    client, other = world.client("n"), world.client("n", "other")
    client.request(ReadLog(1, P, "TRUE", 0, FAR))
    other.request(ReadLog(1, P, "TRUE", 0, FAR))
    client.leave()
    client.connect()
    world.heal("p", "n")
    world.run(s=5)
    assert client.notices == []
    assert len(labels(other.answer(1))) == 4


def test_a_read_that_meets_a_corrupt_row_gets_what_is_before_it_and_then_the_reason() -> None:
    world, ticks = library()
    world.nodes["p"].disk.corrupt.add(ticks[2])
    world.crash("p")
    world.restart("p")
    world.run(s=2)
    client = world.client("n")
    part = read(client)
    assert labels(part) == ["e0", "e1"]
    told = reason(read(client, low=part.done + 1))
    assert f"row {ticks[2]} is damaged" in told
    assert labels(read(client, low=ticks[3])) == ["e3"]
