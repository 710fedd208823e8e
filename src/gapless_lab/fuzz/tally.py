"""Counts what was sent and how the brokers answered."""

from __future__ import annotations

import re
from collections import Counter
from typing import Final

from gapless.messages.clients import RefusalCause, Refused
from gapless.wire import Disconnect
from gapless_lab.fuzz.attacks import Attack

__all__ = ["FuzzTally"]

REASONS_MAX: Final = 200
"""Different reasons that are counted; others count as one."""

REASON_CHARACTERS: Final = 90
"""Characters of a reason that are counted as one."""

_VARIABLE: Final = re.compile(r"'[^']*'|\"[^\"]*\"|-?\d[\d,._]*")


class FuzzTally:
    """The counters of a run."""

    def __init__(self) -> None:
        self.attacks = 0
        self.sent = 0
        self.kinds: Counter[str] = Counter()
        self.types: Counter[str] = Counter()
        self.states: Counter[str] = Counter()
        self.answers: Counter[str] = Counter()
        """Messages of the brokers, by type."""
        self.refusals: Counter[str] = Counter()
        """Refused requests, by cause."""
        self.reasons: Counter[str] = Counter()
        """Reasons of refusals and disconnects, without their numbers and quotes."""
        self.unanswered: Counter[str] = Counter()
        """Attacks that the broker did not answer in time, by state."""
        self.unreadable: Counter[str] = Counter()
        """Frames of brokers that the receiver cannot decode."""

    def count_sent(self, attack: Attack, index: int) -> None:
        """A frame of an attack was sent."""
        frame = attack.frames[index]
        self.sent += 1
        self.kinds[f"{attack.role} {frame.kind}"] += 1
        self.types[f"{attack.role} {frame.type}"] += 1
        self.states[f"{attack.role} {attack.state}"] += 1

    def count_answer(self, message: object) -> None:
        """A broker has sent a message."""
        self.answers[type(message).__name__] += 1
        if isinstance(message, Refused):
            self.refusals[RefusalCause(message.cause).name] += 1
            self._count_reason(f"refused: {message.reason}")
        elif isinstance(message, Disconnect):
            self._count_reason(f"{message.code.name}: {message.reason}")

    def _count_reason(self, reason: str) -> None:
        plain = _VARIABLE.sub("…", reason)[:REASON_CHARACTERS]
        if plain not in self.reasons and len(self.reasons) >= REASONS_MAX:
            plain = "other reasons"
        self.reasons[plain] += 1
