"""Runs that once failed; every one of them must pass for ever.

An entry has the options of the shrunk run as JSON (so that a change of the generator does not
change the run), or only a seed, and a sentence about what went wrong.
"""

from __future__ import annotations

import msgspec

from gapless.sim.options import Options, draw

__all__ = ["REGRESSIONS", "Regression"]


class Regression(msgspec.Struct, frozen=True):
    """A run that once failed."""

    reason: str
    seed: int = 0
    json: str | None = None

    def options(self) -> Options:
        """Return the options of the run."""
        return draw(self.seed) if self.json is None else Options.of_json(self.json)


REGRESSIONS: tuple[Regression, ...] = ()
"""Newest last."""
