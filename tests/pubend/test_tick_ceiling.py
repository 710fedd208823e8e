"""One tick ceiling for the silence of all pubends of a broker (R29)."""

from __future__ import annotations

from gapless.core.context import Context, Identity
from gapless.core.events import Written
from gapless.core.parameters import Parameters, microseconds
from gapless.messages.records import PubendRecord, PutRecord, TickCeilingRecord
from gapless.pubend.tick_ceiling import TickCeiling
from tests.scenarios.brokers import World

STEP = microseconds(ms=Parameters().ceiling_step_ms)
NAMES = [f"idle-{number}" for number in range(12)]


def idle_pubends() -> World:
    """Create a broker with many pubends of which none has an event."""
    world = World("p", retention_s=600)
    for name in NAMES:
        world.publisher("p", name)
    world.run(s=3)
    return world


def ceiling_of(world: World) -> int:
    record = world.nodes["p"].disk.records["tick ceiling",]
    assert isinstance(record, TickCeilingRecord)
    return record.ceiling


def tops(world: World) -> list[int]:
    return [each.top for each in world["p"].components.pubends.logs()]


def test_many_idle_pubends_raise_one_ceiling_in_one_write() -> None:
    world = idle_pubends()
    records = world.nodes["p"].disk.records
    before = {key: record for key, record in records.items() if key[0] == "pubend"}
    old_tops, old_ceiling = tops(world), ceiling_of(world)
    world.run(s=5)
    assert all(new > old for new, old in zip(tops(world), old_tops, strict=True))
    assert ceiling_of(world) > old_ceiling
    assert max(tops(world)) <= ceiling_of(world)
    after = {key: record for key, record in records.items() if key[0] == "pubend"}
    assert after == before, "no pubend has written its own record"


def test_after_a_restart_all_pubends_continue_above_the_ceiling_although_the_clock_is_set_back() -> (
    None
):
    world = idle_pubends()
    declared, ceiling = tops(world), ceiling_of(world)
    world.restart("p", clock_back_s=60)
    world.run(ms=10)
    lasts = [each.last_log_tick for each in world["p"].components.pubends.logs()]
    assert all(last >= top for last, top in zip(lasts, declared, strict=True))
    assert min(lasts) >= ceiling


def test_a_pubend_ahead_of_the_clock_does_not_take_others_ahead() -> None:
    # A20: its ceiling is its own
    world = idle_pubends()
    first, *others = world["p"].components.pubends.logs()
    far = first.top + microseconds(s=3_600)
    first.advance(far)
    world.run(s=2)
    assert first.top >= far
    assert ceiling_of(world) < far
    world.restart("p")
    world.run(ms=500)
    again, *rest = world["p"].components.pubends.logs()
    assert again.last_log_tick >= far
    assert max(each.last_log_tick for each in rest) < far
    assert len(rest) == len(others)


def test_who_waits_for_the_disk_is_called_after_the_write() -> None:
    context = Context(Identity("p", "p", 1), Parameters())
    ceiling, called = TickCeiling(context, 100), list[str]()
    ceiling.raise_above(150, lambda: called.append("a"))
    ceiling.raise_above(170, lambda: called.append("b"))
    (write,) = context.take_effects()
    assert (ceiling.tick, called) == (100, [])
    context.resume(Written(write.write_id))  # type: ignore[union-attr]
    assert (ceiling.tick, called) == (150 + STEP, ["a", "b"])
    assert isinstance(write.changes[0], PutRecord)  # type: ignore[union-attr]


def test_the_ceiling_of_earlier_incarnations_applies_to_restored_pubends() -> None:
    context = Context(Identity("p", "p", 2), Parameters())
    world = idle_pubends()
    (record, *_) = [
        each for each in world.nodes["p"].disk.records.values() if isinstance(each, PubendRecord)
    ]
    assert TickCeiling(context, 7 + record.ceiling).restored(record).ceiling == 7 + record.ceiling
    assert TickCeiling(context).restored(record) == record
