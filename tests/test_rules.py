"""The rulebook and its citations: every rule that is cited is defined, every rule that is defined is cited.

A *definition* is a heading ``### R13. Title`` on a page of ``docs/rules``. Promises (P1 to P8) and
contracts (C1 to C7) are defined by the tables of ``GUARANTEES.md``.

A *citation* is an id that :data:`CITATION` finds in a sentence: in a comment or a string of a Python
file, or anywhere in a Markdown page. The pages of ``docs/rules`` cite each other freely and do not count.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
RULES = ROOT / "docs" / "rules"
GUARANTEES = ROOT / "GUARANTEES.md"
FOLDERS = ("src", "tests", "docs", "benchmarks", "examples")

CITATION = re.compile(
    r"""
    (?<![\w.])
    (?: (?:R|I|A)[1-9]\d?              # rules, invariants, runs
      | (?<!['"])D[1-9]\d?(?!['"])      # shared rules
      | RS-[1-9]\d?a?                  # rules of reshape
      | MV-[1-9]\d?                    # rules of mobility
      | (?<!['"])[SPC][1-9](?!['"])    # staging, promises, contracts
    )
    (?![\w]|\.\d)
    """,
    re.VERBOSE,
)
"""An id of a rule. Codes of linters have three digits, pubends of tests begin with ``P0`` or stand in
quotes, and so do symbols such as ``'S7'``; none of these is an id."""

SPAN = re.compile(r"\b(R|I|A|S|P|C|D|MV-|RS-)(\d+) to (?:R|I|A|S|P|C|D|MV-|RS-)(\d+)\b")
"""A range of ids, such as "R42 to R45"; it also cites the ids in between."""

DEFINITION = re.compile(r"^### ((?:R|I|A|S|D|MV-)\d+|RS-\d+a?)\. \S", re.MULTILINE)
PROMISE = re.compile(r"^\| \**([PC]\d)\b", re.MULTILINE)
SECTION = re.compile(r"\bsections? \d|\d\.\d+ of the rules", re.IGNORECASE)
"""A reference to a section of a list of rules; rules are cited by their ids alone."""

PLANTED = re.compile(r'planted bugs? ((?:"[^"]+"(?:, )?)+)')


# ---------------------------------------------------------------------------------------------
# The definitions of the rulebook.


@cache
def sections() -> dict[str, str]:
    """Return the section of each rule by its id."""
    found: dict[str, str] = {}
    for page in sorted(RULES.glob("*.md")):
        text = page.read_text()
        for part in re.split(r"^(?=##+ )", text, flags=re.MULTILINE):
            if match := DEFINITION.match(part):
                assert match[1] not in found, f"{match[1]} is defined twice"
                found[match[1]] = part
    return found


def promises() -> set[str]:
    return set(PROMISE.findall(GUARANTEES.read_text()))


def listed(section: str, label: str) -> list[str]:
    """Return the paths in backquotes of one line of a section, such as "- Kept by: ..."."""
    line = re.search(rf"^- {label}: (.+)$", section, re.MULTILINE)
    return re.findall(r"`([^`]+)`", line[1]) if line else []


# ---------------------------------------------------------------------------------------------
# The citations.


def pages() -> Iterator[Path]:
    """Return the files whose citations count."""
    yield from sorted(ROOT.glob("*.md"))
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in {".py", ".md"} and RULES not in path.parents:
                yield path


def sentences(path: Path) -> str:
    """Return the prose of a file: of a program, its comments and strings."""
    text = path.read_text()
    if path.suffix == ".md" or not CITATION.search(text):
        return text
    kinds = {tokenize.COMMENT, tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", -1)}
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return "\n".join(token.string for token in tokens if token.type in kinds)


def cited_in(text: str) -> set[str]:
    found = set(CITATION.findall(text))
    for letter, first, last in SPAN.findall(text):
        found |= {f"{letter}{number}" for number in range(int(first), int(last) + 1)}
    return found


@cache
def citations() -> dict[str, list[str]]:
    """Return the files that cite each id."""
    found = defaultdict(list)
    for path in pages():
        if path != Path(__file__).resolve():
            for rule in cited_in(sentences(path)):
                found[rule].append(path.relative_to(ROOT).as_posix())
    return dict(found)


@cache
def functions_of(path: Path) -> list[str]:
    nodes = ast.walk(ast.parse(path.read_text()))
    return [node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


# ---------------------------------------------------------------------------------------------
# Definitions and citations agree.


def test_every_rule_that_is_cited_is_defined() -> None:
    defined = sections().keys() | promises()
    undefined = {rule: files for rule, files in citations().items() if rule not in defined}
    assert not undefined, f"cited and not defined in docs/rules or GUARANTEES.md: {undefined}"


def test_no_rule_is_cited_by_the_number_of_a_section() -> None:
    texts = {path: path.read_text() for path in pages() if path != Path(__file__).resolve()}
    found = {
        path.relative_to(ROOT).as_posix(): match[0]
        for path, text in texts.items()
        if (match := SECTION.search(text))
    }
    assert not found, f"cite the id of a rule instead: {found}"


def test_every_rule_that_is_defined_is_cited_outside_the_rulebook() -> None:
    unused = sections().keys() - citations().keys()
    assert not unused, f"nothing cites these rules, remove their sections: {sorted(unused)}"


def test_every_rule_is_in_the_index() -> None:
    index = (RULES / "README.md").read_text()
    missing = [rule for rule in sections() if f"| [{rule}](" not in index]
    assert not missing, f"not in docs/rules/README.md: {missing}"


@pytest.mark.parametrize("rule", sorted(sections()))
def test_a_rule_has_a_reason_its_paper_its_modules_and_its_tests(rule: str) -> None:
    section = sections()[rule]
    assert "- Tests: " in section
    if not rule.startswith("A"):
        assert "*Why:* " in section
        assert "\n- Paper: " in section
        assert listed(section, "Kept by")


def test_the_modules_that_keep_rules_exist() -> None:
    missing = defaultdict(list)
    for rule, section in sections().items():
        for name in listed(section, "Kept by") + listed(section, "Checked by"):
            below = ROOT / "src" if name.startswith("gapless_lab/") else ROOT / "src" / "gapless"
            if not (below / name).exists():
                missing[name].append(rule)
    assert not missing, f"named in docs/rules and not there: {dict(missing)}"


def test_the_tests_of_a_rule_exist() -> None:
    missing = defaultdict(list)
    for rule, section in sections().items():
        for name in listed(section, "Tests"):
            file, _, pattern = name.partition("::")
            path = ROOT / file
            known = path.exists() and (
                not pattern or any(fnmatchcase(each, pattern) for each in functions_of(path))
            )
            if not known:
                missing[name].append(rule)
    assert not missing, f"named in docs/rules and not there: {dict(missing)}"


def test_the_planted_bugs_of_the_rulebook_exist() -> None:
    sources = [path.read_text() for path in (ROOT / "src").glob("*/sim/*.py")]
    named = {
        bug
        for section in sections().values()
        for names in PLANTED.findall(section)
        for bug in re.findall(r'"([^"]+)"', names)
    }
    assert named
    missing = [bug for bug in sorted(named) if not any(f'"{bug}"' in text for text in sources)]
    assert not missing, f"named in docs/rules and not in the simulator: {missing}"


# ---------------------------------------------------------------------------------------------
# The patterns match.


@pytest.mark.parametrize(
    ("text", "rules"),
    [
        ("a session is fenced (R1, I12)", {"R1", "I12"}),
        ("the end of the streams (R42 to R44)", {"R42", "R43", "R44"}),
        ("R29, A8: silence stays silent", {"R29", "A8"}),
        ("moves by force (MV-13), whole and once (S1)", {"MV-13", "S1"}),
        ("requests of walks (D9, RS-20), asked anew (RS-15a)", {"D9", "RS-20", "RS-15a"}),
        ("honest storage (P8), C3 and C4", {"P8", "C3", "C4"}),
        ("# noqa: S311, A002", set()),
        ("symbol = 'S7' of pubend P0 or \"P9\"", set()),
        ("R2D2, GR1, R100 and r46", set()),
    ],
)
def test_ids_of_rules_are_distinguished_from_other_words(text: str, rules: set[str]) -> None:
    assert cited_in(text) == rules


@pytest.mark.parametrize("text", ["(section 17)", "R46, sections 10 and 16", "(2.4 of the rules)"])
def test_a_reference_to_a_section_is_found(text: str) -> None:
    assert SECTION.search(text)


def test_names_of_variables_are_no_citations(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text('R99 = "no rule"  # R13\n')
    assert cited_in(sentences(program)) == {"R13"}
