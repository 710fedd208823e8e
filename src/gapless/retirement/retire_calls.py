"""The request of an operator to retire a broker that will not return (R26)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from gapless.core.context import Context
from gapless.core.ids import ShbId
from gapless.core.limits import SHOWN_HOSTS_NAMED_MAX
from gapless.messages.clients import Refused
from gapless.messages.operating import BrokerRetired, RetireBroker
from gapless.overlay.peers import Peers
from gapless.overlay.tree import Tree

__all__ = ["HostSource", "RetireCalls", "RetiredHosts"]


class HostSource(Protocol):
    """A component that knows SHBs."""

    def hosts(self) -> Iterable[ShbId]:
        """Return the known SHBs."""


class RetiredHosts(Protocol):
    """The brokers that were retired, to which one may be added."""

    def __contains__(self, shb: ShbId) -> bool:
        """Return whether a broker is retired."""

    def retire(self, shb: ShbId) -> None:
        """Retire a broker and send that to all peers."""


class RetireCalls:
    """Answers the requests to retire a broker."""

    def __init__(
        self,
        context: Context,
        tree: Tree,
        peers: Peers,
        retirements: RetiredHosts,
        known: Iterable[HostSource],
    ) -> None:
        self._context = context
        self._tree = tree
        self._peers = peers
        self._retirements = retirements
        self._known = tuple(known)
        self.handlers: Mapping[type, Callable[[str, Any], None]] = {RetireBroker: self._retire}

    def _retire(self, client: str, call: RetireBroker) -> None:
        reason = self._refusal_of(call)
        if reason is not None:
            self._context.notify(client, Refused(call.request, reason))
            return
        self._retirements.retire(ShbId(call.broker, call.cell))
        self._context.write((), lambda: self._context.notify(client, BrokerRetired(call.request)))

    def _refusal_of(self, call: RetireBroker) -> str | None:
        if call.broker == self._context.identity.broker or self._peers.is_open(call.broker):
            return f"the broker {call.broker} is alive; stop it before it is retired"
        shb = ShbId(call.broker, call.cell)
        return None if shb in self._retirements else self.unknown_host_reason(shb)

    def unknown_host_reason(self, shb: ShbId) -> str | None:
        """Return a refusal that lists the known SHBs; None if the SHB is known.

        This broker knows the brokers of its neighbourhood, the members of its pubends, and the SHBs
        in its subscription tables.
        """
        known = self._known_hosts()
        if shb in known:
            return None
        others = sorted(known - {self._context.identity.shb})
        shown = ", ".join(
            f"{each.broker} in {each.cell}" for each in others[:SHOWN_HOSTS_NAMED_MAX]
        )
        more = len(others) - SHOWN_HOSTS_NAMED_MAX
        rest = f" and {more:,} more" if more > 0 else ""
        return (
            f"no broker {shb.broker} in the cell {shb.cell} is known here; known are "
            f"{shown or 'no others'}{rest}; for any other broker use a broker nearer to it"
        )

    def _known_hosts(self) -> set[ShbId]:
        cells = self._tree.neighbourhood.cells
        known = {ShbId(each, info.name) for info in cells for each in info.brokers}
        for component in self._known:
            known.update(component.hosts())
        return known
