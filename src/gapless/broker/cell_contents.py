"""What this broker has that keeps its cell in the tree (RS-15)."""

from __future__ import annotations

from collections.abc import Iterator

from gapless.core.context import Context
from gapless.core.reshape_limits import REMAINDER_CHARACTERS_MAX, REMAINDERS_NAMED_MAX
from gapless.directory.hosted import HostedPubends
from gapless.overlay.tree import Tree
from gapless.pubend.pubends import AnyPubend
from gapless.pubend.staging import Staging
from gapless.subscribers import Registry, Subends

__all__ = ["LeavingCell"]


class LeavingCell:
    """Tells what is left at this broker, and leaves the pubends of which it is a member."""

    def __init__(
        self,
        context: Context,
        tree: Tree,
        hosted: HostedPubends[AnyPubend],
        staging: Staging,
        registry: Registry,
        subends: Subends,
    ) -> None:
        self._me = context.identity.broker
        self._tree = tree
        self._hosted = hosted
        self._staging = staging
        self._registry = registry
        self._subends = subends

    def left(self) -> tuple[str, ...]:
        """Return what an operator has to remove or move before the cell can be detached."""
        found = []
        for each in self._entries():
            found.append(each[:REMAINDER_CHARACTERS_MAX])
            if len(found) == REMAINDERS_NAMED_MAX:
                break
        return tuple(found)

    def _entries(self) -> Iterator[str]:
        for broker in self._tree.neighbourhood.peers:
            if broker != self._me:
                yield f"the member {broker}"
        for pubend in sorted(self._hosted.on_disk):
            yield f"the pubend {pubend}"
        for subscription in self._registry.durable():
            yield f"the durable subscription {subscription.name}"
        if batches := len(self._staging.batch_sizes):
            yield f"{batches:,} staged batches"
        if clients := self._registry.clients_connected:
            yield f"{clients:,} connected clients"

    def is_member(self) -> bool:
        """Return whether this broker is a member of pubends, or is leaving some."""
        return any(True for _ in self._subends.memberships)

    def leave(self) -> None:
        """Leave the pubends that no subscription needs now, without the usual grace."""
        self._subends.leave_unneeded()
