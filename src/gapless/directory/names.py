"""The names of pubends: which pubend a name means, and whether a name was used before.

A name with a number means that pubend only. A name without a number means a pubend of this broker,
or if there is none, a known pubend of another broker; if several have the name, the first of them.
"""

from __future__ import annotations

import re
from typing import Final

from gapless.core.context import Identity
from gapless.core.ids import BrokerId, PubendId
from gapless.core.limits import NAME_MAX
from gapless.directory.announcements import Announcements
from gapless.directory.hosted import Hosted
from gapless.directory.locations import PubendLocations
from gapless.directory.status import PubendStatuses
from gapless.directory.tombstones import Tombstones

__all__ = ["PubendNames", "invalid_name_reason"]

_NUMBERED: Final = re.compile(r"([^#]+)#([0-9]{1,15})")
"""A name and its number."""


def invalid_name_reason(name: str) -> str | None:
    """Return why no pubend of a name may be created, or None if it may."""
    if _NUMBERED.fullmatch(name):
        return f"no pubend {name} is known here, and only brokers assign numbers"
    if not 0 < len(name) <= NAME_MAX or "#" in name:
        return f"the name of a pubend must have 1 to {NAME_MAX} characters and no #"
    return None


class PubendNames:
    """Resolves names at this broker."""

    def __init__(
        self,
        identity: Identity,
        hosted: Hosted,
        announcements: Announcements,
        locations: PubendLocations,
        status: PubendStatuses,
        tombstones: Tombstones,
    ) -> None:
        self._me = identity.broker
        self._hosted = hosted
        self._announcements = announcements
        self._locations = locations
        self._status = status
        self._tombstones = tombstones
        self._reserved: set[str] = set()
        """The names of pubends that this broker creates and that are not on disk yet."""

    def find(self, name: str) -> PubendId | None:
        """Return the pubend that a name means, or None if this broker knows none."""
        numbered = _NUMBERED.fullmatch(name)
        if numbered:
            exact = PubendId(numbered[1], int(numbered[2]))
            return exact if self._status.is_known(exact) else None
        unnumbered = PubendId(name)
        if unnumbered in self._hosted:
            return unnumbered
        own = [each for each in (*self._hosted, *self._hosted.corrupt) if each.name == name]
        if own or self._status.is_known(unnumbered):
            return min(own, default=unnumbered)
        others = (
            *self._announcements.pubends_named(name),
            *self._locations.pubends_named(name),
        )
        return min((each for each in others if self._status.is_known(each)), default=None)

    def broker_of_name(self, name: str) -> BrokerId | None:
        """Return the broker that has or creates a pubend of a name, or None if none is known."""
        if name in self._reserved:
            return self._me
        pubend = self.find(name)
        if pubend is None:
            return None
        return self._me if pubend in self._hosted else self._status.other_broker(pubend) or self._me

    def is_remembered(self, name: str) -> bool:
        """Return whether there was a pubend of exactly that name, even if no broker has it now.

        A closed pubend counts: its id is never given again (RS-34).
        """
        pubend = PubendId(name)
        is_announced = pubend in self._announcements.known or pubend in self._tombstones
        return is_announced or self._locations.broker_of(pubend) is not None

    def find_closed(self, name: str) -> PubendId | None:
        """Return the closed pubend that a name means if no pubend has the name now, or None."""
        numbered = _NUMBERED.fullmatch(name)
        pubend = PubendId(numbered[1], int(numbered[2])) if numbered else PubendId(name)
        return pubend if self._status.is_closed(pubend) else None

    @property
    def closed_here(self) -> int:
        """How many pubends this incarnation of the broker has closed."""
        return self._tombstones.added

    def reserve(self, name: str) -> None:
        """Reserve a name for a pubend that this broker is creating."""
        self._reserved.add(name)

    def release(self, name: str) -> None:
        """Release a name: the pubend is created."""
        self._reserved.discard(name)
