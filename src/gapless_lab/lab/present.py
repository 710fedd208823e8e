"""``python -m gapless_lab.lab.present DIRECTORY``: whether the present code made the stored
reports.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from gapless_lab.lab.catalogue import EXPERIMENTS
from gapless_lab.lab.origin import Origin, origin_of
from gapless_lab.lab.results import PAGE

__all__ = ["present"]


def present(directory: Path) -> Iterator[tuple[str, str]]:
    """Yield every experiment with a report in a directory, and how the report relates to this code."""
    for name, experiment in EXPERIMENTS.items():
        page = directory / name / PAGE
        if page.exists():
            yield name, _compared(page.read_text("utf-8"), origin_of(experiment, ""))


def _compared(page: str, here: Origin) -> str:
    if here.digests in page:
        return "of the code here"
    if f"machine `{here.machine}`" in page:
        return "of the same machine; the experiment's own code has changed"
    return "of another machine" if "machine `" in page else "names no code"


def main(arguments: list[str]) -> int:
    """Print the results for the reports in a directory."""
    if len(arguments) != 1:
        sys.stderr.write("name the directory of the reports\n")
        return 2
    for name, text in present(Path(arguments[0])):
        sys.stdout.write(f"{name:10} {text}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
