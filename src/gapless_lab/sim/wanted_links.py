"""Which links a host wants, as the driver of a broker keeps them (RS-35)."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from gapless.core.effects import SetPeers
from gapless.core.ids import BrokerId
from gapless.overlay.neighbourhood import Neighbourhood

__all__ = ["WantedLinks"]


class WantedLinks:
    """The brokers with which a host keeps links (effect SetPeers)."""

    __slots__ = ("_dialled", "_kept")

    def __init__(self, dialled: Iterable[BrokerId], kept: Iterable[BrokerId]) -> None:
        self._dialled = frozenset(dialled)
        self._kept = frozenset(kept)

    @classmethod
    def configured(cls, broker: BrokerId, neighbourhood: Neighbourhood) -> WantedLinks:
        """Return the links of a broker that has just started: those with its neighbourhood."""
        return cls.between(broker, neighbourhood.all_brokers())

    @classmethod
    def between(
        cls,
        broker: BrokerId,
        peers: Collection[BrokerId],
        control: Collection[BrokerId] = (),
        admitted: Collection[BrokerId] = (),
    ) -> WantedLinks:
        """Return the links of a broker; of two peers the one whose name comes first dials."""
        dialled = (peer for peer in peers if broker < peer)
        return cls((*dialled, *control), (*peers, *control, *admitted))

    @classmethod
    def of(cls, broker: BrokerId, effect: SetPeers) -> WantedLinks:
        """Return the links that a broker has asked for."""
        peers, control = ([each.broker for each in some] for some in (effect.peers, effect.control))
        return cls.between(broker, peers, control, effect.admitted)

    def dials(self, broker: BrokerId) -> bool:
        """Return whether the host opens a connection to a broker whenever there is none."""
        return broker in self._dialled

    def keeps(self, broker: BrokerId) -> bool:
        """Return whether the host keeps a connection to a broker that is open."""
        return broker in self._kept

    def dialled(self) -> list[BrokerId]:
        """Return the brokers that the host dials, in the order of their names."""
        return sorted(self._dialled)
