"""The fixed limits of requests to named brokers and of walks over the tree, each with its reason."""

from __future__ import annotations

from typing import Final

UNICAST_REQUESTS_MAX: Final = 4_096
"""Pending unicast requests of a broker above which it makes none for clients."""

UNICAST_BODY_BYTES_MAX: Final = 1_048_576
"""Bytes of the body of a unicast request or reply, about a full page of an operator's list. Every
broker on the way checks it."""

DUTY_PAUSE_MAX_S: Final = 60
"""The longest pause between the attempts of a duty that has no end, in seconds."""

WALK_QUESTIONS_MAX: Final = 32
"""Cells that one walk over the tree asks at once."""

WALK_CELLS_MAX: Final = 4_096
"""Cells that one walk over the tree collects. Brokers that invent cells would make it endless."""

WALK_BYTES_MAX: Final = 16_777_216
"""Bytes of all records that one walk over the tree receives."""

TREE_WALKS_MAX: Final = 64
"""Walks over the tree that a broker makes for its clients at once. A further request is refused with
UNAVAILABLE."""
