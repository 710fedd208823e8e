"""Clients that read a log: results, refusals, and the reason when the pubend does not answer."""

from __future__ import annotations

from typing import Any

from gapless.core.events import ClientDrained, ClientFull
from gapless.core.ids import PubendId
from gapless.core.limits import READS_PER_CLIENT_MAX, READS_WAITING_PER_CLIENT_MAX
from gapless.messages.overlay import Quality
from gapless.messages.pubend_requests import Read, ReadReply
from gapless.messages.reading import ReadLog, ReadPart
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


def test_a_client_reads_matching_events_of_a_local_and_a_remote_pubend() -> None:
    world, ticks = library()
    for broker in ("p", "n"):
        part = read(world.client(broker), "number >= 2")
        assert labels(part) == ["e2", "e3"]
        assert part.done == part.top >= ticks[-1]
        assert part.released < ticks[0]


def test_every_form_of_a_part_has_the_same_events_for_a_local_and_a_remote_pubend() -> None:
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


def test_a_client_gets_as_many_bytes_as_it_requests_within_the_limit() -> None:
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


def test_a_part_ends_at_the_limit_and_gives_its_last_tick() -> None:
    world, ticks = library(read_chunk_bytes=1)
    part = read(world.client("n"))
    assert labels(part) == ["e0"]
    assert ticks[0] <= part.done < ticks[1]
    rest = read(world.client("n"), low=part.done + 1)
    assert labels(rest) == ["e1"]


def test_ticks_below_the_log_are_answered_as_released() -> None:
    world, ticks = library(retention_s=0)
    world.run(s=2)
    part = read(world.client("n"))
    assert labels(part) == []
    assert part.released >= ticks[-1]
    assert part.done >= part.released


def test_an_invalid_filter_is_refused_with_the_column_of_the_error() -> None:
    world, _ = library()
    assert "column 8" in reason(read(world.client("n"), "price >"))


def test_a_read_of_an_unknown_pubend_is_refused() -> None:
    world, _ = library()
    text = reason(read(world.client("n"), pubend=PubendId("nowhere")))
    assert text == "the pubend nowhere is not known at this broker"


def test_a_refusal_lists_the_pubends_of_one_name() -> None:
    world, _ = library()
    (known,) = world["n"].components.announcements.pubends()
    text = reason(read(world.client("n"), pubend=PubendId(known.name, 7)))
    assert text.endswith(f"is not known at this broker, but {known}")


def test_a_read_of_a_best_effort_pubend_is_refused() -> None:
    world, _ = library()
    world.publisher("p", "Q", quality=Quality.BEST_EFFORT)
    text = reason(read(world.client("n"), pubend=PubendId("Q")))
    assert text == "the pubend Q is best effort and has no log to read"


def test_an_invalid_range_is_refused() -> None:
    world, _ = library()
    assert reason(read(world.client("n"), low=9, high=8)) == "[9, 8] is not a valid range"


def test_a_range_may_start_below_tick_zero() -> None:
    world, _ = library()
    assert len(labels(read(world.client("n"), low=-5))) == 4


def test_an_unreachable_broker_is_named_as_the_reason() -> None:
    world, _ = library(retry_max_ms=2_000)
    world.cut("p", "n")
    client = world.client("n")
    assert read(client, s=3) is None
    world.run(s=2)
    text = reason(client.answer(1))
    assert text == "the broker of P cannot be reached now; retry later"
    since = world.now
    world.heal("p", "n")
    world.run(s=3)
    assert world.sent_over(Read, "n", "p", since) == [], "the request is not repeated any more"
    assert len(client.notices) == 1


def test_a_lost_reply_is_requested_again() -> None:
    world, _ = library()
    lost = world.lose(of(ReadReply))
    client = world.client("n")
    assert read(client) is None
    lost.end()
    world.run(s=3)
    assert len(labels(client.answer(1))) == 4
    assert len(client.notices) == 1


def test_a_read_with_the_same_request_number_replaces_the_former_one() -> None:
    world, _ = library()
    client = world.client("n")
    client.request(ReadLog(1, P, "number = 0", 0, FAR))
    client.request(ReadLog(1, P, "number = 3", 0, FAR))
    world.run(s=1)
    (part,) = client.notices
    assert labels(part) == ["e3"]


def test_the_read_of_a_disconnected_client_is_cancelled() -> None:
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


def test_a_read_returns_the_events_before_a_corrupt_row_and_then_the_reason() -> None:
    world, ticks = library()
    world.nodes["p"].disk.corrupt.add(ticks[2])
    world.crash("p")
    world.restart("p")
    world.run(s=2)
    client = world.client("n")
    part = read(client)
    assert labels(part) == ["e0", "e1"]
    text = reason(read(client, low=part.done + 1))
    assert f"row {ticks[2]} is corrupt" in text
    assert labels(read(client, low=ticks[3])) == ["e3"]


def test_a_client_has_a_bounded_number_of_reads_at_once_and_all_are_answered() -> None:
    world, _ = library()
    client = world.client("n")
    requests = [ReadLog(client.number(), P, "TRUE", 0, FAR, 0, ReadForm.EVENTS) for _ in range(30)]
    for request in requests:
        client.request(request)
    assert started_reads(world, client) == [
        each.request for each in requests[:READS_PER_CLIENT_MAX]
    ]
    world.run(ms=2_000)
    assert [each.request for each in client.notices] == [each.request for each in requests]
    assert started_reads(world, client) == []


def test_no_read_is_started_for_a_client_whose_queue_is_full() -> None:
    world, _ = library()
    client = world.client("n")
    world.happen("n", ClientFull(client.name))
    request = ReadLog(client.number(), P, "TRUE", 0, FAR, 0, ReadForm.EVENTS)
    client.request(request)
    world.run(ms=1_000)
    assert client.notices == []
    world.happen("n", ClientDrained(client.name))
    world.run(ms=1_000)
    assert labels(client.answer(request.request)) == ["e0", "e1", "e2", "e3"]


def test_more_reads_than_may_wait_are_refused_and_a_client_that_leaves_frees_its_place() -> None:
    world, _ = library()
    client = world.client("n")
    world.happen("n", ClientFull(client.name))
    for _ in range(READS_WAITING_PER_CLIENT_MAX):
        client.request(ReadLog(client.number(), P, "TRUE", 0, FAR, 0, ReadForm.EVENTS))
    assert "wait for their replies" in reason(read(client))
    client.leave()
    client.connect()
    assert labels(read(client)) == ["e0", "e1", "e2", "e3"]


def started_reads(world: BrokerHarness, client: Client) -> list[int]:
    """Return the numbers of the reads of a client at n that are started."""
    broker = world.nodes["n"].broker
    assert broker is not None
    return [*broker.components.reads._reads.get(client.name, ())]
