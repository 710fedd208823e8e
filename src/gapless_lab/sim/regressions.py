"""Runs that once failed; every one of them must pass for ever.

``regressions.jsonl`` has a run a line, with all its options, so that neither a change of the generator nor one of the
defaults changes the run, and a sentence about what went wrong.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Final

import msgspec

from gapless_lab.sim.options import SimulationOptions

__all__ = ["FILE", "REGRESSIONS", "Regression"]

FILE: Final = files("gapless_lab.sim") / "regressions.jsonl"


class Regression(msgspec.Struct, frozen=True):
    """A run that once failed."""

    name: str
    why: str
    options: SimulationOptions
    coverage_mark: str | None = msgspec.field(default=None, name="mark")
    """A rare branch that the run takes as long as it still reaches what failed, if there is one."""


REGRESSIONS: Final = tuple(msgspec.json.Decoder(Regression).decode_lines(FILE.read_bytes()))
