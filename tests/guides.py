"""The programs in guides, prepared to run against the brokers of a test."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from gapless.testing import SyncOverlay

ROOT: Final = Path(__file__).resolve().parent.parent

_URL: Final = re.compile(r"gapless://127\.0\.0\.1:740(\d)")


def blocks(page: str, language: str = "python") -> list[tuple[int, str]]:
    """Return the blocks of a page in a language, each with its first line number."""
    text = (ROOT / page).read_text()
    found = re.finditer(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [
        (text[: block.start(1)].count("\n"), block[1])
        for block in found
        if not block[1].startswith(">>>")
    ]


def with_brokers(block: str, overlay: SyncOverlay) -> str:
    """Return the block with the addresses of a test's brokers: the first for port 7400, and so on."""
    return _URL.sub(lambda found: overlay.url(f"b{int(found[1]) + 1}"), block)
