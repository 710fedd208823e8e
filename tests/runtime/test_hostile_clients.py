"""Well-formed requests with unreasonable values: answered or refused, never the end of the broker.

A client chooses every number and text of its requests. Here it chooses extremes of 64 bits, empty names,
invalid filters and names of other clients. The machine handles the requests one after the other, with a
store that answers at once.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Sequence
from typing import Any, get_args

import msgspec
import pytest

from gapless.broker import Broker
from gapless.core.context import StepTime
from gapless.core.effects import Fetch, Notify, Send, Write
from gapless.core.errors import ProtocolError
from gapless.core.events import ClientDown, ClientRequest, ClientUp, Fetched, MachineEvent, Written
from gapless.core.ids import PubendId
from gapless.core.limits import SEQUENCE_MAX
from gapless.core.parameters import DEFAULTS
from gapless.messages.clients import (
    Credit,
    OpenPubend,
    OpenPublisher,
    Publish,
    PublisherOpened,
    Subscribe,
)
from gapless.messages.operating import GetBroker, ListSubscriptions
from gapless.messages.records import AppendPackedRow, AppendRow, LogRow, PutRecord, TrimLog
from gapless.packed.pick import packed, unpack_row
from gapless.runtime import generate
from gapless.storage.codec import decode_record, encode_record
from gapless.wire import (
    CLIENT_NOTICES,
    CLIENT_REQUESTS,
    HEADER_BYTES,
    LINK_PACKETS,
    Disconnect,
    KeepAlive,
)
from gapless.wire.codec import Request
from tests.cases import scaled

KINDS = [kind for kind in get_args(Request) if kind not in {KeepAlive, Disconnect}]

INTEGERS = (0, 1, -1, 2, 17, 255, 2**31, 2**62, 2**63 - 1, -(2**63), 2**63, 2**64 - 1)
TEXTS = (
    *("", "a", "trades", "quotes", "desk", "b1", "b2", "c1", "c2", "TRUE", "FALSE", "n > 5"),
    *("n > ", "nowhere", "x" * 300, "#", "trades#2", "a@b", "\0", "n = 1 OR n <> 1", "\u2028"),
)


class ValueSource:
    """Draws values for the fields of a struct."""

    def __init__(self, seed: int) -> None:
        self._dice = random.Random(seed)
        self._bold = self._dice.random() < 0.5
        """Whether it prefers extremes."""

    def request(self) -> Any:
        return self.value(msgspec.inspect.type_info(self._dice.choice(KINDS)))

    def value(self, info: Any) -> Any:
        dice, kinds = self._dice, msgspec.inspect
        match info:
            case kinds.StructType():
                drawn = [self.value(field.type) for field in info.fields]
                return [info.tag, *drawn] if info.tag else drawn
            case kinds.NamedTupleType():
                if dice.random() < 0.8:
                    return [dice.choice(["trades", "quotes"]), 1]
                return [self.value(field.type) for field in info.fields]
            case kinds.IntType():
                return dice.choice(INTEGERS if self._bold else INTEGERS[:5])
            case kinds.StrType():
                return dice.choice(TEXTS)
            case kinds.BytesType():
                return dice.choice([b"", b"\0\xff", bytes(1_000)])
            case kinds.BoolType():
                return dice.random() < 0.5
            case kinds.FloatType():
                return dice.choice([0.0, -1.5, float("inf"), float("nan")])
            case kinds.EnumType():
                return dice.choice(list(info.cls)).value
            case kinds.UnionType():
                return self.value(dice.choice(info.types))
            case kinds.NoneType():
                return None
            case kinds.VarTupleType():
                return [self.value(info.item_type) for _ in range(dice.choice([0, 1, 2, 3]))]
            case kinds.TupleType():
                return [self.value(each) for each in info.item_types]
            case kinds.DictType():
                return {
                    self.value(info.key_type): self.value(info.value_type)
                    for _ in range(dice.choice([0, 1, 2]))
                }
        raise AssertionError(f"{info} is not drawn yet")


class BrokerRun:
    """A broker with a correct store, and clients with unreasonable requests."""

    def __init__(self) -> None:
        around = generate("line:2").topology.neighbourhood("c1", DEFAULTS.neighbourhood_radius)
        self._now = 1_000_000
        self._rows: dict[PubendId, list[LogRow]] = {}
        self._broker = Broker("b1", "c1", DEFAULTS, around, [], self._step_time())
        self.session = 0
        """The session of the publisher that was opened last."""
        self.handle(None)

    def open(self, client: str, pubend: str) -> None:
        self.handle(ClientRequest(client, OpenPubend(1, pubend)))
        self.handle(ClientRequest(client, OpenPublisher(2, PubendId(pubend), "desk")))

    def _step_time(self) -> StepTime:
        return StepTime(self._now, 1_700_000_000_000_000 + self._now)

    def handle(self, event: MachineEvent) -> None:
        events = deque([event])
        while events:
            event = events.popleft()
            for effect in self._broker.step(event, self._step_time()):
                if isinstance(effect, Notify):
                    sent = CLIENT_NOTICES.encode(effect.notice)
                    CLIENT_NOTICES.decode(sent[HEADER_BYTES:])
                    if isinstance(effect.notice, PublisherOpened):
                        self.session = effect.notice.session
                elif isinstance(effect, Send):
                    frames = LINK_PACKETS.frames(effect.packet)
                    assert all(LINK_PACKETS.decode(each[HEADER_BYTES:]) for each in frames)
                elif isinstance(effect, Write):
                    self._write(effect)
                    events.append(Written(effect.write_id))
                elif isinstance(effect, Fetch):
                    events.append(self._fetched(effect))

    def handle_all(self, events: Sequence[MachineEvent]) -> None:
        """Handle several events in one step, and ignore its effects."""
        self._broker.step_all(events, self._step_time())

    def broken_requests(self, broken: ClientRequest) -> None:
        """Let one request fail in the machine."""

        def observe(client: str, request: Any) -> None:
            if request is broken.request:
                raise ZeroDivisionError(client)

        dispatch = self._broker._state._dispatch  # type: ignore[union-attr]
        dispatch._requests[str] = observe

    def pass_time(self, microseconds: int) -> None:
        end = self._now + microseconds
        while (due := self._broker.next_timer()) is not None and due <= end:
            self._now = max(self._now, due)
            self.handle(None)
        self._now = end

    def _write(self, write: Write) -> None:
        for each in write.changes:
            if isinstance(each, PutRecord):
                assert decode_record(encode_record(each.record)) is not None, each.record
            change = AppendRow(unpack_row(each)) if isinstance(each, AppendPackedRow) else each
            if isinstance(change, AppendRow):
                self._rows.setdefault(change.row.pubend, []).append(change.row)
                _storable(change.row.first, change.row.last)
            elif isinstance(change, TrimLog):
                _storable(change.up_to)

    def _fetched(self, fetch: Fetch) -> Fetched:
        _storable(fetch.low, fetch.high)
        rows = self._rows.get(fetch.pubend, [])
        found = [row for row in rows if row.last >= fetch.low and row.first <= fetch.high]
        return Fetched(fetch.fetch_id, tuple(map(packed, found) if fetch.packed else found))


def _storable(*ticks: int) -> None:
    """Assert that ticks fit a column of the store: 64 bits with a sign."""
    for tick in ticks:
        assert -(2**63) <= tick < 2**63


def play(seed: int, requests: int) -> int:
    """Let clients send random requests; return how many passed the codec."""
    dice, hand, incarnation = random.Random(seed), ValueSource(seed), BrokerRun()
    clients = ["one.1", "two.2"]
    for client in clients:
        incarnation.handle(ClientUp(client))
    incarnation.open(clients[0], "trades")
    understood = 0
    for number in range(requests):
        body = msgspec.msgpack.encode(hand.request())
        try:
            request = CLIENT_REQUESTS.decode(body)
        except ProtocolError:
            continue
        understood += 1
        if isinstance(request, Publish) and dice.random() < 0.8:
            request = msgspec.structs.replace(
                request, publisher="desk", session=incarnation.session
            )
        incarnation.handle(ClientRequest(dice.choice(clients), request))
        incarnation.pass_time(dice.choice([0, 1_000, 700_000]))
        if dice.random() < 0.02:
            index = dice.randrange(2)
            incarnation.handle(ClientDown(clients[index]))
            clients[index] = f"again.{number}"
            incarnation.handle(ClientUp(clients[index]))
    incarnation.pass_time(20_000_000)
    return understood


@pytest.mark.parametrize("seed", range(scaled(20)))
def test_no_decodable_request_ends_the_broker(seed: int) -> None:
    assert play(seed, requests=150) > 20


def test_credit_that_is_granted_for_ever_is_still_a_number_of_64_bits() -> None:
    incarnation = BrokerRun()
    incarnation.handle(ClientUp("c.1"))
    incarnation.handle(ClientRequest("c.1", Subscribe(1, "s", "TRUE", credit=SEQUENCE_MAX)))
    for _ in range(5):
        incarnation.handle(ClientRequest("c.1", Credit("s", SEQUENCE_MAX)))
    incarnation.handle(ClientRequest("c.1", ListSubscriptions(2)))  # the reply is encoded


def test_the_error_of_a_step_names_the_event_that_caused_it() -> None:
    incarnation = BrokerRun()
    incarnation.handle(ClientUp("c.1"))
    events = [ClientRequest("c.1", GetBroker(1)), ClientRequest("c.1", "no request of any kind")]
    incarnation.broken_requests(events[1])
    with pytest.raises(ZeroDivisionError) as caught:
        incarnation.handle_all(events)
    assert caught.value.__notes__ == [repr(events[1])]
