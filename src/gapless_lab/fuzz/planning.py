"""Draws attacks from a seed: every message type in every state, in turn."""

from __future__ import annotations

import itertools
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any, Final

import msgspec

from gapless.core.errors import ProtocolError
from gapless.wire import CLIENT_REQUESTS, LINK_PACKETS, Connect, Connected, Disconnect, KeepAlive
from gapless_lab.fuzz.attacks import (
    Attack,
    AttackerRole,
    AttackerState,
    Ending,
    FrameKind,
    FuzzFrame,
)
from gapless_lab.fuzz.bombs import BOMBS
from gapless_lab.fuzz.generation import (
    Generator,
    link_types,
    peer_message_types,
    request_types,
)
from gapless_lab.fuzz.mutation import mutate_bytes, mutate_values
from gapless_lab.fuzz.recordings import Recording
from gapless_lab.fuzz.taming import as_packet, tamed
from gapless_lab.fuzz.vocabulary import Vocabulary

__all__ = ["CLIENT_STATES", "PEER_STATES", "AttackPlanner"]

CLIENT_STATES: Final = (
    *(AttackerState.CONNECTED, AttackerState.PUBLISHING, AttackerState.SUBSCRIBED),
    *(AttackerState.DURABLE, AttackerState.CATCHING_UP, AttackerState.CHANGING),
    *(AttackerState.STAGING, AttackerState.DEAF, AttackerState.HANDSHAKE),
)

PEER_STATES: Final = (
    *(AttackerState.OPEN, AttackerState.FEEDING, AttackerState.FED, AttackerState.CONNECTED),
    *(AttackerState.GREETED, AttackerState.STALE, AttackerState.HANDSHAKE),
)

FRAMES_MAX: Final = 30
"""Frames that are drawn for an attack."""

ENDINGS_KEPT: Final = 50
"""Malformed frames that are kept. A broker reads nothing behind one, so each attack has one, at its
end."""

_KINDS: Final = {
    FrameKind.PLAUSIBLE: 40,
    FrameKind.EXTREME: 27,
    FrameKind.RECORDED: 8,
    FrameKind.MUTATED_VALUES: 18,
    FrameKind.MUTATED_BYTES: 3,
    FrameKind.BOMB: 4,
}
"""How often each kind is drawn."""

_BOLDNESS: Final = (0.01, 0.03, 0.1, 0.3)
"""Shares of extreme values in an extreme message."""

_HANDSHAKES: Final = {kind.__name__: kind for kind in (Connect, Connected, Disconnect, KeepAlive)}


class AttackPlanner:
    """Draws the attacks of a run, which are the same for the same seed."""

    def __init__(self, seed: int, recording: Recording, now_us: int) -> None:
        self._random = Random(seed)  # noqa: S311  # a seed gives the same attacks again
        self._recording = recording
        self._vocabularies = {
            role: Vocabulary(self._random, now_us, is_peer=role is AttackerRole.PEER)
            for role in AttackerRole
        }
        self._numbers = itertools.count(1)
        self._states = {
            AttackerRole.CLIENT: itertools.cycle(CLIENT_STATES),
            AttackerRole.PEER: itertools.cycle(PEER_STATES),
        }
        self._endings: defaultdict[tuple[AttackerRole, AttackerState], deque[FuzzFrame]] = (
            defaultdict(lambda: deque(maxlen=ENDINGS_KEPT))
        )
        """Malformed frames for the ends of attacks."""
        self._types: dict[tuple[AttackerRole, AttackerState], Iterator[tuple[str, Any]]] = {}

    @classmethod
    def without_recording(cls) -> AttackPlanner:
        """Return a planner that draws nothing; it only learns."""
        return cls(0, Recording(Random(0)), 0)  # noqa: S311  # nothing is drawn

    def vocabulary(self, role: AttackerRole) -> Vocabulary:
        """Return the values that mean something; attackers add what brokers send them."""
        return self._vocabularies[role]

    def next(self, role: AttackerRole, targets: Sequence[str]) -> Attack:
        """Return the next attack on one of these brokers."""
        random, state = self._random, next(self._states[role])
        frames: list[FuzzFrame] = []
        for _ in range(random.randrange(4, FRAMES_MAX + 1)):
            frame = self._frame(role, state)
            if is_well_formed(role, state, frame):
                frames.append(frame)
            else:
                self._endings[role, state].append(frame)
        if self._endings[role, state]:
            frames.append(self._endings[role, state].popleft())
        return Attack(
            number=next(self._numbers),
            role=role,
            target=random.choice(targets),
            state=state,
            frames=tuple(frames),
            ending=random.choice((Ending.ABORT, Ending.DISCONNECT, Ending.HALF_FRAME)),
        )

    # --- one frame -------------------------------------------------------------------------------

    def _frame(self, role: AttackerRole, state: AttackerState) -> FuzzFrame:
        kind = self._random.choices([*_KINDS], [*_KINDS.values()])[0]
        found = self._made(role, state, kind)
        body = tamed(found.body, is_request=role is AttackerRole.CLIENT)
        return msgspec.structs.replace(found, body=body)

    def _made(self, role: AttackerRole, state: AttackerState, kind: FrameKind) -> FuzzFrame:
        random = self._random
        is_peer = role is AttackerRole.PEER
        if kind is FrameKind.BOMB:
            tag = random.choice([*self._kinds_of(role, state)])
            wrapped = is_peer and tag in peer_message_types()
            name = random.choice([*BOMBS])
            body = BOMBS[name](random, tag)
            is_message = wrapped and name not in {"nothing", "two messages", "noise"}
            return FuzzFrame(kind=kind, type=name, body=body, is_message=is_message)
        if kind in {FrameKind.PLAUSIBLE, FrameKind.EXTREME} or state is AttackerState.HANDSHAKE:
            tag, message = next(self._types_of(role, state))
            wrapped = is_peer and tag in peer_message_types()
            boldness = 0.0 if kind is FrameKind.PLAUSIBLE else random.choice(_BOLDNESS)
            body = Generator(self._vocabularies[role], boldness).encoded(message)
            return FuzzFrame(kind=kind, type=tag, body=body, is_message=wrapped)
        recording = self._recording
        body = recording.message() if is_peer else recording.request()
        tag = msgspec.msgpack.decode(body)[0]
        if kind is FrameKind.MUTATED_VALUES:
            body = mutate_values(random, body)
        elif kind is FrameKind.MUTATED_BYTES:
            other = recording.message() if is_peer else recording.request()
            body = mutate_bytes(random, body, other)
        return FuzzFrame(kind=kind, type=tag, body=body, is_message=is_peer)

    def _types_of(self, role: AttackerRole, state: AttackerState) -> Iterator[tuple[str, Any]]:
        """Return the types of a state, each as often as the others.

        A type is taken only for a frame that is generated from it.
        """
        key = role, state
        if key not in self._types:
            self._types[key] = itertools.cycle([*self._kinds_of(role, state).items()])
        return self._types[key]

    @staticmethod
    def _kinds_of(role: AttackerRole, state: AttackerState) -> dict[str, Any]:
        if state is AttackerState.HANDSHAKE:
            return _HANDSHAKES
        if role is AttackerRole.PEER:
            return {**peer_message_types(), **link_types()}
        return request_types()


def is_well_formed(role: AttackerRole, state: AttackerState, frame: FuzzFrame) -> bool:
    """Return whether a broker reads on after a frame."""
    if state is AttackerState.HANDSHAKE:
        return False
    body = as_packet(frame.body) if frame.is_message else frame.body
    try:
        found = (LINK_PACKETS if role is AttackerRole.PEER else CLIENT_REQUESTS).decode(body)
    except (ProtocolError, RecursionError):
        return False
    return not isinstance(found, Disconnect)
