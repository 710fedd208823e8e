"""A correct toy passes, and each planted bug of it is found and named."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gapless.core.effects import Notify
from gapless.messages.clients import Delivery, Gap, Published
from gapless.messages.records import AppendRow
from gapless_lab.sim.planted_bugs import PlantedBug, hunt
from gapless_lab.sim.runner import run_options
from tests.cases import scaled
from tests.lab.sim.toy import TOY, ToyMachine
from tests.lab.sim.toy_runs import run_toy, toy_options

Maker = Callable[[Any], Any]


def changing_effects(change: Callable[[ToyMachine, Any], list[Any]]) -> Maker:
    """Return a maker that changes the effects of a step."""

    def maker(original: Any) -> Any:
        def step(self: ToyMachine, event: Any, now: Any) -> list[Any]:
            effects = []
            for effect in original(self, event, now):
                effects += change(self, effect)
            return effects

        return step

    return maker


def delivery(effect: Any) -> Delivery | None:
    if isinstance(effect, Notify) and isinstance(effect.notice, Delivery):
        return effect.notice
    return None


def every(count: int, self: ToyMachine, mark: str) -> bool:
    self.context.mark(mark)
    return self.context.coverage_marks[mark] % count == 0


def lose(self: ToyMachine, effect: Any) -> list[Any]:
    lost = delivery(effect) is not None and every(7, self, "planted")
    return [] if lost else [effect]


def double(self: ToyMachine, effect: Any) -> list[Any]:
    again = delivery(effect) is not None and every(7, self, "planted")
    return [effect, effect] if again else [effect]


def reverse(self: ToyMachine, effect: Any) -> list[Any]:  # noqa: ARG001
    notice = delivery(effect)
    if notice is None or notice.count < 2:
        return [effect]
    backwards = tuple((pubend, (each,)) for pubend, each in notice.events[::-1])
    return [Notify(effect.client, Delivery(notice.subscription, backwards))]


def invent_gap(self: ToyMachine, effect: Any) -> list[Any]:
    notice = delivery(effect)
    if notice is None or not every(9, self, "planted"):
        return [effect]
    pubend, publication = notice.events[0]
    return [Notify(effect.client, Gap(notice.subscription, pubend, 1, publication.tick))]


def confirm_wrong_ticks(self: ToyMachine, effect: Any) -> list[Any]:  # noqa: ARG001
    if isinstance(effect, Notify) and isinstance(effect.notice, Published):
        ticks = tuple(tick + 1 for tick in effect.notice.ticks)
        return [Notify(effect.client, Published(effect.notice.request, ticks))]
    return [effect]


def acknowledge_early(original: Any) -> Any:  # noqa: ARG001
    def log(self: ToyMachine, client: str, request: Any, row: Any) -> None:
        self._extend(row.pubend, row.publications)
        self._acknowledge(client, request)
        self.context.write((AppendRow(row),), lambda: self._next(self.hosted[row.pubend]))

    return log


def cut_elsewhere(original: Any) -> Any:
    def set_filter(self: ToyMachine, client: str, request: Any) -> None:
        original(self, client, request)
        held = self.subscriptions.get(request.subscription)
        if held is not None and held.history:
            held.history[-1][1].clear()  # the new filter applies to everything not delivered yet

    return set_filter


def nothing(original: Any) -> Any:  # noqa: ARG001
    return lambda *_, **__: None


def always(value: Any) -> Maker:
    return lambda _: lambda *_, **__: value


def ignore_credit(original: Any) -> Any:
    def deliver(self: ToyMachine, held: Any, pubend: Any, stream: Any) -> None:
        held.credit += 5
        original(self, held, pubend, stream)

    return deliver


def forget_sequences(original: Any) -> Any:
    def logged(self: ToyMachine, pubend: Any, publisher: str) -> dict[int, int]:
        known: dict[int, int] = original(self, pubend, publisher)
        return known if self.context.now % 3 else {}

    return logged


def invent_acks(original: Any) -> Any:
    def recall(self: ToyMachine, record: Any) -> None:
        original(self, record)
        for held in self.subscriptions.values():
            held.acked = dict.fromkeys(held.acked, 2**60)

    return recall


def toy_bug(name: str, about: str, attribute: str, maker: Maker) -> PlantedBug:
    return PlantedBug(name, about, ((ToyMachine, attribute, maker),))


TOY_BUGS = [
    (
        toy_bug("loses deliveries", "a delivery is lost", "step", changing_effects(lose)),
        {"lost", "stuck"},
    ),
    (
        toy_bug("repeats deliveries", "a delivery is sent twice", "step", changing_effects(double)),
        {"duplicate", "flooded"},
    ),
    (
        toy_bug(
            "reverses deliveries",
            "events are sent in reverse order",
            "step",
            changing_effects(reverse),
        ),
        {"lost", "nonmonotonic"},
    ),
    (
        toy_bug(
            "invents gaps",
            "a gap is reported for ticks in the log",
            "step",
            changing_effects(invent_gap),
        ),
        {"dishonest gap"},
    ),
    (
        toy_bug(
            "confirms wrong ticks",
            "a reply has wrong ticks",
            "step",
            changing_effects(confirm_wrong_ticks),
        ),
        {"undurable"},
    ),
    (
        toy_bug(
            "acknowledges early",
            "a batch is acknowledged before it is durable",
            "_log",
            acknowledge_early,
        ),
        {"undurable"},
    ),
    (
        toy_bug("ignores filters", "every event matches", "_filter_at", always("TRUE")),
        {"spurious"},
    ),
    (
        toy_bug("switches at once", "the new filter applies at once", "_set_filter", cut_elsewhere),
        {"lost", "spurious", "segments", "stuck"},
    ),
    (toy_bug("stops copying", "logs are not copied", "_copy", nothing), {"stuck"}),
    (
        toy_bug(
            "ignores credit", "more events are sent than credited", "_deliver_stream", ignore_credit
        ),
        {"flooded"},
    ),
    (
        toy_bug(
            "forgets sequences", "a repeated batch is published again", "_logged", forget_sequences
        ),
        {"duplicate", "undurable"},
    ),
    (
        toy_bug("invents acks", "ticks count as acknowledged that are not", "_recall", invent_acks),
        {"lost", "stuck"},
    ),
]


def test_the_correct_toy_passes() -> None:
    for seed in range(scaled(60)):
        result = run_toy(seed)
        assert result.violations == (), result.options.line()


@pytest.mark.parametrize(
    ("planted", "names"), TOY_BUGS, ids=lambda each: getattr(each, "name", None)
)
def test_a_planted_bug_is_found_and_named(planted: PlantedBug, names: set[str]) -> None:
    detection = hunt(planted, range(100), TOY, run=run_toy)
    assert detection.violation is not None, f"{planted.about}: not found in {detection.seeds} seeds"
    assert detection.violation.split(" at ")[0] in names


def test_a_machine_that_does_not_merge_breaks_the_total_order() -> None:
    names = set()
    for seed in range(10):
        result = run_options(toy_options(seed).with_(total=1.0), TOY)
        names |= {violation.name for violation in result.violations}
    assert names == {"disorder"}


def test_a_planted_bug_is_removed_after_the_block() -> None:
    before = {name: getattr(ToyMachine, name) for name in ("step", "_log", "_filter_at")}
    for planted, _ in TOY_BUGS:
        with planted.installed():
            pass
    assert {name: getattr(ToyMachine, name) for name in before} == before
    assert "_filter_at" not in vars(ToyMachine), "it is inherited again"


def test_a_bug_that_no_seed_shows_is_reported_as_missed() -> None:
    harmless = PlantedBug(
        "harmless", "changes nothing", ((ToyMachine, "next_timer", lambda same: same),)
    )
    detection = hunt(harmless, range(3), TOY, run=run_toy)
    assert (detection.seeds, detection.violation) == (3, None)
