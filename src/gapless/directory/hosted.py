"""The registry of this broker's pubends, those with unreadable records included."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol, TypeVar

from gapless.core.ids import PubendId
from gapless.core.ticks import Tick
from gapless.messages.records import PubendRecord
from gapless.messages.streams import Member

__all__ = ["Hosted", "HostedPubend", "HostedPubends"]


class HostedPubend(Protocol):
    """A pubend of this broker, as the directory uses it."""

    @property
    def record(self) -> PubendRecord:
        """The record on disk."""

    @property
    def last_log_tick(self) -> Tick:
        """The last tick that was assigned in the log; 0 if there is no log."""

    def report(self, member: Member, tick: Tick) -> bool:
        """Process a report of a member; return False if there is no log."""


class Hosted(Protocol):
    """The registry for components that do not call the pubends."""

    @property
    def corrupt(self) -> Mapping[PubendId, str]:
        """The pubends whose records cannot be read, each with the reason."""

    def __contains__(self, pubend: object) -> bool:
        """Return whether a pubend is served here."""

    def __iter__(self) -> Iterator[PubendId]:
        """Return the pubends that are served here."""

    @property
    def on_disk(self) -> set[PubendId]:
        """All pubends of this broker, the corrupt ones included."""


P = TypeVar("P", bound=HostedPubend)


class HostedPubends(dict[PubendId, P]):
    """The pubends that this broker serves, by their ids."""

    def __init__(self, corrupt: Mapping[PubendId, str]) -> None:
        super().__init__()
        self._corrupt = dict(corrupt)

    @property
    def corrupt(self) -> Mapping[PubendId, str]:
        """The pubends whose records cannot be read, each with the reason (P8)."""
        return self._corrupt

    @property
    def on_disk(self) -> set[PubendId]:
        """All pubends of this broker, the corrupt ones included."""
        return {*self, *self._corrupt}

    def report(self, pubend: PubendId, member: Member, tick: Tick) -> bool:
        """Process a report of a member; return False if the pubend has no log here."""
        hosted = self.get(pubend)
        return hosted is not None and hosted.report(member, tick)

    @property
    def last_tick(self) -> Tick:
        """The last tick in any log of this broker; 0 if there is none."""
        return max((each.last_log_tick for each in self.values()), default=0)
