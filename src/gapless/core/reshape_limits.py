"""The fixed limits of the operations that change the tree, each with its reason."""

from __future__ import annotations

from typing import Final

__all__ = [
    "NEIGHBOURHOOD_CELLS_MAX",
    "OPERATIONS_KEPT",
    "OPERATIONS_WAITING_MAX",
    "OPERATION_CELLS_MAX",
    "OPERATION_PARTICIPANTS_MAX",
    "OPERATION_TIMES_SHOWN",
    "OVERLAY_REQUEST_BYTES_MAX",
    "REMAINDERS_NAMED_MAX",
    "REMAINDER_CHARACTERS_MAX",
    "TAKEOVER_ANSWERS_MAX",
    "TREE_REQUESTS_MAX",
]

OPERATION_CELLS_MAX: Final = 3
"""Cells that an operation changes: those of a SHIFT."""

OPERATION_PARTICIPANTS_MAX: Final = 3
"""Participants of an operation: the leaders of its cells, or those of two cells and an auxiliary one."""

OPERATIONS_KEPT: Final = 64
"""Operations that a coordinator remembers after their end, so that a repeated request is answered.
An older one is requested again and refused as stale."""

OPERATION_TIMES_SHOWN: Final = 16
"""Finished operations whose times a coordinator shows: each is a line of its metrics."""

OPERATIONS_WAITING_MAX: Final = 16
"""Requested operations that a coordinator works on or retries at once. A further one is refused."""

NEIGHBOURHOOD_CELLS_MAX: Final = 4_096
"""Cells that one message of a takeover names: more than any broker holds."""

REMAINDERS_NAMED_MAX: Final = 16
"""Things that are left at a cell which a refused DETACH names."""

TREE_REQUESTS_MAX: Final = 32
"""Operations that clients of one broker wait for at once. A further one is refused for now."""

TAKEOVER_ANSWERS_MAX: Final = 8
"""Requests for one takeover, most of them repeated ones, that are answered at its end."""

OVERLAY_REQUEST_BYTES_MAX: Final = 4_194_304
"""Bytes of a request to the supervisor of an overlay: the tree of some ten thousand cells."""

REMAINDER_CHARACTERS_MAX: Final = 300
"""Characters of such a thing: room for a name."""
