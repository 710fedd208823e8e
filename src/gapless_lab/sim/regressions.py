"""Runs that once failed; every one of them must pass.

``regressions.jsonl`` has one run a line: all its options, so that neither a change of the generator
nor one of the defaults changes the run, and a sentence about the cause of the failure.
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
    """A coverage mark that the run hits as long as it reaches the code that failed, or None."""


REGRESSIONS: Final = tuple(msgspec.json.Decoder(Regression).decode_lines(FILE.read_bytes()))
