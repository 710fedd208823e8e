"""Every argument of every call, with every kind of wrong value: UsageError, and nothing is sent."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

import gapless
from gapless import Position
from gapless.client import ConnectionChange, Publisher, Session, StagedWriter, Subscription
from gapless.core.ids import PubendId
from gapless.core.limits import CLIENT_COUNT_MAX, NAME_MAX, SEQUENCE_MAX, SHOWN_QUOTE_MAX
from gapless.errors import AddressError, ClosedError, PositionError, RefusedError, UsageError
from gapless.messages.clients import Ack, Publish, Subscribe, Subscribed
from gapless.messages.operating import ListPartitions
from gapless.testing import Overlay
from tests.client.running import async_test, soon
from tests.client.scripted import ScriptedBroker

NP: Any = np
WRONG_TYPES: tuple[Any, ...] = (
    5,
    1.5,
    2**70,
    10**5_000,
    math.nan,
    b"x",
    [1],
    (1, 2, 3),
    {1},
    object(),
    int,
    ValueError("x"),
    dt.date(2020, 1, 1),
    NP.int64(5),
    NP.float64("nan"),
    NP.array([1, 2]),
    NP.array(5),
    NP.datetime64("2020-01-01"),
)
NO_TEXT = (*WRONG_TYPES, True, {"n": 1})
LONG = "x" * (NAME_MAX + 1)
NO_NAME = (*NO_TEXT, LONG, "a\x00b", "a\nb", "\x1b[2J", "\x9b2J", "\ud800")
NO_WORD = (*NO_TEXT, None, "", "x", LONG, "\ud800")
NO_FLAG = (*WRONG_TYPES, None, 0, 1, "", "no", {})
NO_WHOLE = (
    *(each for each in WRONG_TYPES if type(each) is not int and not isinstance(each, np.integer)),
    *(-1, -(2**70), 2**70, 10**5_000, SEQUENCE_MAX + 1, True, "5", math.inf, 5.0, NP.bool_(True)),
)
NO_TIME = (
    *(each for each in WRONG_TYPES if not isinstance(each, int | float | np.number)),
    *(0, -1, 10**5_000, 2**70, math.nan, math.inf, -math.inf, True, "5", NP.float64("inf")),
    dt.timedelta(seconds=5),
)
NO_FILTER = (*NO_TEXT, "a b", "\ud800 = 1", "x" * 70_000, "n > 'a")
NO_START = (*WRONG_TYPES, None, "", "soon", LONG, {"q": -1}, {"q": 2**63 - 1}, {"": 1}, {5: 1})
NO_POSITION = ({"q": None}, {"q": "1"}, {"q": math.nan}, {"q": True}, {"q#x": 1}, {"\ud800": 1})

Call = Callable[..., Any]


Case = tuple[str, tuple[Any, ...], Call]
"""What an argument is called, its wrong values, and a call with it."""

DEADLINE = {"deadline_s": NO_TIME}
OLD_NAME = (*NO_TEXT, None, "", LONG, "\ud800")
BATCH = (*NO_WHOLE, None, CLIENT_COUNT_MAX + 1)
STAGED = {"pubend": "quotes", "writer": "w", "batch": 1}


def calls_of(
    session: Any, method: str, wrong: dict[str, tuple[Any, ...]], **others: Any
) -> Iterator[Case]:
    for option, values in wrong.items():

        def call(value: Any, option: str = option) -> Any:
            return getattr(session, method)(**{**others, option: value})

        yield f"{method} {option}", values, call


def session_calls(session: Session) -> Iterator[Case]:
    yield from calls_of(
        session,
        "publisher",
        {
            "pubend": (*NO_NAME, None, "", "#5", "q#x"),
            "name": (*NO_NAME, None),
            "advertisement": (*NO_FILTER, None),
            "guaranteed": NO_FLAG,
            "in_flight_max": (*NO_WHOLE, None, 0),
            **DEADLINE,
        },
        pubend="quotes",
    )
    yield from calls_of(
        session,
        "subscribe",
        {
            "filter": NO_FILTER,
            "durable": (*NO_NAME, ""),
            "start": (*NO_START, *NO_POSITION),
            "order": tuple(each for each in NO_WORD if each is not None),
            "prefetch": (*NO_WHOLE, None, 0),
            "ack": NO_WORD,
            "on_gap": NO_WORD,
            "expiry_s": (*NO_WHOLE, None, 0),
            "take_over": NO_FLAG,
            "create": NO_FLAG,
            **DEADLINE,
        },
        durable="desk",
    )
    yield from staging_and_reading_calls(session)
    yield from calls_of(session, "unsubscribe", {"durable": OLD_NAME, **DEADLINE}, durable="desk")
    yield from calls_of(session, "partitions", DEADLINE)
    yield from calls_of(session.overlay, "tree", DEADLINE)
    yield from calls_of(
        session,
        "request",
        {"message": (*NO_TEXT, None, "x"), "changes": NO_FLAG, **DEADLINE},
        message=ListPartitions(0),
    )


def staging_and_reading_calls(session: Session) -> Iterator[Case]:
    yield from calls_of(
        session,
        "read",
        {
            "pubend": OLD_NAME,
            "low": NO_WHOLE,
            "high": NO_WHOLE,
            "filter": (*NO_FILTER, None),
            **DEADLINE,
        },
        pubend="quotes",
    )
    yield from calls_of(
        session,
        "staged_writer",
        {
            "pubend": (*NO_NAME, None, ""),
            "writer": (*NO_NAME, None, ""),
            "batch": BATCH,
            "partition": BATCH,
            "advertisement": (*NO_FILTER, None),
            **DEADLINE,
        },
        **STAGED,
    )
    wrong = {"pubend": OLD_NAME, "writer": OLD_NAME, "batch": BATCH, **DEADLINE}
    yield from calls_of(session, "drop_staged", wrong, **STAGED)
    wrong = {"parts": (*NO_TEXT, None, "x", []), **DEADLINE}
    yield from calls_of(session, "commit_staged", wrong, parts=[])


def other_calls(publisher: Publisher, staged: StagedWriter, events: Subscription) -> Iterator[Case]:
    """Yield the calls of publishers and subscriptions."""
    no_attributes = (*WRONG_TYPES, True, None, "x", {5: 1}, {"n": [1]}, {"n": 2**70}, {"\ud800": 1})
    no_payload = (*(each for each in NO_TEXT if not isinstance(each, bytes)), None, "x")
    for name, call in (("publish", publisher.publish), ("send", publisher.send)):
        yield f"{name} attributes", no_attributes, call
        yield f"{name} payload", no_payload, partial(call, {})
        yield f"{name} deadline", NO_TIME, partial(with_deadline, call)
    yield "publish_many", (*NO_TEXT, None, "x"), publisher.publish_many
    yield "publish_many []", no_attributes, lambda value: publisher.publish_many([value])
    yield "many payload", no_payload, lambda value: publisher.publish_many([({}, value)])
    yield "many deadline", NO_TIME, lambda value: publisher.publish_many([], deadline_s=value)
    yield "flush", NO_TIME, lambda value: publisher.flush(deadline_s=value)
    yield "staged add", (*NO_TEXT, None, "x"), staged.add
    yield "staged add []", no_attributes, lambda value: staged.add([value])
    yield "ack", (*WRONG_TYPES, "x", True, *NO_POSITION, {"q": SEQUENCE_MAX + 1}), events.ack
    yield "seek", (*NO_START, *NO_POSITION), events.seek
    yield "seek deadline", NO_TIME, lambda value: events.seek("latest", deadline_s=value)
    yield "set_filter", (*NO_FILTER, None), events.set_filter
    yield "set_filter deadline", NO_TIME, lambda value: events.set_filter("", deadline_s=value)
    yield "next_batch", (*NO_WHOLE, 0), events.next_batch
    yield "next_batch deadline", NO_TIME, lambda value: events.next_batch(deadline_s=value)
    yield "get", NO_TIME, lambda value: events.get(deadline_s=value)
    yield "fetch_pending", NO_TIME, lambda value: events.fetch_pending(deadline_s=value)
    yield "position_after", (*NO_TEXT, "x", {}), events.position_after


def with_deadline(call: Call, value: Any) -> Any:
    return call({}, deadline_s=value)


async def check_refused(what: str, values: tuple[Any, ...], call: Call) -> None:
    for value in values:
        try:
            made = call(value)
            if hasattr(made, "__await__"):
                await made
        except UsageError as error:
            text = str(error)
            assert "\x1b" not in text, (what, value)
            assert len(text) < 5 * SHOWN_QUOTE_MAX, (what, text)
        except Exception as error:
            raise AssertionError(f"{what} with a {type(value).__name__}: {error!r}") from error
        else:
            pytest.fail(f"{what} was accepted with {value!r:.80}")


@async_test
async def test_a_wrong_value_of_any_argument_is_a_usage_error_and_sends_nothing() -> None:
    async with ScriptedBroker() as broker, gapless.connect(broker.url) as session:
        async with (
            session.publisher("quotes") as publisher,
            session.staged_writer("quotes", writer="w", batch=1) as staged,
            session.subscribe("", durable="desk") as events,
        ):
            sent = len(broker.requests)
            for what, values, call in session_calls(session):
                await check_refused(what, values, call)
            for what, values, call in other_calls(publisher, staged, events):
                await check_refused(what, values, call)
            await publisher.publish({"n": 1})
            assert [type(each) for each in broker.requests[sent:]] == [Publish]
        assert len(broker.connections) == 1


@pytest.mark.parametrize(
    ("option", "wrong"),
    [
        ("servers", (*NO_TEXT, None, "", "x", LONG, [], [None], "gapless://b1:" + "9" * 5_000)),
        ("name", (*NO_NAME, None)),
        ("deadline_s", NO_TIME),
        ("connect_deadline_s", NO_TIME),
        ("failover_after_s", NO_TIME),
        ("backoff", (*NO_TEXT, None)),
        ("token", (*NO_TEXT, "", "two words", "x" * 2_000, "\x1b", "\ud800")),
        ("token_file", (*NO_TEXT, "", "a\x00b", "\ud800")),
        ("on_connection", (5, "x", [1], NP.array([1, 2]))),
    ],
)
def test_connect_refuses_every_wrong_value(option: str, wrong: tuple[Any, ...]) -> None:
    for value in wrong:
        with pytest.raises(UsageError) as caught:
            gapless.connect(**{"servers": "gapless://127.0.0.1:1", option: value})
        assert len(str(caught.value)) < 5 * SHOWN_QUOTE_MAX


def test_an_async_function_is_no_callback_of_connections() -> None:
    async def told(change: ConnectionChange) -> None:
        del change

    with pytest.raises(UsageError, match="not an async one"):
        gapless.connect("gapless://b1", on_connection=told)


@pytest.mark.parametrize("wrong", [True, "5", None, -1, 0, math.nan, math.inf, 2**70, 10**400])
def test_a_backoff_refuses_what_is_no_time(wrong: Any) -> None:
    with pytest.raises(UsageError):
        gapless.Backoff(longest_s=wrong)
    assert gapless.Backoff(longest_s=NP.float32(5)).longest_s == 5


def test_a_position_is_made_of_positions_only() -> None:
    for wrong in (*WRONG_TYPES, True, "quotes:1", False, 0, ""):
        with pytest.raises(PositionError):
            Position(wrong)
        with pytest.raises(PositionError):
            Position().merge(wrong)
    for wrong in (*NO_POSITION, {"q": SEQUENCE_MAX + 1}, {5: 1, "q": 2}):
        given: Any = wrong
        with pytest.raises(PositionError):
            Position(given)
        with pytest.raises(PositionError):
            Position() | given
    for wrong in (*NO_TEXT, None, False):
        with pytest.raises(PositionError):
            Position.parse(wrong)


def test_an_address_with_a_port_of_many_digits_is_refused() -> None:
    with pytest.raises(AddressError):
        gapless.connect("gapless://b1:" + "1" * 5_000)


@async_test
async def test_names_with_control_characters_that_exist_can_be_ended() -> None:
    async with Overlay(on_disk=False) as overlay, gapless.connect(overlay.url()) as session:
        await session.unsubscribe("a\nb")
        await session.unsubscribe(NP.str_("desk"))


@async_test
async def test_a_request_that_is_too_large_for_the_broker_disturbs_no_other() -> None:
    many = {f"pubend {number} of many with a long name": 5 for number in range(30_000)}
    async with Overlay(on_disk=False) as overlay, gapless.connect(overlay.url()) as session:
        async with (
            session.publisher("quotes") as publisher,
            session.subscribe("", durable="desk", start="earliest") as events,
        ):
            with pytest.raises(UsageError, match=r"a Subscribe of .* bytes was not sent"):
                await session.subscribe("", start=many).__aenter__()
            with pytest.raises(UsageError, match=r"a Seek of .* bytes was not sent"):
                await events.seek(many)
            await publisher.publish({"n": 1})
            assert (await events.get()).attributes == {"n": 1}
            await events.ack(Position(many))
            await publisher.publish({"n": 2})
            assert (await events.get()).attributes == {"n": 2}
            assert session.main.connections == 1


@async_test
async def test_an_acknowledgement_of_what_was_not_received_hides_no_later_one() -> None:
    async with Overlay(on_disk=False) as overlay, gapless.connect(overlay.url()) as session:
        async with session.publisher("quotes") as publisher:
            async with session.subscribe(
                "", durable="desk", start="earliest", ack="manual"
            ) as events:
                await publisher.publish({"n": 1})
                first = await events.get()
                await events.ack(Position({"quotes": SEQUENCE_MAX, "unknown": 5}))
                last = await publisher.publish({"n": 2})
                acked = Position.of(dict(events._inbox._resume.acked))
                assert first.position <= acked < last
                await events.ack(await events.get())
            async with session.subscribe(durable="desk") as events:
                await publisher.publish({"n": 3})
                assert (await events.get()).attributes == {"n": 3}


@async_test
async def test_an_acknowledgement_of_many_pubends_is_sent_in_parts() -> None:
    async with ScriptedBroker() as broker, gapless.connect(broker.url) as session:
        many = {f"q{number}": 5 for number in range(1_000)}
        started = tuple((PubendId(name), tick) for name, tick in many.items())
        broker.answers[Subscribe] = lambda connection, call: connection.notify(
            Subscribed(call.request, started)
        )
        async with session.subscribe("", durable="desk") as events:
            await events.ack(Position(many))
            await soon(lambda: sum(len(each.position) for each in acks(broker)) == len(many))
            assert len(acks(broker)) == 4
        subscribed = [each for each in broker.requests if isinstance(each, Subscribe)]
        assert len(subscribed) == 1


def acks(broker: ScriptedBroker) -> list[Ack]:
    return [each for each in broker.requests if isinstance(each, Ack)]


@async_test
async def test_an_acknowledgement_before_the_subscription_is_opened_is_refused() -> None:
    async with Overlay(on_disk=False) as overlay, gapless.connect(overlay.url()) as session:
        with pytest.raises(ClosedError, match="open the subscription first"):
            await session.subscribe("", durable="desk").ack()


@async_test
async def test_the_reason_of_a_refusal_has_no_control_characters() -> None:
    async with Overlay(on_disk=False) as overlay, gapless.connect(overlay.url()) as session:
        with pytest.raises(RefusedError) as caught:
            await anext(aiter(session.read("evil\x1b[2J\x9b")))
        assert "evil\\x1b[2J\\x9b" in str(caught.value)
