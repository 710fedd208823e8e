"""Relays: probes for a route around a cut link, and what relays forward (R3; PT)."""

from __future__ import annotations

from typing import Any

import pytest

from gapless.core.parameters import DEFAULTS, Parameters
from gapless.messages.overlay import (
    Hello,
    Packet,
    PeerSessionId,
    RelayBroken,
    Relayed,
    RelayFull,
    RelayProbe,
)
from gapless.messages.streams import StreamEpochRequest
from gapless.overlay import relays
from gapless.overlay.neighbourhood import Topology
from gapless_lab.sim.planted_bugs import patched
from tests.overlay.small_world import Node, SmallWorld, line

NOTE = StreamEpochRequest(("stocks", 1), 7)  # type: ignore[arg-type]

STABLE_MS = DEFAULTS.feed_switch_delay_ms + 2 * DEFAULTS.heartbeat_ms
DEAD_MS = DEFAULTS.session_timeout_ms + 2 * DEFAULTS.heartbeat_ms


def triangle() -> SmallWorld:
    """Return a, b and c with links and open sessions between each other."""
    world = SmallWorld(line("a", "b", "c"))
    world.run(ms=20)
    return world


def square() -> SmallWorld:
    """Return one cell of a, b, c and d with all links: two relays are possible between any two."""
    world = SmallWorld(Topology.of({"cell": ["a", "b", "c", "d"]}, ()))
    world.run(ms=20)
    return world


def neighbourhood_of() -> SmallWorld:
    """Let a and c lose the link between them, and talk over b."""
    world = triangle()
    world.part("a", "c")
    world.run(ms=2_000)
    assert route(world, "a", "c") == route(world, "c", "a") == ("b",)
    return world


def route(world: SmallWorld, source: str, target: str) -> tuple[str, ...] | None:
    """Return the relays between two brokers, None if they have no session."""
    sessions = world.nodes[source].sessions
    return sessions.route(target) if sessions.is_open(target) else None


def send_packet(world: SmallWorld, source: str, target: str, note: Any = NOTE) -> None:
    world.nodes[source].context.send(target, note)


def messages(world: SmallWorld, kind: type, source: str | None = None) -> list[Any]:
    """Return the messages of a kind sent inside sessions, by all brokers or by one."""
    return [
        message
        for sender, _, packet in world.sent
        if source in {None, sender} and isinstance(packet, Packet)
        for message in packet.messages
        if isinstance(message, kind)
    ]


# --- finding a route ------------------------------------------------------------------------------


def test_two_brokers_without_a_link_talk_over_a_third() -> None:
    world = neighbourhood_of()
    send_packet(world, "a", "c")
    send_packet(world, "c", "a")
    world.run(ms=10)
    assert world.nodes["c"].received_messages == [("a", NOTE)]
    assert world.nodes["a"].received_messages == [("c", NOTE)]
    assert not world.nodes["a"].sessions.is_direct("c")


def test_no_probes_are_sent_while_all_links_are_up() -> None:
    world = triangle()
    world.run(ms=10_000)
    assert messages(world, RelayProbe) == []


def test_only_the_end_with_the_smaller_name_sends_probes() -> None:
    # otherwise two equally good routes would replace each other for ever
    world = neighbourhood_of()
    assert {probe.route[0] for probe in messages(world, RelayProbe)} == {"a"}


def test_of_two_equally_good_routes_one_is_chosen_and_stays() -> None:
    world = square()
    world.part("a", "d")
    world.run(ms=2_000)
    taken = route(world, "a", "d")
    assert taken in {("b",), ("c",)}
    assert route(world, "d", "a") == taken
    for node in world.nodes.values():
        node.opened.clear()
    world.run(ms=10_000)
    assert route(world, "a", "d") == taken
    assert world.nodes["a"].opened == world.nodes["d"].opened == []


def test_a_route_may_have_several_relays() -> None:
    world = square()
    world.part("a", "d")
    world.part("a", "c")
    world.part("b", "d")
    world.run(ms=3_000)
    assert route(world, "a", "d") == ("b", "c")
    assert route(world, "d", "a") == ("c", "b")
    send_packet(world, "a", "d")
    world.run(ms=10)
    assert world.nodes["d"].received_messages == [("a", NOTE)]


@pytest.mark.parametrize(("hops", "found"), [(0, None), (1, None), (2, ("b", "c"))])
def test_the_relays_of_a_route_are_limited(hops: int, found: tuple[str, ...] | None) -> None:
    world = SmallWorld(
        Topology.of({"cell": ["a", "b", "c", "d"]}, ()), Parameters(relay_hops_max=hops)
    )
    world.run(ms=20)
    for pair in (("a", "d"), ("a", "c"), ("b", "d")):
        world.part(*pair)
    world.run(ms=5_000)
    assert route(world, "a", "d") == found


def test_no_probes_are_sent_if_relays_are_disabled() -> None:
    world = SmallWorld(line("a", "b", "c"), Parameters(relay_hops_max=0))
    world.run(ms=20)
    world.part("a", "c")
    world.run(ms=5_000)
    assert messages(world, RelayProbe) == []
    assert route(world, "a", "c") is None


def test_probes_without_success_are_sent_less_and_less_often() -> None:
    world = triangle()
    for pair in (("a", "c"), ("b", "c")):
        world.part(*pair)
    world.run(ms=60_000)
    probes = len(messages(world, RelayProbe, "a"))
    assert 60_000 // DEFAULTS.retry_max_ms <= probes < 30


def test_a_session_that_opens_anywhere_makes_all_brokers_probe_at_once() -> None:
    world = triangle()
    world.part("a", "c")
    world.part("b", "c")
    world.run(ms=30_000)  # by now the pauses are long
    world.mend("b", "c")
    world.run(ms=1_000)
    assert route(world, "b", "c") == ()
    world.part("a", "b")
    world.mend("a", "b")
    world.run(ms=1_000)
    assert route(world, "a", "c") == ("b",)


# --- probes ---------------------------------------------------------------------------------------


def probe(world: SmallWorld, at: str, *path: str, number: int = 1, target: str = "d") -> list[Any]:
    """Let a probe arrive at a broker from the last of its path; return what the broker forwards."""
    node = world.nodes[at]
    node.sessions._relays.probed(path[-1], RelayProbe(target, PeerSessionId(1, number), path))
    posted = node.context.take_messages()
    return [(peer, each) for peer, sent in posted for each in sent if isinstance(each, RelayProbe)]


def test_a_probe_is_forwarded_directly_to_a_reachable_target() -> None:
    world = square()
    assert probe(world, "b", "a") == [("d", RelayProbe("d", PeerSessionId(1, 1), ("a", "b")))]


def test_a_probe_is_forwarded_to_all_others_if_its_target_is_unreachable() -> None:
    world = square()
    world.part("b", "d")
    assert probe(world, "b", "a") == [("c", RelayProbe("d", PeerSessionId(1, 1), ("a", "b")))]


def test_a_probe_is_forwarded_once() -> None:
    world = square()
    assert probe(world, "b", "a")
    assert probe(world, "b", "a") == []
    assert probe(world, "b", "a", number=2)
    assert probe(world, "b", "a", number=1) == [], "the number is older"


def test_a_probe_of_a_new_incarnation_is_forwarded_for_every_number() -> None:
    world = square()
    assert probe(world, "b", "a", number=9)
    node = world.nodes["b"]
    node.sessions._relays.probed("a", RelayProbe("d", PeerSessionId(2, 1), ("a",)))
    assert node.context.take_messages()


def test_a_later_copy_of_a_probe_with_a_shorter_path_is_forwarded() -> None:
    # the longer one may end for lack of hops
    world = square()
    world.part("b", "d")
    assert probe(world, "b", "a", "c") == []
    assert probe(world, "b", "a") == [("c", RelayProbe("d", PeerSessionId(1, 1), ("a", "b")))]


def test_a_target_accepts_only_the_first_copy_of_a_probe() -> None:
    world = square()
    world.part("a", "d")
    assert probe(world, "d", "a", "b", "c") == []
    first = world.nodes["d"].sessions._peers["a"].relayed
    assert first is not None
    assert first.route == ("d", "c", "b", "a")
    probe(world, "d", "a", "b")
    assert world.nodes["d"].sessions._peers["a"].relayed is first


@pytest.mark.parametrize("path", [("a", "b", "c"), ("b", "c"), ()])
def test_a_probe_with_a_loop_or_a_wrong_path_is_dropped(path: tuple[str, ...]) -> None:
    world = square()
    node = world.nodes["b"]
    node.sessions._relays.probed("a", RelayProbe("d", PeerSessionId(1, 1), path))
    assert node.context.take_messages() == []
    assert node.context.coverage_marks["probe looped"] == 1


def test_the_remembered_probes_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relays, "RELAY_PROBES_MAX", 2)
    world = square()
    for target in ("x", "y", "z"):
        probe(world, "b", "a", target=target)
    assert len(world.nodes["b"].sessions._relays._passed) == 2
    assert probe(world, "b", "a", target="z") == [], "the newest is remembered"


# --- being a relay --------------------------------------------------------------------------------


def relayed(inner: Any, *path: str, index: int) -> Relayed:
    return Relayed(path, index, inner)


def pass_on(node: Node, peer: str, message: Relayed) -> list[tuple[str, Any]]:
    """Let a relayed packet arrive; return what is sent then."""
    node.context.take_messages()
    node.sessions._relays.received(peer, message)
    return [(to, each) for to, sent in node.context.take_messages() for each in sent]


def test_a_relay_forwards_packets_that_it_cannot_decode() -> None:
    world = triangle()
    message = relayed(b"anything", "a", "b", "c", index=1)
    passed = pass_on(world.nodes["b"], "a", message)
    assert passed == [("c", relayed(b"anything", "a", "b", "c", index=2))]


def test_a_relay_has_no_state_of_relayed_sessions() -> None:
    # A2: so it cannot answer from it
    world = neighbourhood_of()
    relay = world.nodes["b"]
    before = (relay.opened[:], relay.closed[:])
    for _ in range(100):
        send_packet(world, "a", "c")
        world.run(ms=5)
    assert len(world.nodes["c"].received_messages) == 100
    assert (relay.opened, relay.closed) == before
    assert relay.received_messages == []
    assert [held.relayed for held in relay.sessions._peers.values()] == [None, None]


@pytest.mark.parametrize(
    ("path", "index"),
    [(("a", "b", "c"), 0), (("a", "b", "c"), 3), (("a", "c"), 1), (("c", "b", "a"), 1)],
)
def test_a_relayed_packet_with_a_wrong_path_is_dropped(path: tuple[str, ...], index: int) -> None:
    world = triangle()
    node = world.nodes["b"]
    assert pass_on(node, "a", Relayed(path, index, b"")) == []
    assert node.context.coverage_marks["relayed with a wrong route"] == 1


def test_a_relay_that_has_lost_its_next_hop_notifies_the_sender_and_the_session_ends() -> None:
    world = neighbourhood_of()
    world.cut("b", "c")
    world.cut("c", "b")
    world.nodes["b"].sessions.link_down("c")  # c has not noticed
    world.nodes["a"].closed.clear()
    send_packet(world, "a", "c")
    world.run(ms=10)
    assert world.nodes["a"].context.coverage_marks["relay broke"] == 1
    assert world.nodes["a"].closed == ["c"]
    assert route(world, "a", "c") is None


def test_a_relay_whose_next_hop_is_congested_forwards_and_notifies_the_sender() -> None:
    # otherwise its queue would grow without limit; the ends of a session can pause
    world = neighbourhood_of()
    b, passed_on = world.nodes["b"], ("c", relayed(b"", "a", "b", "c", index=2))
    world.crowd("b", "c")
    assert pass_on(b, "a", relayed(b"", "a", "b", "c", index=1)) == [
        passed_on,
        ("a", relayed(RelayFull(("a", "b", "c")), "b", "a", index=1)),
    ]
    world.crowd("b", "c", full=False)
    assert pass_on(b, "a", relayed(b"", "a", "b", "c", index=1)) == [passed_on]


@pytest.mark.parametrize("kind", [RelayBroken, RelayFull])
def test_a_route_notice_that_cannot_be_delivered_causes_no_further_notice(kind: type) -> None:
    world = neighbourhood_of()
    b, notice = world.nodes["b"], relayed(kind(("a",)), "c", "b", "a", index=1)
    world.crowd("b", "a")
    assert [to for to, _ in pass_on(b, "c", notice)] == ["a"]
    b.sessions.link_down("a")
    assert pass_on(b, "c", notice) == []


def test_no_notice_is_sent_when_the_route_back_is_lost_too() -> None:
    world = neighbourhood_of()
    relay = world.nodes["b"]
    relay.sessions.link_down("c")
    relay.sessions.link_down("a")
    assert pass_on(relay, "a", relayed(b"", "a", "b", "c", index=1)) == []


# --- congested routes -----------------------------------------------------------------------------


def test_an_end_whose_first_hop_is_congested_pauses_and_its_session_stays_open() -> None:
    # R40: an omitted packet would be a gap, which ends the session, and the next while it is
    # congested
    world = neighbourhood_of()
    a = world.nodes["a"]
    a.closed.clear()
    world.crowd("a", "b")
    assert a.congested == {"b", "c"}
    send_packet(world, "a", "c")
    world.run(ms=10 * DEAD_MS)
    assert world.nodes["c"].received_messages == [("a", NOTE)]
    assert a.closed == []
    world.crowd("a", "b", full=False)
    assert a.congested == set()


def test_an_end_pauses_while_a_relay_is_congested_and_its_session_stays_open() -> None:
    world = neighbourhood_of()
    a, c = world.nodes["a"], world.nodes["c"]
    a.closed.clear()
    world.crowd("b", "c")
    send_packet(world, "a", "c")
    world.run(ms=10)
    assert (a.congested, c.congested) == ({"c"}, set()), "only on that route, and only its sender"
    world.run(ms=10 * DEAD_MS)
    assert a.congested == {"c"}, "its heartbeats show that it is still congested"
    assert c.received_messages == [("a", NOTE)]
    assert a.closed == []
    world.crowd("b", "c", full=False)
    world.run(ms=3 * DEFAULTS.heartbeat_ms)
    assert a.congested == set()


def test_a_congested_link_does_not_pause_a_session_over_relays() -> None:
    # a link may be congested because it is cut, and then it never reports that it has drained
    world = triangle()
    world.cut("a", "c")
    world.cut("c", "a")
    world.crowd("a", "c")
    assert world.nodes["a"].congested == {"c"}
    world.run(ms=DEAD_MS + 2_000)
    assert route(world, "a", "c") == ("b",)
    assert world.nodes["a"].congested == set()


def test_congestion_of_another_route_has_no_effect() -> None:
    world = neighbourhood_of()
    a = world.nodes["a"]
    a.sessions.arrived(("a", "x"), RelayFull(("a", "x", "c")))
    assert a.congested == set()
    assert a.context.coverage_marks["relayed by an unknown route"] == 1


def test_congestion_ends_with_its_route() -> None:
    world = neighbourhood_of()
    world.crowd("a", "b")
    world.part("a", "b")
    assert world.nodes["a"].congested == set()


# --- the ends -------------------------------------------------------------------------------------


def test_a_route_ends_when_its_first_hop_is_lost() -> None:
    world = neighbourhood_of()
    world.part("a", "b")
    assert route(world, "a", "c") is None
    assert world.nodes["a"].closed[-2:] == ["b", "c"]


def test_when_a_route_breaks_another_is_found() -> None:
    world = square()
    world.part("a", "d")
    world.run(ms=2_000)
    first = route(world, "a", "d")
    assert first is not None
    world.part("a", *first)
    world.run(ms=2_000)
    second = route(world, "a", "d")
    assert second
    assert second != first
    assert route(world, "d", "a") == second[::-1]


def test_a_gap_ends_a_session_over_relays_too() -> None:
    # R3: no packet is skipped in the middle
    world = neighbourhood_of()
    relay = world.nodes["b"].sessions._relays
    with patched(relay, "_forward", lambda _: None):  # arriving packets are lost
        send_packet(world, "a", "c")
        world.run(ms=10)
    send_packet(world, "a", "c")
    world.run(ms=5)
    assert world.nodes["c"].received_messages == []
    assert world.nodes["c"].context.coverage_marks["gap in a session"] == 1
    assert route(world, "c", "a") is None
    world.run(ms=3_000)
    assert route(world, "c", "a") == ("b",), "a new session opens"


def test_late_packets_of_an_ended_session_are_ignored() -> None:
    world = neighbourhood_of()
    c = world.nodes["c"]
    session = c.sessions._peers["a"].relayed
    assert session is not None
    assert session.theirs is not None
    session.end()
    c.sessions.arrived(session.route, Packet(session.theirs, session.mine, 99, (NOTE,)))
    assert c.received_messages == []
    assert c.context.coverage_marks["packet of another session"] == 1


def test_a_restarted_end_gets_a_new_session_over_the_relay() -> None:
    world = neighbourhood_of()
    world.cut("a", "c")
    world.cut("c", "a")
    world.start("c", "c", incarnation=2)
    world.nodes["c"].sessions.link_down("a")
    world.run(ms=3_000)
    assert world.nodes["a"].sessions.incarnation_of("c") == 2
    send_packet(world, "a", "c")
    world.run(ms=10)
    assert world.nodes["c"].received_messages == [("a", NOTE)]


def test_packets_of_an_older_session_over_the_same_route_are_ignored() -> None:
    # I12 holds over relays as well
    world = neighbourhood_of()
    relayed_once = world.nodes["a"].sessions._peers["c"].relayed
    assert relayed_once is not None
    old = Packet(relayed_once.mine, relayed_once.theirs or relayed_once.mine, 99, (NOTE,))
    world.nodes["a"].sessions.end_relayed("c")
    world.run(ms=3_000)
    c = world.nodes["c"]
    assert c.sessions.is_open("a")
    c.sessions.arrived(("c", "b", "a"), old)
    assert c.received_messages == []
    assert c.context.coverage_marks["packet of another session"] == 1


def test_packets_over_a_route_that_is_not_used_are_ignored() -> None:
    world = square()
    world.part("a", "d")
    world.run(ms=2_000)
    d = world.nodes["d"]
    other = ("d", "c", "a") if route(world, "d", "a") == ("b",) else ("d", "b", "a")
    d.sessions.arrived(other, Hello("a", "cell", PeerSessionId(9, 9), None, 1, 0))
    assert d.context.coverage_marks["relayed by an unknown route"] == 1
    assert d.sessions.incarnation_of("a") == 1


def test_no_relayed_session_is_opened_with_an_unknown_broker() -> None:
    world = triangle()
    a = world.nodes["a"]
    a.sessions.arrived(("a", "b", "x"), Hello("x", "x", PeerSessionId(1, 1), None, 1, 0))
    a.sessions.start_relayed(("a", "b", "x"))
    assert a.context.coverage_marks["relayed from an unknown broker"] == 2


def test_a_route_that_does_not_open_is_given_up_and_probed_again() -> None:
    world = triangle()
    world.part("a", "c")
    world.nodes["c"].sessions.start_relayed(("c", "b", "a"))
    world.cut("c", "b")  # nothing of it arrives
    world.run(ms=DEAD_MS)
    world.heal("c", "b")
    world.run(ms=5_000)
    assert route(world, "a", "c") == route(world, "c", "a") == ("b",)


def test_a_relayed_session_ends_when_its_broker_leaves_the_neighbourhood() -> None:
    world = neighbourhood_of()
    a = world.nodes["a"]
    a.sessions.reshape(a.change_tree(line("a", "b").neighbourhood("a", radius=2, version=2)))
    assert a.closed[-1] == "c"
    assert a.sessions.open_peers() == ["b"]


@pytest.mark.parametrize(("source", "target"), [("a", "c"), ("c", "a")])
def test_a_link_cut_in_one_direction_is_replaced_by_relays_in_both(
    source: str, target: str
) -> None:
    # A28: one end receives the other, and yet they talk over the relay
    world = triangle()
    world.cut(source, target)
    world.run(ms=DEAD_MS + 2_000)
    assert route(world, "a", "c") == route(world, "c", "a") == ("b",)
    for one, other in (("a", "c"), ("c", "a")):
        send_packet(world, one, other)
    world.run(ms=10)
    assert world.nodes["c"].received_messages == [("a", NOTE)]
    assert world.nodes["a"].received_messages == [("c", NOTE)]


# --- a restored link ------------------------------------------------------------------------------


def test_a_restored_link_is_used_after_it_has_been_stable() -> None:
    world = neighbourhood_of()
    world.mend("a", "c")
    world.run(ms=DEFAULTS.feed_switch_delay_ms - DEFAULTS.heartbeat_ms)
    assert route(world, "a", "c") == ("b",)
    world.run(ms=1_000)
    assert route(world, "a", "c") == route(world, "c", "a") == ()
    world.sent.clear()
    world.run(ms=2_000)
    assert messages(world, Relayed) == []


def test_the_other_end_follows_with_the_first_message_over_the_link() -> None:
    world = neighbourhood_of()
    world.mend("a", "c")
    world.run(ms=1_000)
    a, c = world.nodes["a"], world.nodes["c"]
    a.sessions._activate(a.sessions._peers["c"], a.sessions._peers["c"].direct)
    assert c.sessions.route("a") == ("b",)
    send_packet(world, "a", "c")
    world.run(ms=5)
    assert c.sessions.is_direct("a")
    assert c.received_messages == [("a", NOTE)]
    assert c.opened[-1] == c.closed[-1] == "a", "for the components the session closes and opens"
    send_packet(world, "c", "a")
    world.run(ms=5)
    assert a.received_messages == [("c", NOTE)]


def test_messages_sent_before_the_route_changed_are_lost_with_their_session() -> None:
    # R2: numbers of one session have another meaning in the next
    world = neighbourhood_of()
    world.mend("a", "c")
    world.run(ms=1_000)
    a, c = world.nodes["a"], world.nodes["c"]
    send_packet(world, "a", "c")
    a.sessions._activate(a.sessions._peers["c"], a.sessions._peers["c"].direct)
    world.run(ms=5)
    assert a.sessions.is_direct("c")
    assert c.received_messages == []


def test_late_packets_over_the_former_route_are_dropped() -> None:
    world = neighbourhood_of()
    world.mend("a", "c")
    world.run(ms=1_000)
    a = world.nodes["a"]
    a.sessions._activate(a.sessions._peers["c"], a.sessions._peers["c"].direct)
    send_packet(world, "c", "a")
    world.run(ms=10)
    assert a.received_messages == []
    assert a.context.coverage_marks["relayed by an unknown route"] > 0
    world.run(ms=STABLE_MS)
    assert route(world, "c", "a") == ()


def test_a_flapping_link_does_not_end_the_relayed_session() -> None:
    world = neighbourhood_of()
    for node in world.nodes.values():
        node.closed.clear()
    for _ in range(5):
        world.mend("a", "c")
        world.run(ms=DEFAULTS.feed_switch_delay_ms // 2)
        world.part("a", "c")
        world.run(ms=300)
    assert world.nodes["a"].closed == world.nodes["c"].closed == []
    assert route(world, "a", "c") == ("b",)


def test_a_restored_link_is_used_at_once_when_the_relay_is_lost() -> None:
    world = neighbourhood_of()
    world.mend("a", "c")
    world.run(ms=1_000)
    world.part("a", "b")
    assert route(world, "a", "c") == ()
    world.run(ms=DEAD_MS)
    assert route(world, "c", "a") == ()


def test_only_heartbeats_of_the_route_in_use_carry_table_states() -> None:
    # R19: table states of a link that is not used would look like tables never sent
    world = neighbourhood_of()
    world.mend("a", "c")
    world.run(ms=500)
    c, received = world.nodes["c"], list[Any]()
    vars(c)["table_states_received"] = lambda peer, states: received.append((peer, states))
    world.run(ms=1_000)
    assert c.sessions._peers["a"].direct.is_open
    assert received.count(("a", ())) == 1_000 // DEFAULTS.heartbeat_ms


def test_an_end_that_has_not_noticed_its_lost_link_follows_the_other_over_the_relay() -> None:
    # messages of the other end at the start of its session must not be lost: they are not repeated
    # (R2)
    world = triangle()
    world.cut("a", "c")
    world.cut("c", "a")
    world.nodes["a"].sessions.link_down("c")
    world.wait(lambda: world.nodes["a"].sessions.is_open("c"))
    send_packet(world, "a", "c")
    assert world.nodes["c"].sessions.is_direct("a"), "c has not noticed"
    world.run(ms=10)
    assert world.nodes["c"].received_messages == [("a", NOTE)]
    assert route(world, "c", "a") == ("b",)
    assert world.nodes["c"].closed == ["a"]


# --- a step of the tree -----------------------------------------------------------------------------


def test_no_session_opens_to_a_broker_that_leaves_while_another_of_its_sessions_ends() -> None:
    # a and c talk over b; the link between them is back and its session is open too
    world = SmallWorld(line("a", "b", "c"), Parameters(delta=1))
    world.run(ms=20)
    world.part("a", "c")
    world.run(ms=2_000)
    assert route(world, "a", "c") == ("b",)
    world.mend("a", "c")
    node = world.nodes["a"]
    for _ in range(200):
        world.run(ms=1)
        if node.sessions._peers["c"].direct.is_open:
            break
    assert node.sessions._peers["c"].direct.is_open
    assert route(world, "a", "c") == ("b",)
    node.opened.clear()
    change = node.change_tree(line("a", "b").neighbourhood("a", 2, version=2))
    node.sessions.reshape(change)
    assert node.opened == []
    assert node.sessions.open_peers() == ["b"]
