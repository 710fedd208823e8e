"""Messages that are generated from their types."""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec
import pytest

from gapless.core.errors import ProtocolError
from gapless.messages.mobility import FindSubscription, SubscriptionFound, WalkKey
from gapless.wire import CLIENT_REQUESTS, LINK_PACKETS
from gapless_lab.fuzz.attacks import AttackerRole
from gapless_lab.fuzz.generation import (
    Generator,
    link_types,
    peer_message_types,
    request_types,
)
from gapless_lab.fuzz.planning import CLIENT_STATES, PEER_STATES, AttackPlanner
from gapless_lab.fuzz.recordings import Recording
from gapless_lab.fuzz.taming import as_packet
from gapless_lab.fuzz.vocabulary import Vocabulary

NOW_US = 1_700_000_000_000_000


def generator(boldness: float, *, is_peer: bool, seed: int = 1) -> Generator:
    return Generator(Vocabulary(Random(seed), NOW_US, is_peer=is_peer), boldness)


def test_all_messages_of_both_connections_are_known() -> None:
    assert {
        "OpenPubend",
        "Publish",
        "Subscribe",
        "StageChunk",
        "KeepAlive",
    } <= request_types().keys()
    assert {
        "Heartbeat",
        "Relayed",
        "StreamData",
        "TableFull",
        "Read",
    } <= peer_message_types().keys()
    assert link_types().keys() == {
        *("Hello", "Packet", "ControlFrame", "PacketPart", "KeepAlive", "Disconnect")
    }
    assert len(request_types()) == len(CLIENT_REQUESTS.types)
    assert len(link_types()) == len(LINK_PACKETS.types)


@pytest.mark.parametrize("tag", sorted(request_types()))
def test_a_plausible_request_of_every_type_is_well_formed(tag: str) -> None:
    made = generator(0.0, is_peer=False)
    for _ in range(20):
        found = CLIENT_REQUESTS.decode(made.encoded(request_types()[tag]))
        assert msgspec.msgpack.decode(msgspec.msgpack.encode(found))[0] == tag


@pytest.mark.parametrize("tag", sorted(peer_message_types()))
def test_a_plausible_message_of_every_type_between_brokers_is_well_formed(tag: str) -> None:
    made = generator(0.0, is_peer=True)
    for _ in range(20):
        packet = LINK_PACKETS.decode(as_packet(made.encoded(peer_message_types()[tag])))
        assert type(packet.messages[0]).__name__ in {tag, "Relayed"}


def is_well_formed(body: bytes) -> bool:
    try:
        CLIENT_REQUESTS.decode(body)
    except ProtocolError:
        return False
    return True


def test_bold_messages_are_partly_malformed_and_partly_extreme() -> None:
    made = generator(0.3, is_peer=False)
    bodies = [made.encoded(request_types()["Subscribe"]) for _ in range(200)]
    accepted = sum(map(is_well_formed, bodies))
    assert 0 < accepted < len(bodies)
    assert max(map(len, bodies)) > 10_000


class _Unknown(msgspec.Struct, array_like=True, tag="Unknown"):
    numbers: set[int]


def test_a_field_type_that_cannot_be_generated_is_an_error() -> None:
    made = generator(0.0, is_peer=False)
    with pytest.raises(AssertionError, match="teach the generator this type"):
        made.message(_Unknown)


# --- plans --------------------------------------------------------------------------------------


def recording() -> Recording:
    found = Recording(Random(1))
    found.requests["KeepAlive"].append(b"\x91\xa9KeepAlive")
    found.messages["TableStop"].append(b"\x92\xa9TableStop\xa2c0")
    return found


def planned(seed: int, role: AttackerRole, attacks: int = 40) -> list[Any]:
    planner = AttackPlanner(seed, recording(), NOW_US)
    return [planner.next(role, ["b1", "b2"]) for _ in range(attacks)]


def test_the_same_seed_gives_the_same_attacks() -> None:
    first, again = (planned(7, AttackerRole.CLIENT) for _ in range(2))
    assert first == again
    assert planned(8, AttackerRole.CLIENT) != first


@pytest.mark.parametrize(
    ("role", "states", "types"),
    [
        (AttackerRole.CLIENT, CLIENT_STATES, request_types().keys()),
        (AttackerRole.PEER, PEER_STATES, peer_message_types().keys() | link_types().keys()),
    ],
)
def test_every_message_type_is_sent_in_every_state(
    role: AttackerRole, states: tuple[str, ...], types: set[str]
) -> None:
    seen = {(each.state, frame.type) for each in planned(1, role, 160) for frame in each.frames}
    wanted = {(state, tag) for state in states if state != "handshake" for tag in types}
    ends = {(state, "Disconnect") for state in states}  # one of many ends, so not in every state
    assert wanted - seen - ends == set()
    assert ends & seen
    assert {"Connect", "Connected"} <= {tag for state, tag in seen if state == "handshake"}


def test_an_answer_uses_the_key_of_a_question_of_the_broker() -> None:
    vocabulary = Vocabulary(Random(1), NOW_US, is_peer=True)
    key = WalkKey("b1", NOW_US, 5)
    vocabulary.learn(FindSubscription(key, "", "d", 100))
    answers = [Generator(vocabulary, 0.0).message(SubscriptionFound) for _ in range(20)]
    assert 0 < sum(answer[1] == [*key] for answer in answers) < 20
