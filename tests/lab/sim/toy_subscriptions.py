"""The subscriptions of the toy."""

from __future__ import annotations

import bisect
from collections.abc import Callable
from typing import Any

from gapless.content.filter import Filter
from gapless.core.context import Context
from gapless.core.ids import VIRTUAL_TIME_ZERO, PubendId
from gapless.messages.clients import (
    Delivery,
    FilterSet,
    Order,
    PositionTuple,
    Refused,
    Seek,
    SetFilter,
    StartKind,
    StartPoint,
    Subscribe,
    Subscribed,
    SubscriptionStarted,
)
from gapless.messages.records import FilterSegmentRecord, PutRecord, SubscriptionRecord
from gapless.messages.streams import Publication


class Subscription:
    """A subscription: its filters, its position, its client."""

    def __init__(self, name: str, filter_text: str, *, durable: bool) -> None:
        self.name = name
        self.filter = filter_text
        self.durable = durable
        self.client: str | None = None
        self.credit = 0
        self.cursor: dict[PubendId, int] = {}
        self.acked: dict[PubendId, int] = {}
        self.history: list[tuple[str, dict[PubendId, int]]] = []
        """Past filters, oldest first, each with the tick up to which it applies."""
        self.held = False
        """Whether a write has to be durable before anything is delivered."""


class Subscribing:
    """Keeps the copied part of the streams, and delivers from it."""

    context: Context

    def __init__(self) -> None:
        self.subscriptions: dict[str, Subscription] = {}
        self.streams: dict[PubendId, list[Publication]] = {}
        self.ticks: dict[PubendId, list[int]] = {}
        self.filters: dict[str, Filter] = {}

    # --- subscribing -------------------------------------------------------------------------

    def _filter(self, text: str) -> Filter:
        if text not in self.filters:
            self.filters[text] = Filter(text)
        return self.filters[text]

    def _top(self, pubend: PubendId) -> int:
        ticks = self.ticks[pubend]
        return ticks[-1] if ticks else 0

    def _known_top(self, pubend: PubendId) -> int:
        return self._top(pubend) if pubend in self.ticks else 0

    def _start_position(self, request: Subscribe | Seek) -> dict[PubendId, int]:
        start = request.start
        wanted = dict(start.position)
        kind = start.unnamed if start.kind is StartKind.POSITION else start.kind
        position = {
            pubend: self._top(pubend) if kind is StartKind.LATEST else 0 for pubend in self.streams
        }
        return {**position, **wanted}

    def _subscribe(self, client: str, request: Subscribe) -> None:
        held = self.subscriptions.get(request.subscription)
        if held is not None and held.durable:
            wanted = dict(request.start.position)
            # a pubend without an acknowledgement was known from its first tick
            held.cursor = {
                pubend: max(held.acked.get(pubend, 0), wanted.get(pubend, 0))
                for pubend in {**self.streams, **held.acked, **wanted}
            }
        else:
            held = Subscription(
                request.subscription, request.filter or "TRUE", durable=request.durable
            )
            held.cursor = self._start_position(request)
            held.acked = dict(held.cursor)
            self.subscriptions[held.name] = held
        held.client, held.credit = client, request.credit
        answer = Subscribed(request.request, tuple(held.cursor.items()))
        if held.durable:
            self._store(held, lambda: self._answer(held, client, answer))
        else:
            self._answer(held, client, answer)

    def _store(self, held: Subscription, then: Callable[[], None]) -> None:
        """Store a durable subscription; it waits meanwhile."""
        segments = [
            *(
                FilterSegmentRecord(text, VIRTUAL_TIME_ZERO, tuple(ends.items()))
                for text, ends in held.history
            ),
            FilterSegmentRecord(held.filter, VIRTUAL_TIME_ZERO, ()),
        ]
        acked = tuple(held.acked.items())
        record = SubscriptionRecord(
            held.name, tuple(segments), acked, acked, Order.PUBLISHER, StartPoint(), (), 0
        )
        held.held = True
        self.context.write((PutRecord(record),), then)

    def _answer(self, held: Subscription, client: str, answer: Any) -> None:
        held.held = False
        if held.client == client and self.subscriptions.get(held.name) is held:
            self.context.notify(client, answer)
            self._deliver(held)

    def _ack(self, name: str, position: PositionTuple) -> None:
        held = self.subscriptions.get(name)
        if held is None or held.held:
            return
        for pubend, tick in position:
            held.acked[pubend] = max(tick, held.acked.get(pubend, 0))
        self._store(held, lambda: self._unhold(held))

    def _unhold(self, held: Subscription) -> None:
        held.held = False
        self._deliver(held)

    def _seek(self, client: str, request: Seek) -> None:
        held = self.subscriptions.get(request.subscription)
        if held is None or held.client != client or held.held:
            self.context.notify(client, Refused(request.request, "not now"))
            return
        position = self._start_position(request)
        for pubend, tick in held.cursor.items():
            if request.start.kind is StartKind.LATEST:
                position[pubend] = max(tick, position.get(pubend, 0))
            elif pubend not in dict(request.start.position):
                position[pubend] = tick
        held.cursor = position
        self._answer(held, client, Subscribed(request.request, tuple(position.items())))

    def _set_filter(self, client: str, request: SetFilter) -> None:
        held = self.subscriptions.get(request.subscription)
        if held is None or held.client != client or held.held:
            self.context.notify(client, Refused(request.request, "not now"))
            return
        last = held.history[-1][1] if held.history else {}
        switch = {
            pubend: max(self._known_top(pubend), held.cursor.get(pubend, 0), last.get(pubend, 0))
            for pubend in {**self.streams, **held.cursor, **last}
        }
        if held.filter != request.filter:
            held.history.append((held.filter, switch))
            held.filter = request.filter
        answer = FilterSet(request.request, tuple(switch.items()))
        if held.durable:
            self._store(held, lambda: self._answer(held, client, answer))
        else:
            self._answer(held, client, answer)

    # --- delivering --------------------------------------------------------------------------

    def _deliver_all(self) -> None:
        for held in self.subscriptions.values():
            self._deliver(held)

    def _deliver(self, held: Subscription) -> None:
        if held.client is None or held.held:
            return
        for pubend, stream in self.streams.items():
            if pubend not in held.cursor:
                held.cursor[pubend] = held.acked.get(pubend, 0)
                started = SubscriptionStarted(held.name, pubend, held.cursor[pubend])
                self.context.notify(held.client, started)
            self._deliver_stream(held, pubend, stream)

    def _deliver_stream(
        self, held: Subscription, pubend: PubendId, stream: list[Publication]
    ) -> None:
        events: list[tuple[PubendId, Publication]] = []
        for index in range(
            bisect.bisect_right(self.ticks[pubend], held.cursor[pubend]), len(stream)
        ):
            if held.credit == len(events):
                break
            publication = stream[index]
            if self._filter(self._filter_at(held, publication, pubend)).matches(
                publication.attributes
            ):
                events.append((pubend, publication))
            held.cursor[pubend] = publication.tick
        if events:
            held.credit -= len(events)
            assert held.client is not None
            self.context.notify(
                held.client,
                Delivery(held.name, tuple((pubend, (each,)) for pubend, each in events)),
            )

    @staticmethod
    def _filter_at(held: Subscription, publication: Publication, pubend: PubendId) -> str:
        for text, ends in held.history:
            if publication.tick <= ends.get(pubend, -1):
                return text
        return held.filter
