"""The inbox of the library as a client in a world that a test drives by hand.

The other clients of these worlds send exactly the requests of the test. A :class:`Program` has the
inbox of the library, which decides what to present at the next broker and how to use the answers. It
replaces the link, so the test opens and loses connections. The faults are those of
:mod:`tests.broker.harness`; in addition, a program may be deaf: it loses its broker's messages.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from gapless.client.event import Event
from gapless.client.inbox import Inbox
from gapless.client.link import _OF_SUBSCRIPTIONS, LinkUser, ReconnectingLink, SubscriptionListener
from gapless.client.prefetch import PrefetchedEnd
from gapless.client.requests import RequestNumbers
from gapless.client.settings import SubscriptionOptions
from gapless.client.subscription_state import ClientSubscriptionState
from gapless.content.values import Value
from gapless.core.ids import BrokerId, PubendId
from gapless.core.ticks import Tick
from gapless.messages.clients import (
    Delivery,
    FilterSet,
    Order,
    Seek,
    SetFilter,
    StartKind,
    StartPoint,
    Subscribe,
    Subscribed,
)
from gapless.messages.mobility import Superseded
from tests.broker.harness import BrokerHarness
from tests.scenarios.brokers import Client, Publisher, World, of

OLDEST = StartPoint(StartKind.EARLIEST)


def after(position: dict[PubendId, Tick]) -> StartPoint:
    """Return a start at a position."""
    return StartPoint(StartKind.POSITION, tuple(position.items()))


def uninformed(*chains: str, retention_s: int) -> BrokerHarness:
    """Return a world in which the broker a never learns that a subscription has moved."""
    world = BrokerHarness(*chains, retention_s=retention_s)
    world.lose(of(Superseded, target="a"))
    return world


def publish(publisher: Publisher, *labels: str, **values: Value) -> Tick:
    """Publish events and let them arrive; return the tick of the last."""
    ticks = [publisher.publish(label, **values) for label in labels]
    publisher.world.run(s=1)
    return ticks[-1]


class Program(Client):
    """A process with the subscription "desk"; it acknowledges explicitly."""

    def __init__(
        self,
        world: World,
        broker: BrokerId,
        process: str,
        wanted: str = "TRUE",
        *,
        durable: bool = True,
        start: StartPoint | None = None,
        order: Order | None = Order.PUBLISHER,
        prefetch: int = 1_000,
    ) -> None:
        self.numbers = RequestNumbers()
        self.handshake = SimpleNamespace(broker=broker)
        self.is_deaf = False
        """Whether messages to it are lost."""
        self.subscribes: list[Subscribe] = []
        """All requests that it sent, over all its connections."""
        self._pending: dict[int, Any] = {}
        self._listener: SubscriptionListener | None = None
        super().__init__(world, broker, process)
        settings = SubscriptionOptions(
            durable=durable,
            start=start or StartPoint(),
            order=order,
            prefetch=prefetch,
            ack="manual",
            on_gap="report",
            expiry_s=604_800,
            deadline_s=None,
            create=durable,  # scenarios cut brokers off before they subscribe
        )
        self.inbox = Inbox("desk", wanted, settings, on_end=lambda: None)
        self.inbox.open_over(cast("ReconnectingLink", self))

    # --- the interface of a link ---------------------------------------------------------------

    def listen(self, name: str, listener: SubscriptionListener) -> None:
        """Let the inbox receive notices that answer no request."""
        assert name == "desk"
        self._listener = listener

    def stop_listening(self, name: str, listener: SubscriptionListener) -> None:
        """Stop passing notices to the inbox."""
        assert name == "desk"
        assert listener is self._listener
        self._listener = None

    def add(self, user: LinkUser) -> None:
        """Notify the inbox of the connection."""
        user.link_up()

    def remove(self, user: LinkUser) -> None:
        """Do nothing: the test owns the connection."""

    def send(self, request: Any) -> None:
        """Send a message that has no answer."""
        super().request(request)

    def request(self, request: Any, then: Any = None) -> None:
        """Send a request; its answer goes to the callback."""
        if isinstance(request, Subscribe):
            self.subscribes.append(request)
        if then is not None:
            self._pending[request.request] = then
        super().request(request)

    def forget(self, number: int) -> None:
        """Ignore the answer to a request."""
        self._pending.pop(number, None)

    def take_notice(self, notice: Any) -> None:
        """Pass to the inbox the notices for it."""
        if self.is_deaf:
            return
        super().take_notice(notice)
        if type(notice) not in _OF_SUBSCRIPTIONS:
            then = self._pending.pop(notice.request, None)
            if then is not None:
                then(notice)
        elif self._listener is not None and isinstance(notice, Delivery):
            self._listener.delivered(notice)
        elif self._listener is not None:
            self._listener.notified(notice)

    # --- connections ---------------------------------------------------------------------------

    def lose(self) -> None:
        """Lose the connection; the broker notices."""
        self.leave()
        self._disconnect()

    def request_at(self, broker: BrokerId) -> None:
        """Connect again, possibly to another broker, without waiting for an answer."""
        self._disconnect()
        self.connect(broker)
        self.handshake = SimpleNamespace(broker=broker)
        self.inbox.link_up()

    def _disconnect(self) -> None:
        self._pending.clear()
        if self.inbox.state is not ClientSubscriptionState.DISCONNECTED:
            self.inbox.link_down()

    def go(self, broker: BrokerId) -> None:
        """Connect again, possibly to another broker, and wait for the answer."""
        self.request_at(broker)
        self.world.wait(self.knows, s=5)

    def request_in_vain_elsewhere(self) -> None:
        """Send a request to another broker, which crashes before it answers."""
        assert self.inbox.hosting is not None
        self.inbox._hosting.confirmed(self.inbox.hosting.next_epoch())

    # --- the program ---------------------------------------------------------------------------

    def is_answered(self) -> bool:
        """Return whether it is answered within five seconds."""
        return self.world.wait(lambda: self.inbox.is_answered, s=5)

    def knows(self) -> bool:
        """Return whether it knows the state of its subscription: it has it, or it has ended."""
        return self.inbox.is_answered or self.inbox.is_over

    @property
    def redirected_to(self) -> BrokerId | None:
        """The broker to which it was redirected, if its first request was refused so."""
        refused = self.inbox._refused
        return None if refused is None else refused.broker

    def take(self) -> list[str]:
        """Return what was received: the labels of events, and gaps."""
        taken = []
        while self.inbox.prefetch.queue:
            item = self.inbox.prefetch.pop()
            if isinstance(item, Event):
                taken.append(item.publication.payload.decode())
            elif isinstance(item, PrefetchedEnd):
                taken.append(f"end {item.last}")
            else:
                taken.append(f"gap {item.low}-{item.high}")
        self.inbox.give_credit()
        return taken

    def acknowledge(self, *, s: int = 1) -> None:
        """Acknowledge all events handed out, and let the broker receive that."""
        self.inbox.acknowledge(self.inbox.prefetch.handed())
        self.world.run(s=s)

    def set_filter(self, text: str, *, s: int = 5) -> Any:
        """Change the filter as the library does; return the answer, or None after a timeout."""
        inbox = self.inbox
        if inbox.filter.is_changing:  # the reply to the former change has no receiver any more
            inbox.filter.unknown()
        inbox.filter.request(text)
        answer = self._call(SetFilter(self.numbers.next(), "desk", text), s)
        if isinstance(answer, FilterSet):
            inbox.filter_set(text, answer)
        elif answer is not None:
            inbox.filter.unknown()
        return answer

    def seek(self, start: StartPoint) -> Any:
        """Seek as the library does; return the answer, None if there is none in time."""
        if start.kind is StartKind.POSITION:
            start = after({**self.inbox.prefetch.handed(), **dict(start.position)})
        answers: list[Any] = []

        def seek_answered(notice: Any) -> None:
            answers.append(notice)
            if isinstance(notice, Subscribed):
                self.inbox.repositioned(notice.position, start.kind)

        self.request(Seek(self.numbers.next(), "desk", start), seek_answered)
        self.world.wait(lambda: bool(answers), s=5)
        return answers[0] if answers else None

    def _call(self, request: Any, s: int) -> Any:
        answers: list[Any] = []
        self.request(request, answers.append)
        self.world.wait(lambda: bool(answers), s=s)
        return answers[0] if answers else None


def opened(world: World, broker: BrokerId, process: str, *wanted: str, **options: Any) -> Program:
    """Return a program whose subscription is answered."""
    program = Program(world, broker, process, *wanted, **options)
    assert program.is_answered()
    return program
