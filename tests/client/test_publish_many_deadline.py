"""What the error of ``publish_many`` says of its events when the deadline passes."""

from __future__ import annotations

from typing import Any

import pytest

import gapless
from gapless import Backoff
from gapless.errors import DeadlineError, OutcomeUnknownError
from gapless.messages.clients import OpenPublisher, Publish
from gapless.testing import Overlay
from tests.client.running import async_test, soon
from tests.client.scripted import ScriptedBroker

QUICK = Backoff(first_s=0.002, longest_s=0.02)


@async_test
async def test_the_error_names_the_events_that_may_be_published() -> None:
    async with ScriptedBroker() as broker, gapless.connect(broker.url) as session:
        answered = iter([True, False])

        def publish(connection: Any, call: Publish) -> None:
            if next(answered, False):
                connection.notify(broker.published(call))

        broker.answers[Publish] = publish
        async with session.publisher("quotes", in_flight_max=4) as publisher:
            with pytest.raises(OutcomeUnknownError) as caught:
                await publisher.publish_many(({"n": n} for n in range(30)), deadline_s=0.3)
            text = str(caught.value)
            assert "the broker b1 is connected; 4 events published by this call" in text
            assert "events 4 to 7 sent and not answered, and may be published" in text
            assert "no later event of the call is published" in text
            assert (caught.value.event_number, caught.value.published) == (4, 4)
            publisher._outbox.end(caught.value)


@async_test
async def test_the_error_says_that_no_event_was_sent() -> None:
    async with ScriptedBroker() as broker, gapless.connect(broker.url) as session:
        async with session.publisher("quotes") as publisher:
            broker.answers.pop(OpenPublisher)
            broker.connections[0].transport.abort()
            while session.connected:
                await publisher._outbox.link.change()  # type: ignore[union-attr]
            with pytest.raises(DeadlineError, match="no other event is or will be") as caught:
                await publisher.publish_many([{"n": 1}, {"n": 2}], deadline_s=0.3)
            assert (caught.value.event_number, caught.value.published) == (0, 0)
            assert publisher.unanswered == 0


@async_test
async def test_the_error_of_a_publisher_names_its_broker_while_the_session_has_another() -> None:
    async with (
        Overlay("line:2", on_disk=False) as overlay,
        gapless.connect(overlay.url("b1", "b2"), backoff=QUICK) as session,
    ):
        async with session.publisher("quotes") as publisher:
            await overlay.kill("b1")
            await soon(lambda: session.broker == "b2")
            with pytest.raises(DeadlineError, match="the broker b1 is not connected"):
                await publisher.publish_many([{"n": 1}], deadline_s=0.2)
