"""Publishers of a pubend that were not used for ``publisher_ttl_s`` are forgotten."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from gapless.core.context import Context
from gapless.core.parameters import microseconds
from gapless.core.ticks import Tick
from gapless.messages.records import PublisherRecord
from gapless.pubend.publishers import Publishers

__all__ = ["UnusedPublishers"]


class PublisherForgetter(Protocol):
    """The pubend whose publishers are reviewed."""

    def present(self) -> Tick:
        """Return the tick of now."""

    def forget_publishers(self, unused: Sequence[PublisherRecord]) -> None:
        """Delete the records of publishers."""


class UnusedPublishers:
    """Forgets the unused publishers of one pubend, at intervals."""

    def __init__(
        self, context: Context, pubend: PublisherForgetter, publishers: Publishers
    ) -> None:
        self._context = context
        self._pubend = pubend
        self._publishers = publishers
        self._ttl_us = microseconds(s=context.parameters.publisher_ttl_s)
        self._timer = context.call_later(self._ttl_us // 8, self._review)

    def stop(self) -> None:
        """Forget none any more: the pubend ends."""
        self._timer.cancel()

    def review(self) -> None:
        """Forget the publishers that were not used for long."""
        unused = self._publishers.forget_unused(self._pubend.present() - self._ttl_us)
        if unused:
            self._pubend.forget_publishers(unused)

    def _review(self) -> None:
        self._timer = self._context.call_later(self._ttl_us // 8, self._review)
        self.review()
