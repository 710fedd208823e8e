"""All subscribers of a run: the connected ones, the temporary ones, and the one that changes its
filter.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Collection, Mapping
from itertools import cycle
from typing import Final

from gapless.client import connect
from gapless.core.errors import ConnectionLostError, GaplessError
from gapless.core.ids import BrokerId
from gapless.messages.operating import ListSubscriptions
from gapless_lab.chaos.faults import ANOTHER_LEFT, ONE_LEFT
from gapless_lab.chaos.flow import ObservedStream, StreamRecovery
from gapless_lab.chaos.roles import FICKLE, FILTERS, NEWCOMERS, VISITOR
from gapless_lab.chaos.subscribers import PermanentSubscriber, TemporarySubscriber
from gapless_lab.demo.clients import DemoCounters
from gapless_lab.demo.records import RecordFile
from gapless_lab.demo.workload import DemoRoles, SubscriberRole

__all__ = ["SubscriberPool"]

_TEMPORARY: Final = frozenset({VISITOR, *NEWCOMERS})


class SubscriberPool:
    """The subscribers of the roles."""

    def __init__(
        self,
        roles: DemoRoles,
        urls: Mapping[BrokerId, str],
        tally: DemoCounters,
        flow: StreamRecovery,
    ) -> None:
        self._subscribers: dict[str, PermanentSubscriber] = {}
        for part in roles.subscribers:
            kind = TemporarySubscriber if part.name in _TEMPORARY else PermanentSubscriber
            known = [urls[broker] for broker in part.brokers]
            self._subscribers[part.name] = kind(part, known, tally, on_batch=flow.took)
        self._urls = urls
        self._hosting_brokers: dict[str, BrokerId] = {}
        """The brokers at which durable subscribers that can fail over were found last."""
        self.failovers = 0
        """How often one of these was found at another broker."""
        self._there: dict[str, None] = {}
        self._newcomers = deque(NEWCOMERS)
        self._filters = cycle(FILTERS[1:] + FILTERS[:1])
        self._records: Mapping[str, RecordFile] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._group: asyncio.TaskGroup

    # --- start and end ---------------------------------------------------------------------------

    async def open(self, records: Mapping[str, RecordFile], group: asyncio.TaskGroup) -> None:
        """Start all permanent subscribers, one after the other."""
        self._records, self._group = records, group
        for name, subscriber in self._subscribers.items():
            if name not in _TEMPORARY:
                self.add([name])
                await subscriber.ready.wait()

    def temporary_for(self, kinds: Collection[str]) -> list[str]:
        """Return the temporary subscribers that start during faults of these kinds."""
        temporary = [VISITOR]
        if self._newcomers and not {ONE_LEFT, ANOTHER_LEFT}.isdisjoint(kinds):
            temporary.append(self._newcomers.popleft())
        return temporary

    def add(self, names: Collection[str]) -> None:
        """Start subscribers, or connect them again."""
        for name in names:
            subscriber = self._subscribers[name]
            self._there[name] = None
            if name in self._tasks:
                subscriber.come_back()
            else:
                work = subscriber.run(self._records[name])
                self._tasks[name] = self._group.create_task(work, name=name)

    async def remove_temporary(self) -> None:
        """Disconnect the visitor, and wait for that."""
        visitor = self._subscribers[VISITOR]
        del self._there[VISITOR]
        visitor.leave()
        while visitor.session is not None:  # noqa: ASYNC110  # no event exists
            await asyncio.sleep(0.01)

    def end(self) -> None:
        """End all subscribers."""
        for subscriber in self._subscribers.values():
            subscriber.end()

    # --- locations -------------------------------------------------------------------------------

    def present(self, coming: Collection[str]) -> dict[SubscriberRole, BrokerId | None]:
        """Return the brokers of subscribers; None for those that are connecting or will start."""
        found: dict[SubscriberRole, BrokerId | None] = {}
        for name in (*self._there, *coming):
            subscriber = self._subscribers[name]
            broker = None if subscriber.session is None else subscriber.session.broker
            found[subscriber.role] = self._hosting_brokers.get(name, broker)
        return found

    async def locate_durables(self) -> None:
        """Query which durable subscribers that can fail over each broker has, and count failovers."""
        known = {
            name: subscriber.role.brokers
            for name, subscriber in self._subscribers.items()
            if subscriber.role.is_durable and len(subscriber.role.brokers) > 1
        }
        for broker in sorted({broker for brokers in known.values() for broker in brokers}):
            for name in await _connected_durables(self._urls[broker]):
                if broker in known.get(name, ()):
                    self.failovers += self._hosting_brokers.get(name, broker) != broker
                    self._hosting_brokers[name] = broker

    @property
    def streams(self) -> list[ObservedStream]:
        """The streams of all connected subscribers."""
        return [stream for name in self._there for stream in self.streams_of(name)]

    def streams_of(self, name: str) -> list[ObservedStream]:
        """Return the streams of one subscriber, connected or not."""
        pubends = self._subscribers[name].role.filter.pubends
        return [ObservedStream(name, pubend) for pubend in sorted(pubends)]

    # --- changing a filter -----------------------------------------------------------------------

    async def change_filter(self) -> str | None:
        """Change the filter of the fickle subscriber; return the error text if that failed."""
        try:
            await self._subscribers[FICKLE].switch(next(self._filters))
        except GaplessError as error:
            return f"{FICKLE} could not change its filter: {error}"
        return None


async def _connected_durables(url: str) -> list[str]:
    """Return the durable subscriptions with a client at a broker; none if the broker is down."""
    with contextlib.suppress(ConnectionLostError):
        async with connect(url) as session:
            listed = await session.request(ListSubscriptions(0, durable=True), changes=False)
            return [each.name for each in listed.entries if each.client is not None]
    return []
