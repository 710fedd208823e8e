"""How many coverings are found, and how many disjoint pairs are recognised.

`covers` must never claim falsely, but it may miss. This benchmark compares all pairs of filters in
pools that share a few attributes and literals. The reference is every event of a domain that is
dense around these literals: each literal, a number in every gap between two of them and beyond, the
strings that follow a literal immediately, short words for patterns, other types, NaN and missing
values. Only with LIKE, arithmetic or several attributes in one predicate may a relation hold on the
domain and not everywhere; there the shares are lower bounds.

Run it with `python -m benchmarks.covering_quality [pools]`.
"""

from __future__ import annotations

import random
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.content.pools import ANYTHING, CONJUNCTIONS, PATTERNS, SIMPLE, Pool, pool

RESULT = Path(__file__).parent / "results" / "covering-quality.md"
POOL_SIZE = 60
DEFAULT_POOLS = 40
ROWS = (
    (SIMPLE, "conjunctions, one attribute a predicate, no LIKE, no arithmetic"),
    (PATTERNS, "the same with LIKE"),
    (CONJUNCTIONS, "conjunctions of any predicates"),
    (ANYTHING, "any conditions (AND, OR, NOT nested)"),
)

METHOD = """\
All ordered pairs of different filters in {pools} pools of {size} for each row. Each pool has two or
three attributes with at most three literals each; filters that match nothing are omitted. The
truth comes from every event of a domain that is dense around the literals: the literals
themselves, a number in every gap and beyond both ends, the string that follows a literal
immediately and one after that, all words of up to four letters for patterns of up to three parts,
values of the other types, NaN, and missing.

*Found* is the share of these pairs for which the library says so. In the first row the domain
decides exactly; the misses that were looked at there need to know that no number lies between two
large neighbours such as 2^53 and 2^53 + 1. In the others LIKE, arithmetic and comparisons between attributes may make
something hold on the domain that does not hold everywhere, so what is found is at least the share
given. *False* counts claims that the domain refutes and must be 0.
"""


@dataclass(slots=True)
class Quality:
    """Counts over ordered pairs of different filters that both match something."""

    pairs: int = 0
    covering: int = 0
    covering_claimed: int = 0
    covering_false: int = 0
    disjoint: int = 0
    disjoint_claimed: int = 0
    disjoint_false: int = 0
    refused: int = 0

    def add(self, candidates: Pool) -> None:
        """Compare all pairs of a pool."""
        self.refused += candidates.refused
        for wide in candidates.candidates:
            for narrow in candidates.candidates:
                if wide is narrow or not wide.matching or not narrow.matching:
                    continue
                self.pairs += 1
                covering = not narrow.matching & ~wide.matching
                disjoint = not narrow.matching & wide.matching
                covers = wide.filter.covers(narrow.filter)
                apart = not wide.filter.intersects(narrow.filter)
                self.covering += covering
                self.covering_claimed += covering and covers
                self.covering_false += covers and not covering
                self.disjoint += disjoint
                self.disjoint_claimed += disjoint and apart
                self.disjoint_false += apart and not disjoint

    def row(self, name: str) -> str:
        """One line of the table."""
        return (
            f"| {name} | {self.pairs:,} | {self.covering:,} "
            f"| {share(self.covering_claimed, self.covering)} | {self.covering_false} "
            f"| {self.disjoint:,} | {share(self.disjoint_claimed, self.disjoint)} "
            f"| {self.disjoint_false} |"
        )


def share(part: int, whole: int) -> str:
    """A part of a whole in per cent."""
    return f"{100 * part / whole:.1f} %" if whole else "none"


def measure(kind: str, pools: int) -> Quality:
    """The quality for one kind of filter; the pools depend only on their number."""
    quality = Quality()
    for seed in range(pools):
        quality.add(pool(random.Random(f"quality {kind} {seed}"), POOL_SIZE, kind))
    return quality


def table(pools: int) -> str:
    """The whole report."""
    measured = [(name, measure(kind, pools)) for kind, name in ROWS]
    refused = sum(quality.refused for _, quality in measured)
    lines = [
        "# Quality of covering and intersection",
        "",
        METHOD.format(pools=pools, size=POOL_SIZE),
        "| filters | pairs | covering | found | false | disjoint | found | false |",
        "|---|--:|--:|--:|--:|--:|--:|--:|",
        *(quality.row(name) for name, quality in measured),
        "",
        f"Refused for the size of their normal form: {refused} filters.",
        "",
        "Made by `python -m benchmarks.covering_quality`.",
        "",
    ]
    return "\n".join(lines)


def main() -> None:
    """Measure, print and write the report."""
    pools = int(sys.argv[1]) if len(sys.argv) > 1 else DEFAULT_POOLS
    text = table(pools)
    print(text)
    RESULT.parent.mkdir(parents=True, exist_ok=True)
    RESULT.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
