"""Stream epochs on their way down: each is sent once in a session (R31, R39)."""

from __future__ import annotations

from gapless.core.ids import BrokerId, PubendId
from gapless.core.machine import Context
from gapless.messages.streams import StreamEpochRequest
from gapless.stream.epochs import StreamEpochs

__all__ = ["StreamEpochSender"]


class StreamEpochSender:
    """Tells each peer the regimes of the pieces it gets, once per session."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._sent: dict[BrokerId, dict[PubendId, list[int]]] = {}
        self._wanted: dict[tuple[PubendId, int], list[BrokerId]] = {}

    def send(
        self, peer: BrokerId, pubend: PubendId, number: int, stream_epochs: StreamEpochs
    ) -> None:
        """Tell a peer a regime unless it was told; one not known here is told when it is."""
        sent = self._sent.setdefault(peer, {}).setdefault(pubend, [])
        if number == 0 or number in sent:
            return
        if not stream_epochs.knows(number):
            self._want(peer, pubend, number)
            return
        base = sent[-1] if sent else None
        self._context.send(peer, stream_epochs.message(pubend, number, base))
        sent.append(number)
        del sent[: -self._context.parameters.stream_epochs_kept]

    def answer(self, peer: BrokerId, want: StreamEpochRequest, stream_epochs: StreamEpochs) -> bool:
        """Tell a peer that asks; False if the regime is not known here."""
        if not stream_epochs.knows(want.number):
            self._want(peer, want.pubend, want.number)
            return False
        self._context.send(peer, stream_epochs.message(want.pubend, want.number, None))
        return True

    def pass_on(self, pubend: PubendId, number: int, stream_epochs: StreamEpochs) -> None:
        """Tell those who waited for a regime that is known now."""
        for peer in self._wanted.pop((pubend, number), ()):
            self._context.send(peer, stream_epochs.message(pubend, number, None))

    def forget(self, peer: BrokerId) -> None:
        """What was told in a session is forgotten with it."""
        self._sent.pop(peer, None)
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
