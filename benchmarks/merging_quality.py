"""How much merging widens: the events that match the merged conjunctions but none of their parts.

Run it with `python -m benchmarks.merging_quality`; it takes about a minute.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.workloads import Workload, mixture, points, quotes, ranges, thresholds, topics
from gapless import Filter, MatchIndex
from gapless.content.conjunction import Conjunction
from gapless.content.merging import merge

RESULT: Final = Path(__file__).parent / "results" / "merging-quality.md"
FILTERS: Final = 10_000
EVENTS: Final = 4_000
SHARES: Final = (1.0, 0.5, 0.1, 0.01)

METHOD: Final = f"""\
Each set of filters is merged to a budget of 100 %, 50 %, 10 % and 1 % of its different
conjunctions; {EVENTS:,} events are matched with the parts and with the merged set. *Superfluous* is
the share of all events that match the merged set but no part: they travel one broker further than
they have to. Nothing that matches a part is ever missed (checked here too). Seconds are CPU time.

- **W1** `symbol = s AND price BETWEEN … AND volume BETWEEN …`, 10,000 symbols by Zipf's law.
- **W2** `a > v`: one conjunction covers all others. **W3** `a = v`, 10,000 values.
- **W4, narrow** five ranges out of twenty attributes, each 5 % to 20 % of the domain wide, drawn
  independently: two filters have hardly anything in common, so a merge of two is a hundred times
  as wide as both. The worst case.
- **W4 by topic** five ranges out of twenty attributes around one of 100 topics.
- **W5** 200 types of events with ten out of 500 attributes each.
"""


class Merged(NamedTuple):
    """One line of the table."""

    title: str
    parts: int
    budget: int
    merged: int
    matching: float
    superfluous: float
    seconds: float

    def row(self) -> str:
        """The line itself."""
        return (
            f"| {self.title} | {self.parts:,} | {self.budget:,} | {self.merged:,} "
            f"| {100 * self.matching:.1f} % | {100 * self.superfluous:.1f} % "
            f"| {self.seconds:.1f} |"
        )


SETS: Final[dict[str, Callable[[], Workload]]] = {
    "W1": lambda: quotes(FILTERS, EVENTS),
    "W2": lambda: thresholds(FILTERS, EVENTS),
    "W3": lambda: points(FILTERS, EVENTS),
    "W4, narrow": lambda: ranges(FILTERS, EVENTS, (0.05, 0.2)),
    "W4 by topic": lambda: topics(FILTERS, EVENTS),
    "W5": lambda: mixture(FILTERS // 10, EVENTS),
}


def _matched(conjunctions: Iterable[Conjunction], workload: Workload) -> list[bool]:
    index = MatchIndex()
    for number, conjunction in enumerate(conjunctions):
        index.add(number, Filter.of([conjunction]))
    return [bool(index.match(event)) for event in workload.events]


def measure(title: str, workload: Workload) -> list[Merged]:
    """Merge one set of filters to every budget."""
    parts = {part for text in workload.texts() for part in Filter(text).conjunctions}
    wanted = _matched(parts, workload)
    lines = []
    for share in SHARES:
        budget = max(1, round(share * len(parts)))
        start = time.process_time()
        merged = merge(parts, budget)
        seconds = time.process_time() - start
        found = _matched(merged, workload)
        assert all(now or not before for before, now in zip(wanted, found, strict=True))
        matching = sum(wanted) / EVENTS
        superfluous = sum(found) / EVENTS - matching
        lines.append(Merged(title, len(parts), budget, len(merged), matching, superfluous, seconds))
    return lines


def main() -> None:
    """Measure, print and write the report."""
    head = (
        "# How much merging widens",
        "",
        METHOD,
        "| filters | conjunctions | budget | merged | events that match | superfluous | seconds |",
        "|---|--:|--:|--:|--:|--:|--:|",
    )
    lines = list(head)
    print("\n".join(head), flush=True)
    for title, make in SETS.items():
        for merged in measure(title, make()):
            lines.append(merged.row())
            print(merged.row(), flush=True)
    text = "\n".join((*lines, "", "Made by `python -m benchmarks.merging_quality`.", ""))
    RESULT.parent.mkdir(parents=True, exist_ok=True)
    RESULT.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
