"""Convergence: after a heal every broker knows what it needs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from gapless.broker import Broker
from gapless.core.ids import BrokerId, CellId, PubendId, ShbId, VirtualTime
from gapless.core.parameters import DEFAULTS, microseconds
from gapless.messages.clients import Order
from gapless.propagation import SubscriptionTable
from gapless.pubend.pubend import Pubend
from gapless.subscribers.cursor import Cursor
from gapless.subscribers.cursor_state import CursorPhase, Started
from gapless.subscribers.subend import Subend
from gapless_lab.sim.invariants.global_state import GlobalState, broker_of
from gapless_lab.sim.invariants.monitor import Invariant
from gapless_lab.sim.oracle import PublishedStream

if TYPE_CHECKING:
    from gapless_lab.sim.world import World

__all__ = ["ConvergenceInvariant"]


class ConvergenceInvariant(Invariant):
    """I15: in the liveness phase the core (:mod:`gapless_lab.sim.liveness_core`) converges. Every
    broker of it knows every pubend of it. Every edge towards an SHB of it is settled and has the
    newest entry of every SHB of it behind that edge. No SHB of it is late for a pubend of it. No
    stale table is kept beyond its time. Every needed pubend is fed and every cursor on it has
    started. Every horizon was near the top once. The ack floor of an SHB was near the top once too
    if no acknowledgement of a client is awaited. A pubend with a corrupt log is omitted.

    The core is connected in the tree, and a cell of it that lost brokers lost them for good. So
    every feeder or sender on a path between two brokers of the core is in the core. Nothing is
    required of SHBs and pubends outside: they may be late or unknown forever, and an edge that
    leads only to them is never settled.

    Three more conditions hold if the core is the whole overlay. No broker reports a partition, if
    no link remains cut. A durable subscription has one hosting broker, if no log is corrupt, which
    a new hosting broker might wait for (MV-14). No table has a conjunction that none of its SHBs
    states, unless conjunctions were merged (VT 3.3). In a smaller core stale conjunctions of
    brokers outside cannot be distinguished from wanted ones.

    The runner calls :meth:`outstanding` again and again. What is missing at the end of the time
    limit is a violation.
    """

    def __init__(self, global_state: GlobalState) -> None:
        super().__init__(global_state)
        parameters, options = global_state.parameters, global_state.options
        self._idle_us = parameters.idle_us
        self._hop_us = microseconds(ms=parameters.silence_ms) + 4 * options.delay_us_max
        self._ack_us = microseconds(ms=parameters.ack_ms)
        self._reported: set[tuple[BrokerId, PubendId, int]] = set()
        self._near: set[tuple[BrokerId, PubendId, int]] = set()
        """Subends whose horizon was near the top once; with tiny limits it need not remain
        there."""
        self._versions: dict[ShbId, tuple[VirtualTime, int]] = {}
        """By SHB its current virtual time, and the time at which it was first seen."""

    def outstanding(self, world: World) -> list[str]:
        """Return what is missing for convergence."""
        machines: list[Broker] = []
        for host in world.core:
            if host.process is not None and not isinstance(host.process.machine, Broker):
                return []  # the simulated machine is not a broker
            machine = broker_of(host)
            if machine is None:
                return [f"{host.broker} has not started"]
            machines.append(machine)
        whole = self._is_whole
        inside = {host.broker for host in world.core}
        streams = [
            each
            for each in self.oracle.streams.values()
            if each.broker in inside and not self.oracle.is_corrupt(each) and each.sealed is None
        ]
        shbs = {machine.context.identity.shb for machine in machines}
        times = self._settled_times(machines)
        stated = _stated(machines) if whole and self._is_exact else {}
        found: list[str] = []
        for machine in machines:
            me = machine.context.identity.broker
            found += [f"{me}: {line}" for line in self._tables(machine, streams, shbs, times)]
            found += [f"{me}: {line}" for line in self._surplus(machine, stated)]
            if whole and not self.global_state.options.inner_cuts:
                found += [
                    f"{me}: partition {each}" for each in machine.components.partitions.table()
                ]
            found += [f"{me}: {line}" for line in self._streams(machine, streams)]
        if whole and not any(map(self.oracle.is_corrupt, self.oracle.streams.values())):
            found += _second_hosts(machines)
        return found

    @property
    def _depth(self) -> int:
        return len(self.world.tree.names) + 1

    @property
    def _lag_us(self) -> int:
        """How far a horizon may be behind the top, at most."""
        return 2 * self._idle_us + 2 * self._depth * self._hop_us

    @property
    def _floor_lag_us(self) -> int:
        return self._lag_us + 2 * self._depth * self._ack_us

    @property
    def _is_whole(self) -> bool:
        return len(self.world.core) == len(self.world.hosts)

    @property
    def _is_exact(self) -> bool:
        """Whether no table is merged, so that each conjunction is one of some SHB."""
        return (
            self.global_state.parameters.table_conjunctions_max >= DEFAULTS.table_conjunctions_max
        )

    def _settled_times(self, machines: list[Broker]) -> dict[ShbId, VirtualTime]:
        """Return the virtual times of the SHBs that have not changed for a while."""
        found = {}
        parameters = self.global_state.parameters
        while_us = self._lag_us + 2 * microseconds(ms=parameters.heartbeat_ms)
        for machine in machines:
            shb, time = machine.context.identity.shb, machine.components.exchange.time
            since = self._versions.get(shb)
            if since is None or since[0] != time:
                self._versions[shb] = (time, self.world.now)
            elif self.world.now - since[1] > while_us:
                found[shb] = time
        return found

    def _tables(
        self,
        machine: Broker,
        streams: list[PublishedStream],
        shbs: set[ShbId],
        times: dict[ShbId, VirtualTime],
    ) -> Iterator[str]:
        holdings, own = machine.components.exchange.table_store, machine.context.identity.cell
        pubends = [stream.pubend for stream in streams]
        for pubend in pubends:
            if machine.components.announcements.get(pubend) is None:
                yield f"{pubend} is not known"
        towards = {self._edge_to(own, shb) for shb in shbs}
        for name, edge in holdings.edges.items():
            if name in towards and not edge.settled:
                yield f"the edge to {name} is not settled"
            for table in edge.tables():
                yield from self._late(table, pubends, shbs)
            for held in edge.held():
                if held.since is not None and machine.context.now - held.since > self._old_us:
                    yield f"{held!r} is too old"
        for out in holdings.out.values():
            yield from self._late(out.sender.table, pubends, shbs)
        for shb, time in times.items():
            name = self._edge_to(own, shb)
            entry = holdings.edges[name].entry(shb)
            if entry is None or entry.time != time:
                yield f"{shb} is at {time}, the edge to {name} has {entry}"

    def _edge_to(self, own: CellId, shb: ShbId) -> str:
        """Return the name of the edge behind which an SHB lies, seen from a cell."""
        return str(shb) if shb.cell == own else self.global_state.tree.path(own, shb.cell)[0]

    @property
    def _old_us(self) -> int:
        parameters = self.global_state.parameters
        return microseconds(s=parameters.stale_table_ttl_s + 2 * parameters.inactive_after_s)

    @staticmethod
    def _late(table: SubscriptionTable, pubends: list[PubendId], shbs: set[ShbId]) -> Iterator[str]:
        for pubend in pubends:
            late = table.late.get(pubend, frozenset()) & shbs
            if late:
                yield f"{table!r}: {late} are late for {pubend}"

    def _surplus(self, machine: Broker, stated: dict[ShbId, set[str]]) -> Iterator[str]:
        """Find conjunctions that a broker states for others and that none of them states."""
        own = machine.context.identity.cell
        for direction, out in machine.components.exchange.table_store.out.items() if stated else ():
            wanted: set[str] = set()
            for shb, texts in stated.items():
                if self._edge_to(own, shb) != direction:
                    wanted |= texts
            surplus = out.sender.table.conjunctions.keys() - wanted
            if surplus:
                yield f"the table for {direction} has {min(surplus)}, which no SHB wants"

    def _streams(self, machine: Broker, streams: list[PublishedStream]) -> Iterator[str]:
        for stream in streams:
            subend = machine.components.subends.guaranteed.get(stream.pubend)
            if subend is None or not subend.cursors:
                continue
            if subend.feeder is None:
                yield f"{stream.pubend} has no feed"
            for cursor in subend.cursors.values():
                if not _has_started(cursor):
                    yield f"{cursor.subscription.name} has not started on {stream.pubend}"
            phb = broker_of(self.world.hosts[stream.broker])
            hosted = None if phb is None else phb.components.hosted.get(stream.pubend)
            key = (machine.context.identity.broker, stream.pubend, subend.number)
            if isinstance(hosted, Pubend) and key not in self._near:
                if hosted.top - subend.horizon <= self._lag_us:
                    self._near.add(key)
                else:
                    yield f"the horizon of {stream.pubend} is at {subend.horizon} of {hosted.top}"
            if isinstance(hosted, Pubend) and key not in self._reported:
                yield from self._report(machine, subend, hosted, key)

    def _report(
        self, machine: Broker, subend: Subend, hosted: Pubend, key: tuple[BrokerId, PubendId, int]
    ) -> Iterator[str]:
        """Check that the reports of an SHB have reached the pubend's row of it."""
        subscriptions = [cursor.subscription for cursor in subend.cursors.values()]
        if any(each.durable for each in subscriptions):
            return  # its clients decide
        if not self._is_whole and any(each.order is Order.TOTAL for each in subscriptions):
            return  # it may wait for a pubend outside the core
        if len(hosted.members.rows()) > self.global_state.parameters.ack_groups:
            return  # SHBs share a group on the path, and the slowest decides for all (R52)
        row = hosted.members.row(machine.context.identity.shb)
        if row is not None and hosted.top - row.ack_floor <= self._floor_lag_us:
            self._reported.add(key)
        else:
            floor = None if row is None else row.ack_floor
            yield f"the floor of {subend.pubend} is at {floor} of {hosted.top}"


def _second_hosts(machines: list[Broker]) -> Iterator[str]:
    """Find durable subscriptions that have several hosting brokers."""
    hosts: dict[str, list[str]] = {}
    for machine in machines:
        for subscription in machine.components.registry.durable():
            hosts.setdefault(subscription.incarnation_key, []).append(
                f"{subscription.name} at {machine.context.identity.broker}, epoch {subscription.epoch}"
            )
    for incarnation_key, locations in hosts.items():
        if len(locations) > 1:
            yield f"{incarnation_key} has several hosting brokers: {'; '.join(locations)}"


def _stated(machines: list[Broker]) -> dict[ShbId, set[str]]:
    """Return the conjunctions that each SHB states."""
    return {
        machine.context.identity.shb: set(
            machine.components.exchange.leaf.sender.table.conjunctions
        )
        for machine in machines
    }


def _has_started(cursor: Cursor) -> bool:
    """Return whether a cursor has started, or starts from the earliest tick when its client
    connects and has a log hold for it.

    At a hosting broker that its client has left for good no client connects. The new hosting broker
    may never claim the subscription, for example while a log is corrupt that both need.
    """
    is_kept = cursor.phase is CursorPhase.DISCONNECTED and cursor.log_holds.is_safe
    return not cursor.is_pending and (isinstance(cursor.start, Started) or is_kept)
