"""Stream epochs on their way down: each is sent once in a session (R31, R39)."""

from __future__ import annotations

from gapless.core.ids import BrokerId, PubendId
from gapless.core.machine import Context
from gapless.messages.streams import RegimeWant
from gapless.stream.epochs import Regimes

__all__ = ["RegimeTeller"]


class RegimeTeller:
    """Tells each peer the regimes of the pieces it gets, once per session."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._told: dict[BrokerId, dict[PubendId, list[int]]] = {}
        self._wanted: dict[tuple[PubendId, int], list[BrokerId]] = {}

    def tell(self, peer: BrokerId, pubend: PubendId, number: int, regimes: Regimes) -> None:
        """Tell a peer a regime unless it was told; one not known here is told when it is."""
        told = self._told.setdefault(peer, {}).setdefault(pubend, [])
        if number == 0 or number in told:
            return
        if not regimes.knows(number):
            self._want(peer, pubend, number)
            return
        base = told[-1] if told else None
        self._context.post(peer, regimes.message(pubend, number, base))
        told.append(number)
        del told[: -self._context.parameters.regimes_kept]

    def answer(self, peer: BrokerId, want: RegimeWant, regimes: Regimes) -> bool:
        """Tell a peer that asks; False if the regime is not known here."""
        if not regimes.knows(want.number):
            self._want(peer, want.pubend, want.number)
            return False
        self._context.post(peer, regimes.message(want.pubend, want.number, None))
        return True

    def pass_on(self, pubend: PubendId, number: int, regimes: Regimes) -> None:
        """Tell those who waited for a regime that is known now."""
        for peer in self._wanted.pop((pubend, number), ()):
            self._context.post(peer, regimes.message(pubend, number, None))

    def forget(self, peer: BrokerId) -> None:
        """What was told in a session is forgotten with it."""
        self._told.pop(peer, None)
        for key, peers in list(self._wanted.items()):
            left = [each for each in peers if each != peer]
            if left:
                self._wanted[key] = left
            else:
                del self._wanted[key]

    def _want(self, peer: BrokerId, pubend: PubendId, number: int) -> None:
        peers = self._wanted.setdefault((pubend, number), [])
        if peer not in peers:
            peers.append(peer)
