"""A client with many subscriptions that fill the tables of brokers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gapless.messages.clients import Refused, Subscribe, Subscribed
from gapless_lab.sim.clients import SimulatedClient

if TYPE_CHECKING:
    from gapless_lab.sim.oracle import Oracle
    from gapless_lab.sim.world import SimulatedHost, World

__all__ = ["SubscribingCrowd"]

AHEAD = 200
"""How many requests wait for their replies at once."""
CREDIT = 1_000_000


class SubscribingCrowd(SimulatedClient):
    """Subscribes with many filters over one connection. What it receives is not checked."""

    def __init__(
        self,
        world: World,
        oracle: Oracle,
        name: str,
        host: SimulatedHost,
        filters: Sequence[str],
    ) -> None:
        super().__init__(world, oracle, name, host)
        self._filters = filters
        self._requested = 0
        self._subscribed = 0

    @property
    def steady(self) -> bool:
        """Whether all subscriptions are confirmed."""
        return self._subscribed == len(self._filters)

    def connected(self) -> None:
        """Subscribe, from the first filter on: the subscriptions end with their connection."""
        self._requested = self._subscribed = 0
        self._request()

    def take(self, notice: Any) -> None:
        """Count the confirmed subscriptions."""
        assert not isinstance(notice, Refused), notice
        if isinstance(notice, Subscribed):
            self._subscribed += 1
            self._request()

    def _request(self) -> None:
        most = min(len(self._filters), self._subscribed + AHEAD)
        while self._requested < most:
            name, text = f"{self.name}-{self._requested}", self._filters[self._requested]
            self._requested += 1
            self.send_request(Subscribe(self.next_request(), name, text, credit=CREDIT))
