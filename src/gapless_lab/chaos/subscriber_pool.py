"""All watchers of a run: who is there, who comes while a fault lasts, and who changes its mind."""

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
from gapless_lab.chaos.flow import Flow, Stream
from gapless_lab.chaos.roles import FICKLE, NEWCOMERS, VISITOR, WISHES
from gapless_lab.chaos.subscribers import Guest, Resident
from gapless_lab.demo.clients import Tally
from gapless_lab.demo.records import RecordFile
from gapless_lab.demo.workload import Cast, WatcherPart

__all__ = ["Company"]

_GUESTS: Final = frozenset({VISITOR, *NEWCOMERS})


class Company:
    """The watchers of a cast."""

    def __init__(self, cast: Cast, urls: Mapping[BrokerId, str], tally: Tally, flow: Flow) -> None:
        self._watchers: dict[str, Resident] = {}
        for part in cast.watchers:
            kind = Guest if part.name in _GUESTS else Resident
            known = [urls[broker] for broker in part.brokers]
            self._watchers[part.name] = kind(part, known, tally, on_batch=flow.took)
        self._urls = urls
        self._homes: dict[str, BrokerId] = {}
        """Where durable watchers that can flee were found last."""
        self.flights = 0
        """How often one of these was found elsewhere."""
        self._there: dict[str, None] = {}
        self._newcomers = deque(NEWCOMERS)
        self._wishes = cycle(WISHES[1:] + WISHES[:1])
        self._records: Mapping[str, RecordFile] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._group: asyncio.TaskGroup

    # --- coming and going ------------------------------------------------------------------------

    async def open(self, records: Mapping[str, RecordFile], group: asyncio.TaskGroup) -> None:
        """Let all that are no guests come, one after the other."""
        self._records, self._group = records, group
        for name, watcher in self._watchers.items():
            if name not in _GUESTS:
                self.welcome([name])
                await watcher.ready.wait()

    def guests_for(self, kinds: Collection[str]) -> list[str]:
        """Return who is to come while faults of these kinds last."""
        guests = [VISITOR]
        if self._newcomers and not {ONE_LEFT, ANOTHER_LEFT}.isdisjoint(kinds):
            guests.append(self._newcomers.popleft())
        return guests

    def welcome(self, names: Collection[str]) -> None:
        """Let some come, or come back."""
        for name in names:
            watcher = self._watchers[name]
            self._there[name] = None
            if name in self._tasks:
                watcher.come_back()
            else:
                work = watcher.run(self._records[name])
                self._tasks[name] = self._group.create_task(work, name=name)

    async def see_off(self) -> None:
        """Let the visitor go, and wait until it is gone."""
        visitor = self._watchers[VISITOR]
        del self._there[VISITOR]
        visitor.leave()
        while visitor.session is not None:  # noqa: ASYNC110  # nobody tells
            await asyncio.sleep(0.01)

    def end(self) -> None:
        """Send all home."""
        for watcher in self._watchers.values():
            watcher.end()

    # --- who is where ----------------------------------------------------------------------------

    def present(self, coming: Collection[str]) -> dict[WatcherPart, BrokerId | None]:
        """Return where watchers are now; None for those who are to come, or are on their way."""
        found: dict[WatcherPart, BrokerId | None] = {}
        for name in (*self._there, *coming):
            watcher = self._watchers[name]
            broker = None if watcher.session is None else watcher.session.broker
            found[watcher.part] = self._homes.get(name, broker)
        return found

    async def find_homes(self) -> None:
        """Ask brokers which of the durable watchers that can flee they have, and count flights."""
        known = {
            name: watcher.part.brokers
            for name, watcher in self._watchers.items()
            if watcher.part.is_durable and len(watcher.part.brokers) > 1
        }
        for broker in sorted({broker for brokers in known.values() for broker in brokers}):
            for name in await _connected_durables(self._urls[broker]):
                if broker in known.get(name, ()):
                    self.flights += self._homes.get(name, broker) != broker
                    self._homes[name] = broker

    @property
    def streams(self) -> list[Stream]:
        """What everybody sees who is there."""
        return [stream for name in self._there for stream in self.streams_of(name)]

    def streams_of(self, name: str) -> list[Stream]:
        """What one sees, or would see."""
        pubends = self._watchers[name].part.wish.pubends
        return [Stream(name, pubend) for pubend in sorted(pubends)]

    # --- changing a filter -----------------------------------------------------------------------

    async def change_filter(self) -> str | None:
        """Let the fickle one want something else; return what kept it from that, if anything did."""
        try:
            await self._watchers[FICKLE].switch(next(self._wishes))
        except GaplessError as error:
            return f"{FICKLE} could not change its filter: {error}"
        return None


async def _connected_durables(url: str) -> list[str]:
    """Return the durable subscriptions that clients have at a broker now; none if it is not there."""
    with contextlib.suppress(ConnectionLostError):
        async with connect(url) as session:
            listed = await session.request(ListSubscriptions(0, durable=True), changes=False)
            return [each.name for each in listed.entries if each.client is not None]
    return []
