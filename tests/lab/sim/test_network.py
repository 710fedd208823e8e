"""The two network models: order, loss, cuts, half-open connections."""

from __future__ import annotations

from typing import Any

from gapless.core.effects import Send
from gapless.core.events import LinkDown, LinkUp
from gapless_lab.sim.network import SimulatedLink
from gapless_lab.sim.options import SimulatedNetworkKind
from gapless_lab.sim.world import SimulatedHost, World
from tests.lab.sim.recorder import do, machine, make_world, pass_ms


def two(**options: Any) -> tuple[World, SimulatedHost, SimulatedHost, SimulatedLink]:
    world = make_world(cells=2, **options)
    left, right = world.hosts.values()
    return world, left, right, world.network.links[left.broker][right.broker]


def send(world: World, source: SimulatedHost, target: SimulatedHost, *packets: int) -> None:
    do(world, source, [Send(target.broker, packet) for packet in packets])


def links_seen(host: SimulatedHost) -> list[str]:
    return [type(event).__name__ for event in machine(host).events(LinkUp, LinkDown)]


# --- sessions ---------------------------------------------------------------------------------


def test_both_ends_of_a_new_connection_get_link_up() -> None:
    _, left, right, _ = two()
    assert links_seen(left) == links_seen(right) == ["LinkUp"]


def test_a_connection_keeps_the_order() -> None:
    world, left, right, _ = two(delay_us_min=0, delay_us_max=10_000)
    for packet in range(200):
        send(world, left, right, packet)
        pass_ms(world, 0.1)
    pass_ms(world, 200)
    assert machine(right).packets() == list(range(200))


def test_a_cut_loses_a_suffix_and_nothing_in_the_middle() -> None:
    for seed in range(30):
        world, left, right, link = two(seed=seed, stall=0.0, delay_us_max=5_000)
        for packet in range(100):
            if packet == 60:
                world.network.cut(link)
            send(world, left, right, packet)
            pass_ms(world, 0.1)
        pass_ms(world, 200)
        arrived = machine(right).packets()
        assert arrived == list(range(len(arrived)))
        assert len(arrived) <= 60


def test_a_skipped_packet_is_lost_and_the_connection_continues() -> None:
    world, left, right, link = two()
    send(world, left, right, 1)
    link.skips = True
    send(world, left, right, 2)
    send(world, left, right, 3)
    pass_ms(world, 200)
    assert machine(right).packets() == [1, 3]
    assert world.faults == {"skipped packet": 1}
    assert links_seen(right) == ["LinkUp"]


def test_after_a_break_both_ends_get_link_down_and_then_link_up() -> None:
    world, left, right, link = two(stall=0.0, half_open=0.0)
    world.network.cut(link)
    pass_ms(world, 300)
    assert links_seen(left) == links_seen(right) == ["LinkUp", "LinkDown"]
    world.network.heal(link)
    pass_ms(world, 300)
    assert links_seen(left) == links_seen(right) == ["LinkUp", "LinkDown", "LinkUp"]
    send(world, left, right, 1)
    pass_ms(world, 100)
    assert machine(right).packets() == [1]


def test_a_half_open_end_gets_no_link_down_during_the_cut() -> None:
    world, left, right, link = two(stall=0.0, half_open=1.0)
    world.network.cut(link)
    pass_ms(world, 10_000)
    assert links_seen(left) == links_seen(right) == ["LinkUp"]
    world.network.heal(link)
    pass_ms(world, 300)
    assert links_seen(left)[-1] == links_seen(right)[-1] == "LinkUp"
    assert len(links_seen(left)) > 1


def test_a_stalled_connection_continues_without_loss() -> None:
    world, left, right, link = two(stall=1.0)
    send(world, left, right, 1, 2)
    world.network.cut(link)
    send(world, left, right, 3)
    pass_ms(world, 50)
    assert machine(right).packets() == []
    world.network.heal(link)
    send(world, left, right, 4)
    pass_ms(world, 100)
    if links_seen(right) == ["LinkUp"]:  # the connection was not closed
        assert machine(right).packets() == [1, 2, 3, 4]


def test_a_one_way_cut_leaves_the_other_direction_open() -> None:
    world, left, right, link = two(stall=1.0)
    world.network.cut(link)
    send(world, left, right, 1)
    send(world, right, left, 2)
    pass_ms(world, 20)
    assert machine(right).packets() == []
    assert machine(left).packets() == [2]


def test_no_packet_of_a_connection_arrives_in_the_next_one() -> None:
    for seed in range(30):
        world, left, right, link = two(seed=seed, delay_us_min=1_000, delay_us_max=50_000)
        send(world, left, right, 1, 2, 3)
        world.network.reset(link.pair)
        pass_ms(world, 1_000)
        send(world, left, right, 4)
        pass_ms(world, 1_000)
        assert machine(right).packets() == [4]


def test_packets_sent_before_the_new_link_up_are_lost() -> None:
    world, left, right, _ = two(half_open=1.0)
    world.crash(right)
    send(world, left, right, 1)
    world.start(right)
    pass_ms(world, 300)
    assert machine(right).packets() == []
    send(world, left, right, 2)
    pass_ms(world, 300)
    assert machine(right).packets() == [2]


def test_a_paused_process_gets_the_delayed_packets_in_order() -> None:
    world, left, right, _ = two()
    world.pause(right)
    send(world, left, right, 1, 2, 3)
    pass_ms(world, 100)
    assert machine(right).packets() == []
    world.resume(right)
    assert machine(right).packets() == [1, 2, 3]


def test_packets_in_flight_can_be_inspected() -> None:
    for network in SimulatedNetworkKind:
        world, left, right, _ = two(network=network)
        send(world, left, right, 1, 2)
        assert sorted(packet for _, packet in world.network.in_flight()) == [1, 2]
        pass_ms(world, 300)
        assert list(world.network.in_flight()) == []


# --- datagrams --------------------------------------------------------------------------------


def datagrams(count: int, loss: float, **options: Any) -> list[int]:
    world, left, right, link = two(network=SimulatedNetworkKind.DATAGRAM, **options)
    link.loss = loss
    for packet in range(count):
        send(world, left, right, packet)
        pass_ms(world, 0.1)
    pass_ms(world, 1_000)
    return machine(right).packets()


def test_datagram_links_are_up_from_the_start_and_stay_up() -> None:
    world, left, right, link = two(network=SimulatedNetworkKind.DATAGRAM)
    world.network.cut(link)
    world.network.cut(link.back)
    pass_ms(world, 1_000)
    assert links_seen(left) == links_seen(right) == ["LinkUp"]


def test_datagrams_overtake_each_other_and_none_is_lost_without_a_fault() -> None:
    arrived = datagrams(300, loss=0.0, delay_us_min=0, delay_us_max=5_000)
    assert sorted(arrived) == list(range(300))
    assert arrived != sorted(arrived)


def test_datagrams_are_lost_at_about_the_rate_of_the_link() -> None:
    assert 100 < len(datagrams(300, loss=0.5)) < 200


def test_datagrams_are_duplicated_if_the_options_say_so() -> None:
    arrived = datagrams(300, loss=0.01, duplicate=0.5)
    assert len(arrived) > 380
    assert set(arrived) <= set(range(300))


def test_a_cut_datagram_link_loses_everything_until_it_heals() -> None:
    world, left, right, link = two(network=SimulatedNetworkKind.DATAGRAM)
    world.network.cut(link)
    send(world, left, right, 1)
    pass_ms(world, 100)
    world.network.heal(link)
    send(world, left, right, 2)
    pass_ms(world, 100)
    assert machine(right).packets() == [2]
