"""Stream epochs sent downstream: each once per session (R31, R39)."""

from __future__ import annotations

from collections.abc import Collection, Mapping

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
        self._requested: dict[tuple[PubendId, int], list[BrokerId]] = {}

    @property
    def sent(self) -> Mapping[BrokerId, Mapping[PubendId, Collection[int]]]:
        """The newest stream epochs that each peer was sent in its session, by pubend."""
        return self._sent

    def send(
        self, peer: BrokerId, pubend: PubendId, number: int, stream_epochs: StreamEpochs
    ) -> None:
        """Send a stream epoch to a peer unless it was sent; an unknown one, when it is known."""
        sent = self._sent.setdefault(peer, {}).setdefault(pubend, [])
        if number == 0 or number in sent:
            return
        if not stream_epochs.knows(number):
            self._note_request(peer, pubend, number)
            return
        base = sent[-1] if sent else None
        self._context.send(peer, stream_epochs.message(pubend, number, base))
        sent.append(number)
        del sent[: -self._context.parameters.stream_epochs_kept]

    def answer(
        self, peer: BrokerId, request: StreamEpochRequest, stream_epochs: StreamEpochs
    ) -> bool:
        """Reply to a request; return False if the stream epoch is not known here."""
        if not stream_epochs.knows(request.number):
            self._note_request(peer, request.pubend, request.number)
            return False
        self._context.send(peer, stream_epochs.message(request.pubend, request.number, None))
        return True

    def pass_on(self, pubend: PubendId, number: int, stream_epochs: StreamEpochs) -> None:
        """Send a stream epoch that is known now to the peers that wait for it."""
        for peer in self._requested.pop((pubend, number), ()):
            self._context.send(peer, stream_epochs.message(pubend, number, None))

    def forget(self, peer: BrokerId) -> None:
        """Forget what was sent and requested in a session."""
        self._sent.pop(peer, None)
        for key, peers in list(self._requested.items()):
            left = [each for each in peers if each != peer]
            if left:
                self._requested[key] = left
            else:
                del self._requested[key]

    def _note_request(self, peer: BrokerId, pubend: PubendId, number: int) -> None:
        peers = self._requested.setdefault((pubend, number), [])
        if peer not in peers:
            peers.append(peer)
