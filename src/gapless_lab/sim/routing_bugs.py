"""Wrong routes: planted bugs of redundant cells, of bypass and of relays.

Each takes out a rule that matters only while something stays broken: brokers of a cell, whole
cells, links (:mod:`.liveness_core`). They are hunted with those of :mod:`.broker_bugs`. No likely
run detects the absence of some other rules; :data:`ONLY_DIRECTED` names the tests that do.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from gapless.core.ids import BrokerId, PubendId
from gapless.core.parameters import microseconds
from gapless.feeds.candidates import FeedCandidates
from gapless.feeds.feed import Candidate
from gapless.messages.overlay import Packet, Relayed, RelayProbe
from gapless.messages.streams import Attach, AttachKind
from gapless.overlay.relays import Relays
from gapless.propagation.sufficiency import Receiver
from gapless.routing.reports import ReportAggregator
from gapless_lab.sim.planted_bugs import PlantedBug, constant, replaced

__all__ = ["ONLY_DIRECTED", "ROUTING_BUGS"]


# --- feeds ---------------------------------------------------------------------------------------


def _only_the_next_cell(original: Any) -> Any:
    """Take out all of R7 except (a)."""

    def candidates(self: FeedCandidates, pubend: PubendId) -> list[Candidate]:
        known = self._announcements.get(pubend)
        found: list[Candidate] = original(self, pubend)
        if known is None or known.direction is None:
            return found
        nearest = self._tree.neighbourhood.brokers(known.path[0])
        return [each for each in found if each.broker in nearest and not each.relayed]

    return candidates


def _feeds_every_requester(original: Any) -> Any:
    """Take out R10 between cells."""

    def may_feed(self: FeedCandidates, pubend: PubendId, receiver: Receiver) -> bool:
        return receiver.kind is AttachKind.CELL or bool(original(self, pubend, receiver))

    return may_feed


def _tries_every_peer(original: Any) -> Any:
    """Take out R7: try all reachable peers, the nearer ones first."""

    def candidates(self: FeedCandidates, pubend: PubendId) -> list[Candidate]:
        found: list[Candidate] = original(self, pubend)
        nearer = {each.broker for each in found}
        others = [peer for peer in self._peers.open_peers() if peer not in nearer]
        return found + [Candidate(peer, 900 + rank) for rank, peer in enumerate(others)]

    return candidates


def _bypasses_into_one_branch(original: Any) -> Any:
    """Feed one of the cells that have an edge to the bypassed cell, and not the others."""

    def may_feed(self: FeedCandidates, pubend: PubendId, receiver: Receiver) -> bool:
        neighbourhood = self._tree.neighbourhood
        if receiver.kind is AttachKind.CELL and receiver.name in neighbourhood:
            bypassed = neighbourhood.path(receiver.name)[-2:-1]
            if bypassed and receiver.name != min(neighbourhood.beyond(bypassed[0])):
                return False
        return bool(original(self, pubend, receiver))

    return may_feed


# --- tables --------------------------------------------------------------------------------------


# --- reports -------------------------------------------------------------------------------------


def _reports_for_silent_hosts(original: Any) -> Any:
    """Report the ack floor of others for an SHB whose last report is old."""

    def tick(self: Any) -> None:
        now, late = self._context.now, microseconds(ms=2 * self._context.parameters.ack_ms)
        for pubend, reports in self._last_reports.items():
            highest = max((each.tick for each in reports.values()), default=0)
            for shb, each in reports.items():
                if now - each.at > late:
                    reports[shb] = each._replace(tick=highest, at=now)
                    self._fresh.setdefault(pubend, {})[shb] = None
        original(self)

    return tick


# --- relays --------------------------------------------------------------------------------------


def _answers_at_the_relay(original: Any) -> Any:
    """Let a relay feed a receiver that attaches to another broker through it."""

    def forward(self: Any, message: Relayed) -> None:
        inner = message.inner
        if 0 < message.index < len(message.route) - 1 and isinstance(inner, Packet):
            attaches = [each for each in inner.messages if isinstance(each, Attach)]
            for each in attaches:
                self._peers._listener.received(message.route[0], each)  # noqa: SLF001
            rest = tuple(each for each in inner.messages if each not in attaches)
            message = msgspec.structs.replace(
                message, inner=msgspec.structs.replace(inner, messages=rest)
            )
        original(self, message)

    return forward


def _forwards_every_probe(self: Any, peer: BrokerId, probe: RelayProbe) -> None:
    """Treat every copy of a probe as the first, and send it to all peers, also back to its sender."""
    del peer
    passed = msgspec.structs.replace(probe, route=(*probe.route, self._me))
    if probe.target == self._me:
        self._peers.start_relayed(passed.route[::-1])
    elif len(passed.route) <= self._context.parameters.relay_hops_max:
        for other in self._peers.direct_peers():
            self._context.send(other, passed)


ROUTING_BUGS: Final = (
    PlantedBug(
        "does not bypass",
        "a cell that is down cuts off all cells beyond it (R7)",
        ((FeedCandidates, "candidates", _only_the_next_cell),),
    ),
    PlantedBug(
        "bypasses into one branch only",
        "all but one of the branches beyond a cell that is down get no feed (R10)",
        ((FeedCandidates, "may_feed", _bypasses_into_one_branch),),
    ),
    PlantedBug(
        "does not use relays",
        "a broker without a link to a peer has no session with it (R3)",
        ((Relays, "send_probes", constant(None)),),
    ),
    PlantedBug(
        "attaches to feeders that are not nearer",
        "routers attach to every reachable peer, and feed every requester (R7, R10, A2, A18)",
        (
            (FeedCandidates, "candidates", _tries_every_peer),
            (FeedCandidates, "may_feed", _feeds_every_requester),
        ),
    ),
    PlantedBug(
        "answers packets instead of relaying them",
        "a relay feeds a receiver that attaches to a feeder through it (R3, A2)",
        (
            (Relays, "_forward", _answers_at_the_relay),
            (FeedCandidates, "may_feed", _feeds_every_requester),
        ),
    ),
    PlantedBug(
        "forwards every copy of a probe",
        "every copy of a probe is forwarded, so that probing never ends (R3)",
        ((Relays, "probed", replaced(_forwards_every_probe)),),
    ),
    PlantedBug(
        "reports an ack floor for a silent SHB",
        "a router reports for a silent SHB the ack floor of the others (R52, A12)",
        ((ReportAggregator, "_tick", _reports_for_silent_hosts),),
    ),
)
"""Each must be detected within 1,000 seeds."""

ONLY_DIRECTED: Final[dict[str, str]] = {
    "does not use receivers as table sources": (
        "tests/scenarios/test_island_runs.py::test_if_receivers_were_no_sources_a_new_subscription_could_not_start"
    ),
    "ignores tables of a branch beyond a dead cell": (
        "tests/scenarios/test_bypass_runs.py::"
        "test_if_one_branch_is_forgotten_its_new_subscriptions_do_not_start"
    ),
    "locates hosts at a sibling by stale tables": (
        "tests/propagation/test_sufficiency.py::test_a_stale_table_does_not_locate_a_host_at_a_sibling"
    ),
    "locates hosts by tables from beyond a cell": (
        "tests/scenarios/test_propagation_runs.py::"
        "test_a25_a_table_from_beyond_does_not_locate_a_host_elsewhere"
    ),
    "takes two operations in one step for one": (
        "tests/scenarios/test_reshape_streams.py::"
        "test_run_67_two_operations_taken_for_one_hide_an_event"
    ),
    "keeps a session on a lost link": (
        "tests/overlay/test_relays.py::"
        "test_an_end_that_has_not_noticed_its_lost_link_follows_the_other_over_the_relay"
    ),
    "accepts packets of older sessions over relays": (
        "tests/overlay/test_relays.py::"
        "test_packets_of_an_older_session_over_the_same_route_are_ignored"
    ),
    "does not report a lost next hop": (
        "tests/overlay/test_relays.py::"
        "test_a_relay_that_has_lost_its_next_hop_notifies_the_sender_and_the_session_ends"
    ),
    "ignores packets lost by a relay": (
        "tests/overlay/test_relays.py::test_a_gap_ends_a_session_over_relays_too"
    ),
    "ignores ranks within a class": (
        "tests/scenarios/test_bundle_runs.py::"
        "test_without_ranks_inside_of_a_class_load_does_not_return"
    ),
}
"""Rules whose absence other rules repair, later or at a greater cost, or that need a very rare run:
each with the test that detects it.
"""
