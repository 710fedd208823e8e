"""``gapless explain``: what a filter means, and whether and why an event matches it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec
from rich.table import Table

from gapless.cli.output import console, joined, print_json, styled
from gapless.client.arguments import check_filter
from gapless.content.conjunction import EVERYTHING, Conjunction
from gapless.content.expression import literal_text
from gapless.content.matching.plan import AccessKind, Planner
from gapless.content.values import Attributes, Value, check_attributes
from gapless.content.valueset import ANY_NUMBER
from gapless.core.errors import UsageError

if TYPE_CHECKING:
    from rich.text import Text

EVERYTHING_TEXT = str(EVERYTHING)


class ExplainedCondition(msgspec.Struct, frozen=True):
    """One condition of a conjunction, and its result for the event."""

    text: str
    subject: str
    value: Value | None
    holds: bool


class Explained(msgspec.Struct, frozen=True, omit_defaults=True):
    """One conjunction; its parts are filled only if there is an event."""

    text: str
    found_by: str
    """The condition by which the index finds the conjunction."""
    checked_last: str | None = None
    """The condition that the index cannot evaluate: it is checked last."""
    matches: bool | None = None
    parts: tuple[ExplainedCondition, ...] = ()


class Explanation(msgspec.Struct, frozen=True, omit_defaults=True):
    """A filter in its normal form, and the result for an event if one was given."""

    filter: str
    conjunctions: tuple[Explained, ...]
    event: dict[str, Value | None] | None = None
    matches: bool | None = None


def read_event(text: str) -> dict[str, Value | None]:
    """Read the attributes of an event from JSON."""
    try:
        attributes = msgspec.json.decode(text, type=dict[str, bool | int | float | str | None])
    except msgspec.MsgspecError as error:
        raise UsageError(
            f"the event is not a JSON object of plain values: {error}\n"
            """  it looks like this: '{"symbol": "IBM", "price": 90.5}'"""
        ) from error
    check_attributes(attributes)
    return attributes


def explain(filter_text: str, event: dict[str, Value | None] | None) -> Explanation:
    """Explain every conjunction of a filter, with its result for an event."""
    selector = check_filter("FILTER", filter_text)
    if event is None:
        conjunctions = tuple(Explained(str(each), *lookup(each)) for each in selector.conjunctions)
        return Explanation(str(selector), conjunctions)
    return Explanation(
        str(selector),
        tuple(
            Explained(str(each), *lookup(each), each.matches(event), tuple(parts(each, event)))
            for each in selector.conjunctions
        ),
        event,
        selector.matches(event),
    )


def lookup(conjunction: Conjunction) -> tuple[str, str | None]:
    """Return how an index finds a conjunction, and the condition that is checked last.

    Among other conjunctions the index may use another of its equalities that is less frequent.
    """
    plan = Planner().plan(conjunction)
    access, left = plan.access, plan.check
    match access.kind:
        case AccessKind.EQUAL:
            values = ", ".join(map(literal_text, access.values))
            found_by = f"{access.attribute} equals {values}"
        case AccessKind.PREFIX:
            found_by = f"{access.attribute} begins with {literal_text(access.values[0])}"
        case AccessKind.PRESENT:
            found_by = f"{access.attribute} is there"
        case _:
            found_by = "checked for every event"
    return found_by, None if left is None else str(left)


def parts(conjunction: Conjunction, event: Attributes) -> Iterator[ExplainedCondition]:
    """Yield every condition of a conjunction with its result."""
    for name, allowed in conjunction.constraints:
        value = event.get(name)
        # Arithmetic needs numbers; the language has no shorter form of this condition.
        number = allowed == ANY_NUMBER
        text = f"{name} is a number" if number else str(Conjunction(((name, allowed),)))
        yield ExplainedCondition(text, name, value, allowed.contains(value))
    for term, allowed in conjunction.residuals:
        value = term.value(event)
        text = str(Conjunction((), ((term, allowed),)))
        yield ExplainedCondition(text, str(term), value, allowed.contains(value))


def run(filter_text: str, event_text: str | None, *, as_json: bool) -> None:
    """Explain a filter and print the result."""
    event = None if event_text is None else read_event(event_text)
    explanation = explain(filter_text, event)
    if as_json:
        print_json(explanation)
    else:
        show(explanation)


def show(explanation: Explanation) -> None:
    """Print the explanation as text."""
    out = console()
    out.print(joined(styled("filter  ", "bold"), explanation.filter))
    out.print(joined(styled("means   ", "bold"), meaning(explanation)))
    for number, each in enumerate(explanation.conjunctions, 1):
        line = styled(f"  {number}. {each.text}")
        if each.matches is not None:
            line.append_text(verdict(holds=each.matches, yes="   matches", no="   does not match"))
        out.print(line)
        checked = "" if each.checked_last is None else f"; then checked: {each.checked_last}"
        out.print(styled(f"     looked up by: {each.found_by}{checked}", "dim"))
        if each.parts:
            out.print(part_table(each.parts))
    if explanation.matches is not None:
        line = verdict(holds=explanation.matches, yes="matches", no="does not match")
        out.print(joined(styled("event   ", "bold"), line))


def meaning(explanation: Explanation) -> str:
    """Describe how the conjunctions make up the filter."""
    if explanation.filter == EVERYTHING_TEXT:
        return "everything: every event matches"
    count = len(explanation.conjunctions)
    if count == 0:
        return "nothing: no event can match"
    return "this conjunction" if count == 1 else f"any of these {count} conjunctions"


def verdict(*, holds: bool, yes: str, no: str) -> Text:
    """Return a yes in green or a no in red."""
    return styled(yes, "green") if holds else styled(no, "red")


def part_table(conditions: tuple[ExplainedCondition, ...]) -> Table:
    """Return the conditions of one conjunction, each with the value of the event."""
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(min_width=8, justify="right")
    table.add_column(overflow="fold")
    table.add_column(overflow="fold", style="dim")
    for part in conditions:
        value = "no value" if part.value is None else literal_text(part.value)
        fact = f"{part.subject}: {value}"
        table.add_row(
            verdict(holds=part.holds, yes="yes", no="no"), styled(part.text), styled(fact)
        )
    return table
