"""The alarms ring: a sound toy passes, and each way to break it is found and named."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gapless.core.machine import Tell
from gapless.messages.clients import Delivery, Gap, Published
from gapless.messages.records import Append
from gapless_lab.sim.planted_bugs import Plant, hunt
from gapless_lab.sim.runner import run_options
from tests.cases import scaled
from tests.lab.sim.toy import TOY, Toy
from tests.lab.sim.toy_runs import run_toy, toy_options

Maker = Callable[[Any], Any]


def told(change: Callable[[Toy, Any], list[Any]]) -> Maker:
    """Return a maker that changes what a step tells."""

    def maker(original: Any) -> Any:
        def step(self: Toy, event: Any, moment: Any) -> list[Any]:
            effects = []
            for effect in original(self, event, moment):
                effects += change(self, effect)
            return effects

        return step

    return maker


def delivery(effect: Any) -> Delivery | None:
    if isinstance(effect, Tell) and isinstance(effect.notice, Delivery):
        return effect.notice
    return None


def every(count: int, self: Toy, mark: str) -> bool:
    self.context.mark(mark)
    return self.context.marks[mark] % count == 0


def lose(self: Toy, effect: Any) -> list[Any]:
    lost = delivery(effect) is not None and every(7, self, "planted")
    return [] if lost else [effect]


def double(self: Toy, effect: Any) -> list[Any]:
    again = delivery(effect) is not None and every(7, self, "planted")
    return [effect, effect] if again else [effect]


def reverse(self: Toy, effect: Any) -> list[Any]:  # noqa: ARG001
    notice = delivery(effect)
    if notice is None or notice.count < 2:
        return [effect]
    backwards = tuple((pubend, (each,)) for pubend, each in notice.events[::-1])
    return [Tell(effect.client, Delivery(notice.subscription, backwards))]


def invent_gap(self: Toy, effect: Any) -> list[Any]:
    notice = delivery(effect)
    if notice is None or not every(9, self, "planted"):
        return [effect]
    pubend, publication = notice.events[0]
    return [Tell(effect.client, Gap(notice.subscription, pubend, 1, publication.tick))]


def lie_about_ticks(self: Toy, effect: Any) -> list[Any]:  # noqa: ARG001
    if isinstance(effect, Tell) and isinstance(effect.notice, Published):
        ticks = tuple(tick + 1 for tick in effect.notice.ticks)
        return [Tell(effect.client, Published(effect.notice.request, ticks))]
    return [effect]


def acknowledge_early(original: Any) -> Any:  # noqa: ARG001
    def log(self: Toy, client: str, request: Any, row: Any) -> None:
        self._extend(row.pubend, row.publications)
        self._acknowledge(client, request)
        self.context.write((Append(row),), lambda: self._next(self.homes[row.pubend]))

    return log


def cut_elsewhere(original: Any) -> Any:
    def set_filter(self: Toy, client: str, request: Any) -> None:
        original(self, client, request)
        held = self.subscriptions.get(request.subscription)
        if held is not None and held.history:
            held.history[-1][1].clear()  # the new filter governs all that has not come yet

    return set_filter


def nothing(original: Any) -> Any:  # noqa: ARG001
    return lambda *_, **__: None


def always(value: Any) -> Maker:
    return lambda _: lambda *_, **__: value


def ignore_credit(original: Any) -> Any:
    def deliver(self: Toy, held: Any, pubend: Any, stream: Any) -> None:
        held.credit += 5
        original(self, held, pubend, stream)

    return deliver


def forget_sequences(original: Any) -> Any:
    def logged(self: Toy, pubend: Any, publisher: str) -> dict[int, int]:
        known: dict[int, int] = original(self, pubend, publisher)
        return known if self.context.now % 3 else {}

    return logged


def forget_acks(original: Any) -> Any:
    def recall(self: Toy, record: Any) -> None:
        original(self, record)
        for held in self.subscriptions.values():
            held.acked = dict.fromkeys(held.acked, 2**60)

    return recall


def plant(name: str, about: str, attribute: str, maker: Maker) -> Plant:
    return Plant(name, about, ((Toy, attribute, maker),))


PLANTS = [
    (plant("lose", "a delivery vanishes", "step", told(lose)), {"lost", "stuck"}),
    (plant("double", "a delivery comes twice", "step", told(double)), {"duplicate", "flooded"}),
    (plant("reverse", "events come backwards", "step", told(reverse)), {"lost", "nonmonotonic"}),
    (plant("gap", "a gap is told for nothing", "step", told(invent_gap)), {"dishonest gap"}),
    (plant("ticks", "wrong ticks", "step", told(lie_about_ticks)), {"undurable"}),
    (plant("early", "acknowledged before it is synced", "_log", acknowledge_early), {"undurable"}),
    (
        plant("filter", "everything matches", "_governing", always("TRUE")),
        {"spurious"},
    ),
    (
        plant("segments", "the new filter takes over at once", "_set_filter", cut_elsewhere),
        {"lost", "spurious", "segments", "stuck"},
    ),
    (plant("gossip", "copying stops", "_copy", nothing), {"stuck"}),
    (plant("credit", "credit is not kept to", "_deliver_stream", ignore_credit), {"flooded"}),
    (
        plant("sequences", "repetitions are not known", "_logged", forget_sequences),
        {"duplicate", "undurable"},
    ),
    (plant("acks", "acks that never were", "_recall", forget_acks), {"lost", "stuck"}),
]


def test_the_sound_toy_passes() -> None:
    for seed in range(scaled(60)):
        result = run_toy(seed)
        assert result.violations == (), result.options.line()


@pytest.mark.parametrize(("planted", "names"), PLANTS, ids=lambda each: getattr(each, "name", None))
def test_a_planted_bug_is_found_and_named(planted: Plant, names: set[str]) -> None:
    catch = hunt(planted, range(100), TOY, run=run_toy)
    assert catch.violation is not None, f"{planted.about}: not found in {catch.seeds} seeds"
    assert catch.violation.split(" at ")[0] in names


def test_a_machine_that_does_not_merge_breaks_the_total_order() -> None:
    names = set()
    for seed in range(10):
        result = run_options(toy_options(seed).with_(total=1.0), TOY)
        names |= {violation.name for violation in result.violations}
    assert names == {"disorder"}


def test_a_plant_is_gone_after_its_time() -> None:
    before = {name: getattr(Toy, name) for name in ("step", "_log", "_governing")}
    for planted, _ in PLANTS:
        with planted.planted():
            pass
    assert {name: getattr(Toy, name) for name in before} == before
    assert "_governing" not in vars(Toy), "it is inherited again"


def test_a_bug_that_no_seed_shows_is_reported_as_missed() -> None:
    harmless = Plant("harmless", "changes nothing", ((Toy, "next_timer", lambda same: same),))
    catch = hunt(harmless, range(3), TOY, run=run_toy)
    assert (catch.seeds, catch.violation) == (3, None)
