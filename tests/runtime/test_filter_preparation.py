"""A filter that takes long to make or to refuse delays only the connection that sent it."""

from __future__ import annotations

import asyncio
import threading
from typing import Any, get_args

import msgspec
import pytest

from gapless.content import filter as filter_module
from gapless.content.normal import normalise
from gapless.core.limits import FILTER_QUICK_TEXT_MAX
from gapless.messages.clients import PastFilter, Refused, SetFilter, Subscribe, Subscribed
from gapless.messages.operating import BrokerReply, GetBroker
from gapless.runtime.filters import FILTERED_REQUESTS, FilterPreparation, is_quick
from gapless.wire.codec import Request
from tests.runtime.nodes import LOOPS, run, until, world
from tests.runtime.raw_client import DEADLINE_S, RawClient


def hard(name: str) -> str:
    """Return a text of its own whose 512 conjunctions are refused: results are cached."""
    return " AND ".join(f"({name}{n} = 1 OR b{n} = 2)" for n in range(9))


TEXTS = {"filter", "advertisement", "past_filters"}
"""The names of the fields that contain filters."""


@pytest.mark.parametrize("loop", LOOPS)
def test_a_filter_that_takes_long_delays_no_other_client(
    loop: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_end = threading.Event()
    threads: list[str] = []

    def slow(condition: Any) -> Any:
        threads.append(threading.current_thread().name)
        assert may_end.wait(DEADLINE_S)
        return normalise(condition)

    async def scenario() -> None:
        async with (
            world() as brokers,
            RawClient(brokers["b1"].url) as hostile,
            RawClient(brokers["b1"].url) as bystander,
        ):
            await hostile.subscribe("all", "n > 1")
            await bystander.subscribe("others", "n > 2")
            monkeypatch.setattr(filter_module, "normalise", slow)
            set_filter, later = hostile.number(), hostile.number()
            hostile.send(SetFilter(set_filter, "all", hard(loop)))
            hostile.send(GetBroker(later))
            await until(lambda: threads)
            for _ in range(3):
                await bystander.request(BrokerReply, GetBroker(bystander.number()))
            assert not hostile.received(Refused)
            may_end.set()
            refused = await hostile.next(Refused, request=set_filter)
            assert "512 conjunctions" in refused.reason
            await hostile.next(BrokerReply, request=later)
            assert threads == ["gapless-filters"], "the machine makes it no second time"

    run(scenario(), loop)


def test_a_client_that_leaves_while_its_filter_is_made_is_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    may_end, begun = threading.Event(), threading.Event()

    def slow(condition: Any) -> Any:
        begun.set()
        assert may_end.wait(DEADLINE_S)
        return normalise(condition)

    async def scenario() -> None:
        async with world() as brokers, RawClient(brokers["b1"].url) as bystander:
            clients = brokers["b1"].clients
            monkeypatch.setattr(filter_module, "normalise", slow)
            async with RawClient(brokers["b1"].url) as hostile:
                hostile.send(Subscribe(1, "gone", hard("left")))
                await until(begun.is_set)
            may_end.set()
            await until(lambda: len(clients) == 1)
            reply = await bystander.request(BrokerReply, GetBroker(bystander.number()))
            assert reply.subscriptions == 0
            assert isinstance(await bystander.subscribe("all"), Subscribed)

    run(scenario())


def test_every_request_with_a_filter_is_prepared() -> None:
    filtered = {
        kind
        for kind in get_args(Request)
        if TEXTS & {field.name for field in msgspec.structs.fields(kind)}
    }
    assert filtered == {*FILTERED_REQUESTS}


def test_only_texts_that_may_take_long_are_prepared_by_the_thread() -> None:
    preparation = FilterPreparation(9)
    assert preparation.texts_of(SetFilter(1, "s", "symbol = 'IBM' AND price > 90")) == ()
    assert preparation.texts_of(SetFilter(1, "s", hard("a"))) == (hard("a"),)
    assert preparation.texts_of(GetBroker(1)) == ()
    many = tuple(PastFilter(hard(f"x{number}"), ()) for number in range(9))
    assert preparation.texts_of(Subscribe(1, "s", "a = 1", past_filters=many)) == (), (
        "the machine refuses so many before it reads them"
    )
    assert preparation.texts_of(Subscribe(1, "s", None, durable=True)) == ()
    assert not is_quick("a = 1 AND " * FILTER_QUICK_TEXT_MAX + "b = 1")
    assert is_quick("a = 1 OR b = 2 OR c = 3")


def test_texts_of_a_connection_that_has_closed_are_left_out_and_end_no_later_work() -> None:
    made: list[str] = []

    async def scenario() -> None:
        preparation = FilterPreparation(9)
        done = asyncio.Event()
        preparation.prepare((hard("gone"),), lambda: False, lambda: made.append("gone"))
        preparation.prepare((hard("here"),), lambda: True, done.set)
        await done.wait()
        preparation.close()
        preparation.prepare((hard("late"),), lambda: True, lambda: made.append("late"))

    asyncio.run(scenario())
    assert made == ["gone"], "the first call came back without a filter, and the last is not taken"


def test_an_error_of_one_filter_does_not_end_the_preparation_of_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(condition: Any) -> Any:
        raise MemoryError(condition)

    monkeypatch.setattr(filter_module, "normalise", broken)

    async def scenario() -> None:
        filters, ready = FilterPreparation(2), 0

        def prepared() -> None:
            nonlocal ready
            ready += 1

        for name in ("x", "y"):
            filters.prepare((hard(name),), lambda: True, prepared)
        await until(lambda: ready == 2)
        filters.close()

    run(scenario())
