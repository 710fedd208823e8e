"""The status of a pubend: which broker has it, whether it may return, why it is not fed.

A broker knows the location of a pubend from its announcement, or from the stored location if there
is none (:mod:`.locations`). A PHB is *gone* if it is retired, or returned without the pubend
(R26).
"""

from __future__ import annotations

from gapless.core.context import Identity
from gapless.core.ids import BrokerId, PubendId
from gapless.core.limits import SHOWN_CUTS_MAX
from gapless.core.ticks import Tick
from gapless.directory.announcements import Announcements, KnownPubend
from gapless.directory.hosted import Hosted
from gapless.directory.locations import PubendLocations
from gapless.directory.protocols import PartitionsOnPaths, RetiredBrokers
from gapless.directory.tombstones import Tombstones, closed_reason
from gapless.overlay.peers import Peers

__all__ = ["PubendStatuses"]


class PubendStatuses:
    """Locates pubends, and decides whether they may return."""

    def __init__(
        self,
        identity: Identity,
        peers: Peers,
        partitions: PartitionsOnPaths,
        hosted: Hosted,
        retirements: RetiredBrokers,
        announcements: Announcements,
        locations: PubendLocations,
        tombstones: Tombstones,
    ) -> None:
        self._me = identity.broker
        self._peers = peers
        self._partitions = partitions
        self._hosted = hosted
        self._retirements = retirements
        self._announcements = announcements
        self._locations = locations
        self._tombstones = tombstones

    # --- where a pubend is ---------------------------------------------------------------------

    def broker_of(self, pubend: PubendId) -> BrokerId | None:
        """Return the broker that has a pubend, or None if it is not known."""
        known = self._announcements.get(pubend)
        return self._locations.broker_of(pubend) if known is None else known.properties.broker

    def other_broker(self, pubend: PubendId) -> BrokerId | None:
        """Return the other broker that has a pubend, or None if there is none or it is retired."""
        broker = self.broker_of(pubend)
        if broker is None or broker == self._me or self._locations.is_lost(pubend):
            return None
        return None if self._retirements.has(broker) else broker

    def is_known(self, pubend: PubendId) -> bool:
        """Return whether this broker knows a broker that has a pubend."""
        here = pubend in self._hosted or pubend in self._hosted.corrupt
        return here or self.other_broker(pubend) is not None

    def is_closed(self, pubend: PubendId) -> bool:
        """Return whether a pubend was closed, as far as that is remembered (RS-34)."""
        return pubend in self._tombstones or self._announcements.is_closed(pubend)

    def sealed_at(self, pubend: PubendId) -> Tick | None:
        """Return the last tick of a sealed pubend, as far as that is known (RS-32)."""
        known = self._announcements.known.get(pubend)
        return None if known is None else known.sealed

    def end_of(self, pubend: PubendId) -> tuple[Tick, Tick] | None:
        """Return the last tick of a tombstone with a log, and that of its last event (RS-34)."""
        known, record = self._announcements.known.get(pubend), self._tombstones.get(pubend)
        if known is not None and known.tombstone and known.sealed:
            return known.sealed, known.last_event
        return (record.last, record.last_event) if record is not None and record.last else None

    # --- whether it may return -----------------------------------------------------------------

    def is_phb_gone(self, pubend: PubendId) -> bool:
        """Return whether the broker of a pubend is retired, or returned without the pubend."""
        if self._locations.is_lost(pubend):
            return True
        broker = self.broker_of(pubend) or self._locations.former_broker_of(pubend)
        return broker is not None and self._retirements.has(broker)

    def returned_at(self, pubend: PubendId) -> Tick:
        """Return the tick above which no merge excluded a pubend; 0 if its broker never retired."""
        broker = self.broker_of(pubend)
        return 0 if broker is None else self._retirements.returned_at(broker)

    def found(self, pubend: PubendId) -> None:
        """Note that a feed of a pubend has started: the pubend is not lost."""
        self._locations.mark_found(pubend)

    # --- texts for people ----------------------------------------------------------------------

    def not_here(self, pubend: PubendId) -> str:
        """Return why this broker does not serve a pubend."""
        if self.is_closed(pubend):
            return closed_reason(pubend)
        where, corruption = self.other_broker(pubend), self._hosted.corrupt.get(pubend)
        if where is not None:
            return f"the pubend {pubend} is at the broker {where}; publish there"
        if corruption is not None:
            return f"the pubend {pubend} could not be restored: {corruption}"
        same_name = ", ".join(str(each) for each in self._hosted if each.name == pubend.name)
        others = f", but {same_name}" if same_name else ""
        return f"there is no pubend {pubend} here{others}; open it first"

    def obstacle(self, pubend: PubendId) -> str:
        """Return why a pubend is not fed: its broker, and the partitions on the path (R11, R12)."""
        known = self._announcements.get(pubend)
        if known is None:
            return "no broker has announced this pubend yet"
        phb = known.properties
        where = f"its broker {phb.broker} in cell {phb.cell}"
        if phb.broker == self._me or self._peers.is_open(phb.broker):
            return f"{where} can be reached, but does not have it yet"
        if self._retirements.has(phb.broker):
            return f"{where} was retired, and its log is lost with it"
        return f"there is no route to {where} now{self._partitions_on_path(known)}"

    def _partitions_on_path(self, known: KnownPubend) -> str:
        path = dict.fromkeys((*known.path, known.properties.cell))
        found = dict.fromkeys(
            each for cell in path for each in self._partitions.partitions_before(cell)
        )
        cuts = "; ".join(str(each) for each in [*found][:SHOWN_CUTS_MAX])
        return f" (partition {cuts})" if cuts else ""
