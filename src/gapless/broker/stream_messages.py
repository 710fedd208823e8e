"""The messages of streams, which are for the leaf of this broker, for its router, or for both.

The attach number of a message shows whether it belongs to a feed of the leaf or of the router.
Messages without an attach number concern both. Ranges of peers are validated first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gapless.core.context import Context
from gapless.core.ids import BrokerId, PubendId
from gapless.feeds.feed import is_leaf_number
from gapless.messages.streams import (
    AckExpected,
    Attached,
    Detach,
    FeedUnavailable,
    KnowledgeRange,
    Released,
    StreamData,
    StreamEpoch,
    StreamSilence,
    Unreadable,
)
from gapless.routing.reports import ReportAggregator
from gapless.routing.router import Router
from gapless.stream.ranges import invalid_reason
from gapless.subscribers import Subends

__all__ = ["StreamMessages"]


class StreamMessages:
    """Passes the messages of streams to the leaf and to the router."""

    def __init__(
        self, context: Context, router: Router, reports: ReportAggregator, subends: Subends
    ) -> None:
        self._context = context
        self._me = context.identity.broker
        self._router = router
        self._reports = reports
        self._subends = subends
        self.handlers: Mapping[type, Callable[[BrokerId, Any], None]] = {
            StreamData: self._data,
            StreamSilence: self._silence,
            Attached: self._attached,
            FeedUnavailable: self._feed_unavailable,
            StreamEpoch: self._stream_epoch,
            Released: self._released,
            Unreadable: self._unreadable,
            AckExpected: self._ack_expected,
        }

    # --- knowledge -----------------------------------------------------------------------------

    def _data(self, peer: BrokerId, message: StreamData) -> None:
        pubend, number, knowledge, first = (
            message.pubend,
            message.number,
            message.knowledge,
            message.first,
        )
        if self._is_invalid(peer, knowledge):
            return
        if is_leaf_number(number):
            self._to_leaf(pubend, number, knowledge)
        else:
            self._router.receive(pubend, number, knowledge, first)

    def _silence(self, peer: BrokerId, message: StreamSilence) -> None:
        for pubend, number, knowledge, first in message.ranges:
            if self._is_invalid(peer, knowledge):
                continue
            if is_leaf_number(number):
                self._to_leaf(pubend, number, knowledge)
            else:
                self._router.receive(pubend, number, knowledge, first)

    def _is_invalid(self, peer: BrokerId, knowledge: KnowledgeRange) -> bool:
        """Return whether a range of a peer is invalid; the ranges of this broker are valid.

        An invalid range counts as lost: its ticks remain Q, and the receiver sends a nack for them.
        """
        if peer == self._me or invalid_reason(knowledge) is None:
            return False
        self._context.mark("invalid knowledge range")
        return True

    def _to_leaf(self, pubend: PubendId, number: int, knowledge: KnowledgeRange) -> None:
        subend = self._subends.guaranteed.get(pubend)
        if subend is not None:
            subend.receive(knowledge)
            return
        best_effort = self._subends.best_effort.get(pubend)
        if best_effort is not None:
            best_effort.receive(number, knowledge)

    # --- feeds ---------------------------------------------------------------------------------

    def _attached(self, peer: BrokerId, message: Attached) -> None:
        if not is_leaf_number(message.number):
            self._router.attached(peer, message)
            return
        pubend = message.pubend
        end = self._subends.get(pubend)
        if end is None:
            self._context.send(peer, Detach(pubend, message.number))
        else:
            end.take_attached(peer, message)

    def _feed_unavailable(self, peer: BrokerId, message: FeedUnavailable) -> None:
        if not is_leaf_number(message.number):
            self._router.feed_unavailable(peer, message)
            return
        pubend = message.pubend
        end = self._subends.get(pubend)
        if end is not None:
            end.take_feed_unavailable(peer, message)

    # --- for both ------------------------------------------------------------------------------

    def _stream_epoch(self, peer: BrokerId, message: StreamEpoch) -> None:
        subend = self._subends.guaranteed.get(message.pubend)
        if subend is not None:
            subend.stream_epoch(message)
        if peer != self._me:
            self._router.stream_epoch_received(message)

    def _released(self, peer: BrokerId, message: Released) -> None:
        subend = self._subends.guaranteed.get(message.pubend)
        if subend is not None:
            subend.released(message)
        if peer != self._me:
            self._router.released(message)

    def _unreadable(self, peer: BrokerId, message: Unreadable) -> None:
        subend = self._subends.guaranteed.get(message.pubend)
        if subend is not None and subend.feeder == peer:
            subend.unreadable(message)
        if peer != self._me:
            self._router.unreadable(peer, message)

    def _ack_expected(self, peer: BrokerId, message: AckExpected) -> None:
        subend = self._subends.guaranteed.get(message.pubend)
        if subend is not None and subend.feeder == peer:
            subend.ack_expected(message)
        self._router.ack_expected(peer, message)
        self._reports.ack_expected(peer, message)
