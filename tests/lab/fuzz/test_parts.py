"""The parts of the fuzzer: audit, saved attacks, names in pools, the probe, bombs, mutations."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random
from typing import cast

import msgspec
import pytest

from gapless.core.errors import ProtocolError, UsageError
from gapless.core.events import ClientRequest, Received
from gapless.core.ids import PubendId
from gapless.messages.clients import OpenPubend, Publish, Subscribe
from gapless.messages.operating import RetireBroker
from gapless.messages.overlay import Heartbeat, Hello, Packet, PeerSessionId, Retire
from gapless.wire import CLIENT_REQUESTS, HEADER_BYTES, LINK_PACKETS
from gapless_lab.fuzz.attacks import (
    Attack,
    AttackerRole,
    AttackerState,
    FrameKind,
    FuzzFrame,
    load_attacks,
    save_attacks,
)
from gapless_lab.fuzz.bombs import BOMBS
from gapless_lab.fuzz.mutation import mutate_bytes, mutate_values
from gapless_lab.fuzz.pair import audit_deliveries
from gapless_lab.fuzz.probe import StepProbe, measure_memory
from gapless_lab.fuzz.processes import MeasuredProcess
from gapless_lab.fuzz.recordings import record
from gapless_lab.fuzz.taming import as_packet, tamed
from gapless_lab.fuzz.vocabulary import HOSTILE, PAIR_PUBEND, PUBENDS

# --- the audit ----------------------------------------------------------------------------------


def test_an_audit_of_exact_deliveries_is_clean() -> None:
    audit = audit_deliveries([1, 2, 3, 4], {"near": [1, 2, 3, 4], "far": [2, 4]}, [])
    assert audit.is_clean


@pytest.mark.parametrize(
    ("near", "far", "wrong"),
    [
        ([1, 2, 4], [2, 4], "lost"),
        ([1, 2, 2, 3, 4], [2, 4], "repeated"),
        ([1, 3, 2, 4], [2, 4], "reordered"),
        ([1, 2, 3, 4, 9], [2, 4], "spurious"),
        ([1, 2, 3, 4], [2, 3, 4], "spurious"),
    ],
)
def test_an_audit_names_what_is_wrong(near: list[int], far: list[int], wrong: str) -> None:
    audit = audit_deliveries([1, 2, 3, 4], {"near": near, "far": far}, [])
    assert getattr(audit, wrong) == 1
    assert not audit.is_clean


def test_an_error_of_the_pair_or_no_event_at_all_is_not_clean() -> None:
    assert not audit_deliveries([1], {"near": [1]}, ["publisher: fenced"]).is_clean
    assert not audit_deliveries([], {"near": []}, []).is_clean


# --- attacks ------------------------------------------------------------------------------------


def attack() -> Attack:
    frame = FuzzFrame(kind=FrameKind.BOMB, type="noise", body=b"\xff\0\xfe")
    role, state = AttackerRole.PEER, AttackerState.FED
    return Attack(number=3, role=role, target="b1", state=state, frames=(frame,))


def test_saved_attacks_are_read_again_byte_by_byte(tmp_path: Path) -> None:
    path = tmp_path / "attacks.jsonl"
    save_attacks(path, [attack(), attack()])
    assert load_attacks(path) == [attack(), attack()]


def test_a_file_without_attacks_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "attacks.jsonl"
    path.write_text("{}")
    with pytest.raises(UsageError, match="contains no saved attacks"):
        load_attacks(path)
    with pytest.raises(UsageError, match="cannot be read"):
        load_attacks(tmp_path / "absent")


def body_of(request: object) -> bytes:
    return bytes(CLIENT_REQUESTS.encode(request)[HEADER_BYTES:])


def test_frames_create_only_objects_with_names_of_the_pools() -> None:
    opened = CLIENT_REQUESTS.decode(tamed(body_of(OpenPubend(1, "unheard of")), is_request=True))
    assert isinstance(opened, OpenPubend)
    assert opened.name.startswith("m")
    known = body_of(OpenPubend(1, PUBENDS[0]))
    assert tamed(known, is_request=True) == known
    absurd = Subscribe(1, "unheard of", "TRUE", durable=True)
    durable = CLIENT_REQUESTS.decode(tamed(body_of(absurd), is_request=True))
    assert isinstance(durable, Subscribe)
    assert durable.subscription.startswith("m")


def test_no_broker_of_the_healthy_pair_is_retired() -> None:
    retire = CLIENT_REQUESTS.decode(tamed(body_of(RetireBroker(1, "b3", "c3")), is_request=True))
    assert isinstance(retire, RetireBroker)
    assert retire.broker == HOSTILE
    message = tamed(msgspec.msgpack.encode(Retire("b3", "c3", 5)), is_request=False)
    assert LINK_PACKETS.decode(as_packet(message)).messages == (Retire(HOSTILE, "c3", 5),)


def test_a_malformed_frame_is_not_changed() -> None:
    body = b"\x92\xaaOpenPubend\xc1"
    assert tamed(body, is_request=True) == body


# --- generators -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(BOMBS))
def test_a_bomb_is_decoded_or_refused(name: str) -> None:
    for seed in range(10):
        body = BOMBS[name](Random(seed), "Publish")
        try:
            CLIENT_REQUESTS.decode(body)
        except ProtocolError:
            continue


def test_mutations_change_a_message_and_often_keep_it_well_formed() -> None:
    body = body_of(Publish(1, PubendId(PAIR_PUBEND), "p", 1, 1, (({"a": 1}, b""),)))
    random, accepted = Random(1), 0
    mutated = [mutate_values(random, body) for _ in range(100)]
    for each in mutated:
        try:
            CLIENT_REQUESTS.decode(each)
            accepted += 1
        except ProtocolError:
            continue
    assert 20 < accepted < 100
    assert len({*mutated, *(mutate_bytes(random, body, body) for _ in range(100))}) > 100


def test_a_recording_has_the_sessions_of_clients_and_brokers_with_names_of_the_overlay() -> None:
    recording = record(range(2), Random(1))
    assert {"OpenPubend", "Publish", "Subscribe"} <= recording.requests.keys()
    assert {"Heartbeat", "StreamData", "TableFull"} <= recording.messages.keys()
    for bodies in recording.requests.values():
        for body in bodies:
            CLIENT_REQUESTS.decode(body)
    for bodies in recording.messages.values():
        for body in bodies:
            LINK_PACKETS.decode(as_packet(body))
    announced = {
        LINK_PACKETS.decode(as_packet(b)).messages[0].pubend.name
        for b in recording.messages["Announce"]
    }
    assert announced <= {*PUBENDS}


# --- processes ------------------------------------------------------------------------------------


class SlowProcess:
    """Answers each line with the line, when it may."""

    def __init__(self) -> None:
        self.stdin = self.stdout = self
        self.may_answer = asyncio.Event()
        self._lines: list[bytes] = []

    def write(self, line: bytes) -> None:
        self._lines.append(line)

    async def readline(self) -> bytes:
        await self.may_answer.wait()
        return msgspec.json.encode(self._lines.pop(0).decode().strip())


def test_an_answer_to_a_cancelled_question_is_not_taken_for_the_next_one(tmp_path: Path) -> None:
    async def scenario() -> str:
        measured, process = MeasuredProcess("b1", tmp_path / "log"), SlowProcess()
        measured._process = cast("asyncio.subprocess.Process", process)
        first = asyncio.create_task(measured.ask("steps", str))
        await asyncio.sleep(0)
        first.cancel()
        second = asyncio.create_task(measured.ask("memory", str))
        await asyncio.sleep(0)
        process.may_answer.set()
        return await second

    assert asyncio.run(scenario()) == "memory"


# --- the probe ------------------------------------------------------------------------------------


def test_the_probe_names_the_attack_or_the_session_of_a_step() -> None:
    probe = StepProbe()
    packet = Packet(PeerSessionId(1, 12), PeerSessionId(1, 1), 7, (Heartbeat(1, 1, 1),))
    probe.begin((ClientRequest("fuzz-5.1", OpenPubend(1, "x")),))
    probe.begin((Received(HOSTILE, packet),))
    probe.begin((Received("b2", packet),))
    probe.end()
    probe.end()
    found = {step.event: (step.attack, step.session) for step in probe.take_slowest()}
    assert found == {
        "OpenPubend of fuzz-5.1": (5, None),
        "Heartbeat of a0": (None, 12),
        "Heartbeat of b2": (None, None),
    }
    assert probe.take_slowest() == []


def test_a_hello_of_the_neighbour_names_no_packet() -> None:
    probe = StepProbe()
    hello = Hello(HOSTILE, "c0", PeerSessionId(1, 1), None, 1, 1)
    probe.begin((Received(HOSTILE, hello),))
    probe.end()
    assert [step.event for step in probe.take_slowest()] == ["Hello of a0"]


def test_memory_in_use_grows_with_what_is_kept() -> None:
    before = measure_memory()
    kept = bytes(50_000_000)
    after = measure_memory()
    assert after.in_use - before.in_use > 40_000_000
    assert len(kept) == 50_000_000


def test_a_tick_of_a_neighbour_that_no_client_can_present_is_malformed() -> None:
    released = msgspec.msgpack.encode(["Released", [PUBENDS[0], 1], 2**62])
    assert LINK_PACKETS.decode(as_packet(released)).messages[0].up_to == 2**62
    above = msgspec.msgpack.encode(["Released", [PUBENDS[0], 1], 2**62 + 1])
    with pytest.raises(ProtocolError, match="Expected `int` <= 4611686018427387904"):
        LINK_PACKETS.decode(as_packet(above))
