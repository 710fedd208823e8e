"""A simulated link reports to its sender when its queue is full and when it is drained (R40)."""

from __future__ import annotations

from typing import Any

from gapless.core.effects import Send
from gapless.core.events import LinkDown, LinkDrained, LinkFull, LinkUp
from gapless.messages.overlay import Packet, PeerSessionId
from gapless_lab.sim.network import SimulatedLink
from gapless_lab.sim.options import SimulatedNetworkKind
from gapless_lab.sim.world import SimulatedHost, World
from tests.lab.sim.recorder import do, machine, make_world, pass_ms

SESSION = PeerSessionId(1, 1)
PACKET = Packet(SESSION, SESSION, 1, tuple(range(15)))
BYTES = 64 * 16
"""About the size of that packet for the network."""


def two(**options: Any) -> tuple[World, SimulatedHost, SimulatedHost, SimulatedLink]:
    """Return a world in which four packets fit a queue, and five do not."""
    limits = {"queue_bytes_max": 4 * BYTES}
    world = make_world(cells=2, stall=1.0, half_open=0.0, limits=limits, **options)
    left, right = world.hosts.values()
    return world, left, right, world.network.links[left.broker][right.broker]


def send(world: World, source: SimulatedHost, target: SimulatedHost, count: int) -> None:
    do(world, source, [Send(target.broker, PACKET)] * count)


def notified(host: SimulatedHost) -> list[str]:
    return [type(event).__name__ for event in machine(host).events(LinkFull, LinkDrained)]


def test_a_queue_at_its_limit_is_not_full() -> None:
    world, left, right, link = two()
    world.network.cut(link)
    send(world, left, right, 4)
    pass_ms(world, 1)
    assert link.bytes == 4 * BYTES
    assert notified(left) == []


def test_a_sender_gets_link_full_once() -> None:
    world, left, right, link = two()
    world.network.cut(link)
    send(world, left, right, 5)
    send(world, left, right, 5)
    pass_ms(world, 1)
    assert notified(left) == ["LinkFull"]
    assert machine(left).events(LinkFull) == [LinkFull(right.broker)]
    assert notified(right) == [], "its own queue is empty"


def test_a_sender_gets_link_drained_when_half_of_the_queue_is_free() -> None:
    world, left, right, link = two()
    world.network.cut(link)
    send(world, left, right, 6)
    pass_ms(world, 1)
    world.network.heal(link)
    while link.bytes > 2 * BYTES:
        assert notified(left) == ["LinkFull"]
        pass_ms(world, 0.05)
    pass_ms(world, 100)
    assert notified(left) == ["LinkFull", "LinkDrained"]
    assert len(machine(right).packets()) == 6, "nothing of it was dropped"
    assert link.bytes == 0


def test_a_queue_can_become_full_again() -> None:
    world, left, right, link = two()
    for _ in range(2):
        world.network.cut(link)
        send(world, left, right, 6)
        pass_ms(world, 1)
        world.network.heal(link)
        pass_ms(world, 100)
    assert machine(left).events(LinkDown) == []
    assert notified(left) == ["LinkFull", "LinkDrained"] * 2


def test_a_broken_connection_drops_its_queue() -> None:
    world, left, right, link = two()
    world.network.cut(link)
    send(world, left, right, 6)
    pass_ms(world, 1)
    world.network.reset(link.pair)
    world.network.heal(link)
    pass_ms(world, 500)
    assert (link.bytes, link.full) == (0, False)
    seen = [type(event) for event in machine(left).events(LinkUp, LinkDown, LinkFull, LinkDrained)]
    assert (seen[:2], seen[-1]) == ([LinkUp, LinkFull], LinkUp)
    assert LinkDrained not in seen, "the end of the connection implies it"


def test_datagrams_do_not_queue() -> None:
    world, left, right, link = two(network=SimulatedNetworkKind.DATAGRAM)
    send(world, left, right, 50)
    pass_ms(world, 100)
    assert notified(left) == []
    assert link.bytes == 0
