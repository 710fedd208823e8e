"""How every subcommand speaks: results on standard output, errors on standard error.

With ``--json`` both are one JSON document. An error is one block: what was wrong, with the place
where it was wrong, and nothing of our own insides.
"""

from __future__ import annotations

import sys

import msgspec
from rich.console import Console
from rich.text import Text


def console() -> Console:
    """The console for results. Made for each use, so that a redirected stream is respected."""
    return Console(highlight=False, soft_wrap=not sys.stdout.isatty())


def print_json(document: object) -> None:
    """Print one JSON document, indented for people."""
    text = msgspec.json.format(msgspec.json.encode(document), indent=2).decode()
    sys.stdout.write(text + "\n")


def print_error(problem: str, *, as_json: bool) -> None:
    """Print one error block."""
    if as_json:
        sys.stderr.write(msgspec.json.encode({"error": problem}).decode() + "\n")
        return
    # Soft wrap keeps the caret of a syntax error under its column.
    block = Text.assemble(("error: ", "bold red"), problem)
    Console(stderr=True, highlight=False, soft_wrap=True).print(block)
