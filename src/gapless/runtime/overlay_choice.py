"""The overlay that ``gapless up`` runs: from its options, and from its data directory."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import msgspec

from gapless.core.errors import UsageError
from gapless.core.parameters import Parameters
from gapless.runtime.generated_files import is_edited
from gapless.runtime.overlay_config import OverlayConfig, generate, is_overlay_file, load_overlay
from gapless.runtime.parameter_values import read_option

__all__ = ["choose_overlay"]

_DEFAULT: Final = "line:3"


def choose_overlay(
    topology: str | None,
    data: Path | None,
    *,
    delta: int | None = None,
    parameters: Iterable[str] = (),
) -> OverlayConfig:
    """Return the overlay of a short form or a file, or the one of the data directory, or line:3.

    Parameters are those of the overlay's file, or for a short form those that the data directory
    has for the same tree; options override them.
    """
    path = None if data is None else data / "overlay.toml"
    stored = load_overlay(path) if path is not None and path.exists() else None
    if topology is not None and is_overlay_file(topology):
        found = load_overlay(Path(topology))
    elif topology is None and stored is not None:
        assert path is not None
        # generated addresses follow the options; edited ones are kept
        found = stored if is_edited(path) else msgspec.structs.replace(stored, addresses={})
    else:
        found = generate(topology or _DEFAULT)
        if stored is not None and stored.topology == found.topology:
            found = msgspec.structs.replace(found, parameters=stored.parameters)
    if delta is not None:
        found = msgspec.structs.replace(found, delta=delta)
    found = msgspec.structs.replace(found, parameters=_with_options(found.parameters, parameters))
    given: dict[str, Any] = {**found.parameters, "delta": found.delta}
    Parameters(**given)  # refused here once instead of by every broker
    return found


def _with_options(given: dict[str, bool | int], options: Iterable[str]) -> dict[str, bool | int]:
    chosen = dict(given)
    for option in options:
        name, value = read_option(option)
        if name == "delta":
            raise UsageError("delta is no parameter of a broker here: use --delta")
        if value is None:
            chosen.pop(name, None)
        else:
            chosen[name] = value
    return chosen
