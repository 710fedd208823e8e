"""A real link over connections that a test makes and ends; nothing is dialled.

Fault budget: connections break when a test breaks them. Requests are recorded; the test answers them or
does not.
"""

from __future__ import annotations

from typing import Any, TypeVar, cast

from gapless.client.connection import BrokerConnection
from gapless.client.link import ReconnectingLink
from gapless.client.options import SessionOptions
from gapless.client.requests import RequestNumbers
from gapless.core.address import Address
from gapless.wire import Connected, DisconnectReason

__all__ = ["DrivenLink", "FakeConnection"]

T = TypeVar("T")


class FakeConnection:
    """Records what is sent and whether it is closed."""

    has_timed_out = False

    def __init__(self, link: ReconnectingLink) -> None:
        self.link = link
        self.sent: list[Any] = []

    def send(self, request: Any) -> None:
        """Record a request."""
        self.sent.append(request)

    def close(self, code: DisconnectReason, reason: str) -> None:
        """Record that the client closed the connection."""
        del code
        self.link.closed(cast("BrokerConnection", self), reason, None)


class DrivenLink:
    """A link whose connections a test makes and ends; use it inside an event loop."""

    def __init__(self) -> None:
        self.link = ReconnectingLink((Address("b1", 7_400),), SessionOptions(), RequestNumbers())
        self.connections: list[FakeConnection] = []

    @property
    def sent(self) -> list[Any]:
        """All requests, over all connections."""
        return [request for each in self.connections for request in each.sent]

    def sent_of(self, kind: type[T]) -> list[T]:
        """Return all requests of a kind."""
        return [each for each in self.sent if isinstance(each, kind)]

    def dial(self) -> BrokerConnection:
        """Return the current connection; make one if there is none."""
        if self.link._connection is None:
            self.connections.append(FakeConnection(self.link))
            self.link._connection = cast("BrokerConnection", self.connections[-1])
        return self.link._connection

    def accept(self, broker: str = "b1") -> None:
        """Accept the connection as a broker."""
        self.link.opened(self.dial(), Connected(2, broker, "c1", 1_048_576, 60_000))

    def lose(self, code: DisconnectReason | None = None) -> None:
        """End the connection, with a disconnect reason if the broker gives one."""
        self.link.closed(self.dial(), "the test cuts it", code)

    def notify(self, *notices: Any) -> None:
        """Deliver notices on the current connection."""
        for notice in notices:
            self.link.notice_received(self.dial(), notice)
