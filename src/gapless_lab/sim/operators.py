"""Simulated operators: programs that request one operation on the tree and wait for its end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gapless.core.ids import BrokerId, CellId
from gapless.messages.clients import Refused
from gapless.messages.overlay import CellMember
from gapless.messages.reshape import (
    OperationKind,
    OperationRequestId,
    OperationStatus,
    OpReply,
    OpRequest,
    RefusalReason,
)
from gapless_lab.sim.clients import SimulatedClient

if TYPE_CHECKING:
    from gapless_lab.sim.oracle import Oracle
    from gapless_lab.sim.world import SimulatedHost, World

__all__ = ["SimulatedOperator"]


class SimulatedOperator(SimulatedClient):
    """Requests an operation of the leader that coordinates it, again and again under one id."""

    def __init__(
        self,
        world: World,
        oracle: Oracle,
        name: str,
        host: SimulatedHost,
        kind: OperationKind,
        cells: tuple[CellId, ...],
        member: BrokerId | None = None,
    ) -> None:
        super().__init__(world, oracle, name, host)
        self.kind = kind
        self.cells = cells
        self.outcome: OpReply | None = None
        """How the operation has ended, or None."""
        self._member = None if member is None else CellMember(member)
        self._pause_us = int(1_000_000 * world.options.pace)

    @property
    def what(self) -> str:
        """The operation, for messages."""
        return f"{self.kind.name}({', '.join(self.cells)})"

    def connected(self) -> None:
        """Request the operation, also if it was requested before."""
        self._ask()

    def _ask(self) -> None:
        if self.connection is not None and self.outcome is None:
            id_ = OperationRequestId(self.name)
            request = OpRequest(self.next_request(), id_, self.kind, self.cells, self._member)
            self.send_request(request)

    def take(self, notice: Any) -> None:
        """Handle the reply."""
        if isinstance(notice, Refused):
            self.follow(notice)
        elif isinstance(notice, OpReply):
            self._replied(notice)

    def _replied(self, reply: OpReply) -> None:
        if reply.status is OperationStatus.UNDER_WAY:
            self.world.after(self._pause_us, self._ask)
        elif reply.reason is RefusalReason.NOT_LEADER and reply.leader in self.world.hosts:
            self.host = self.world.hosts[reply.leader]
            self.drop(disconnected_us=self._pause_us)
        else:
            self.outcome = reply
            self.world.note(self.name, f"{self.what} has ended: {reply.status.name} {reply.text}")
            self.leave()
