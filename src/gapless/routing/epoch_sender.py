"""Stream epochs sent downstream: each once per session (R31, R39)."""

from __future__ import annotations

from gapless.core.context import Context
from gapless.core.ids import BrokerId, PubendId
from gapless.messages.streams import StreamEpochRequest
from gapless.stream.epochs import StreamEpochs

__all__ = ["StreamEpochSender"]


class StreamEpochSender:
    """Sends each peer the stream epochs of its knowledge ranges, once per session."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._sent: dict[BrokerId, dict[PubendId, list[int]]] = {}
        self._wanted: dict[tuple[PubendId, int], list[BrokerId]] = {}

    def send(
        self, peer: BrokerId, pubend: PubendId, number: int, stream_epochs: StreamEpochs
    ) -> None:
        """Send a stream epoch to a peer unless it was sent; an unknown one, when it is known."""
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
        """Reply to a request; return False if the stream epoch is not known here."""
        if not stream_epochs.knows(want.number):
            self._want(peer, want.pubend, want.number)
            return False
        self._context.send(peer, stream_epochs.message(want.pubend, want.number, None))
        return True

    def pass_on(self, pubend: PubendId, number: int, stream_epochs: StreamEpochs) -> None:
        """Send a stream epoch that is known now to the peers that wait for it."""
        for peer in self._wanted.pop((pubend, number), ()):
            self._context.send(peer, stream_epochs.message(pubend, number, None))

    def forget(self, peer: BrokerId) -> None:
        """Forget what was sent and requested in a session."""
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
