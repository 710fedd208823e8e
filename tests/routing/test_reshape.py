"""Streams when the tree around a router changes: scope, shapes, new numbers (R13)."""

from __future__ import annotations

from typing import Any

import pytest

from gapless.feeds.feed import is_leaf_number, scope_of
from gapless.messages.streams import (
    Attach,
    Attached,
    Detach,
    FeedUnavailable,
    FeedUnavailableReason,
    Nack,
)
from gapless.overlay.tree import TreeChange
from tests.overlay.small_world import neighbourhood_of
from tests.shape_versions import shape
from tests.stream.small_streams import STOCKS, Line, Node, event, knowledge_range


def fed(names: str = "pn") -> tuple[Line, Node]:
    """Return a line whose last router feeds r and has a knowledge range cached."""
    line = Line(names)
    line.attach()
    line.run(ms=20)
    line.publish(knowledge_range(1, 10, event(5, 0)))
    line.run(ms=20)
    return line, line.nodes[line.last]


def reshape(line: Line, node: Node, *, wider: bool) -> None:
    node.context.now = line.now
    near = neighbourhood_of("p", "pn")  # a router depends only on the width of the change
    node.router.reshape(TreeChange(near, near, wider=wider))
    line._collect(node)


def sent(line: Line, kind: type, source: str, target: str) -> list[Any]:
    return [each for s, t, each in line.sent if (s, t) == (source, target) and type(each) is kind]


def test_a_wider_router_clears_its_cache_and_forwards_nacks() -> None:
    line, node = fed()
    reshape(line, node, wider=True)
    line.run(ms=20)
    nacks = line.count(Nack, "n", "p")
    line.send("r", Nack(STOCKS, ((1, 10),)))  # type: ignore[arg-type]
    line.run(ms=20)
    assert line.count(Nack, "n", "p") == nacks + 1
    assert line.ticks() == [5, 5]
    assert node.router.top(STOCKS) == 10, "the top of the stream is kept"


def test_a_router_that_is_not_wider_keeps_its_cache() -> None:
    line, node = fed()
    reshape(line, node, wider=False)
    line.send("r", Nack(STOCKS, ((1, 10),)))  # type: ignore[arg-type]
    line.run(ms=20)
    assert line.count(Nack, "n", "p") == 0
    assert line.ticks() == [5, 5]


def test_a_wider_router_keeps_the_unfiltered_knowledge_of_its_own_log() -> None:
    line, node = fed("p")
    reshape(line, node, wider=True)
    line.send("r", Nack(STOCKS, ((1, 10),)))  # type: ignore[arg-type]
    line.run(ms=20)
    assert line.log.reads == 0
    assert line.ticks() == [5, 5]


def test_a_wider_router_attaches_with_a_number_of_a_new_scope() -> None:
    line, node = fed()
    (before,) = {each.number for each in sent(line, Attach, "n", "p")}
    reshape(line, node, wider=True)
    line.run(ms=20)
    after = sent(line, Attach, "n", "p")[-1].number
    assert (scope_of(before), scope_of(after)) == (0, 1)
    assert not is_leaf_number(after)
    assert sent(line, Detach, "n", "p") == [Detach(STOCKS, before)]
    assert node.router.feeder(STOCKS) == "p"


def test_knowledge_ranges_of_an_older_scope_are_dropped_and_those_of_the_new_one_accepted() -> None:
    line, node = fed()
    reshape(line, node, wider=True)
    line.run(ms=20)
    node.router.receive(STOCKS, 2, knowledge_range(11, 20), first=True)
    node.router.receive(STOCKS, 2, knowledge_range(11, 20), True)
    assert node.router.top(STOCKS) == 10
    assert node.context.coverage_marks["knowledge of an older scope"] == 2
    new = sent(line, Attach, "n", "p")[-1].number
    node.router.receive(STOCKS, new, knowledge_range(11, 20), first=True)
    assert node.router.top(STOCKS) == 20


def test_an_attached_reply_of_an_older_scope_is_refused() -> None:
    line = Line("pn")
    line.nodes["n"].feeder = None  # it has no feeder, so the first that answers would be accepted
    line.attach()
    line.run(ms=20)
    node = line.nodes["n"]
    reshape(line, node, wider=True)
    node.router.attached("p", Attached(STOCKS, 2, 100))
    line._collect(node)
    assert node.router.feeder(STOCKS) is None
    assert sent(line, Detach, "n", "p") == [Detach(STOCKS, 2)]


def test_a_feed_that_starts_later_has_numbers_of_the_current_scope() -> None:
    line = Line("pn")
    reshape(line, line.nodes["n"], wider=True)
    line.attach()
    line.run(ms=20)
    assert {scope_of(each.number) for each in sent(line, Attach, "n", "p")} == {1}
    line.publish(knowledge_range(1, 10, event(5, 0)))
    line.run(ms=20)
    assert line.ticks() == [5]


def test_a_feed_whose_path_has_not_changed_continues() -> None:
    line, node = fed()
    reshape(line, node, wider=False)
    assert sent(line, Detach, "n", "p") == []


def test_a_feed_over_cells_of_another_shape_attaches_again() -> None:
    line, node = fed()
    node.shapes = (("p", shape(2)),)
    reshape(line, node, wider=False)
    line.run(ms=20)
    assert sent(line, Detach, "n", "p") == [Detach(STOCKS, 2)]
    last = sent(line, Attach, "n", "p")[-1]
    assert (last.number, last.shape_versions) == (4, (("p", shape(2)),))
    assert node.router.feeder(STOCKS) == "p"


def test_a_feed_from_a_broker_that_is_no_longer_on_the_path_ends() -> None:
    line, node = fed()
    node.feeder = None
    reshape(line, node, wider=False)
    assert node.router.feeder(STOCKS) is None
    assert sent(line, Detach, "n", "p") == [Detach(STOCKS, 2)]


def test_a_receiver_with_another_shape_version_is_refused() -> None:
    line = Line("p")
    line.nodes["p"].reshaped = {"r": (("p", shape(2)),)}
    line.attach()
    line.run(ms=20)
    assert line.received["r"] == [FeedUnavailable(STOCKS, 2, FeedUnavailableReason.SHAPE_MISMATCH)]


def test_a_receiver_is_notified_when_its_shape_version_becomes_different() -> None:
    line, node = fed("p")
    node.reshaped = {"r": (("p", shape(2)),)}
    reshape(line, node, wider=False)
    line.publish(knowledge_range(11, 20, event(15, 0)))
    line.run(ms=20)
    assert line.received["r"][-1] == FeedUnavailable(
        STOCKS, 2, FeedUnavailableReason.SHAPE_MISMATCH
    )
    assert line.ticks() == [5]


def test_a_feed_ends_when_its_receiver_refreshes_with_another_shape_version() -> None:
    line, node = fed("p")
    node.reshaped = {"r": ()}
    line.send(
        "r", Attach(STOCKS, 2, sent(line, Attach, "r", "p")[0].kind, "r", False, (("r", shape(2)),))
    )
    line.run(ms=5)
    line.publish(knowledge_range(11, 20, event(15, 0)))
    line.run(ms=20)
    assert line.received["r"][-1] == FeedUnavailable(
        STOCKS, 2, FeedUnavailableReason.SHAPE_MISMATCH
    )
    assert line.ticks() == [5]


def test_a_receiver_that_is_no_longer_beyond_the_router_is_notified(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    line, node = fed()
    monkeypatch.setattr(node, "may_feed", lambda *_: False)
    reshape(line, node, wider=False)
    line.publish(knowledge_range(11, 20, event(15, 0)))
    line.run(ms=20)
    assert line.received["r"][-1] == FeedUnavailable(STOCKS, 2, FeedUnavailableReason.NOT_NEARER)
    assert line.ticks() == [5]


def test_a_feed_moves_to_the_new_direction_of_its_pubend() -> None:
    line, node = fed()
    node.feeder = "elsewhere"
    node.context.now = line.now
    node.router.turn(STOCKS)
    line._collect(node)
    assert sent(line, Detach, "n", "p") == [Detach(STOCKS, 2)]
    assert sent(line, Attach, "n", "elsewhere")
    assert scope_of(sent(line, Attach, "n", "elsewhere")[0].number) == 0
