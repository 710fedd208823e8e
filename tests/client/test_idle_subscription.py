"""A subscription for which nothing matches gets no gap for ranges without events."""

from __future__ import annotations

import gapless
from gapless.core.backoff import Backoff
from gapless.core.ids import PubendId
from gapless.core.parameters import Parameters
from gapless.pubend.pubend import Pubend
from gapless.testing import Overlay
from tests.client.running import async_test, soon

QUICK = Backoff(first_s=0.002, longest_s=0.02)


def released(overlay: Overlay) -> int:
    hosted = overlay.node("b1").broker.components.hosted[PubendId("quotes")]
    assert isinstance(hosted, Pubend)
    return hosted.record.released


@async_test
async def test_an_idle_subscription_gets_no_gap_after_a_restart_of_its_broker() -> None:
    # its position is still its start; since then only silence was released
    parameters = Parameters(retention_s=0, ack_ms=50, silence_ms=50, idle_silence_max_ms=100)
    async with Overlay(parameters=parameters) as overlay:
        async with gapless.connect(overlay.url(), backoff=QUICK) as session:
            async with session.publisher("quotes") as publisher:
                async with session.subscribe("n > 0", on_gap="raise") as events:
                    began = events.position["quotes"]
                    await soon(lambda: released(overlay) > began)
                    await overlay.restart("b1")
                    await publisher.publish({"n": 1})
                    event = await events.get(deadline_s=30)
                    assert event.attributes["n"] == 1
                    assert [*events.gaps] == []
