"""The example that mypy checks also runs."""

from __future__ import annotations

import asyncio

from gapless.testing import SyncOverlay
from tests.client.typed_example import use, use_sync


def test_the_typed_example_runs() -> None:
    with SyncOverlay(on_disk=False) as overlay:
        position, found, switch = asyncio.run(use(overlay.url()))
        assert [event.position for event in found] == [position]
        assert switch >= position
        assert use_sync(overlay.url()) == ["quotes", str(position)]
