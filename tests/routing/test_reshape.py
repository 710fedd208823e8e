"""Streams when the tree around a router changes: scope, shapes, new numbers (R13)."""

from __future__ import annotations

from typing import Any

import pytest

from gapless.core.parameters import Parameters
from gapless.feeds.feed import is_leaf_number, scope_of
from gapless.messages.streams import (
    Attach,
    Attached,
    Detach,
    FeedUnavailable,
    FeedUnavailableReason,
    Nack,
)
from gapless.overlay.path_epochs import ViewDifference
from gapless.overlay.tree import TreeChange
from tests.overlay.small_world import neighbourhood_of
from tests.shape_versions import shape
from tests.stream.small_streams import BONDS, STOCKS, Line, Node, event, knowledge_range


def fed(names: str = "pn") -> tuple[Line, Node]:
    """Return a line whose last router feeds r and has a knowledge range cached."""
    line = Line(names)
    line.attach()
    line.run(ms=20)
    line.publish(knowledge_range(1, 10, event(5, 0)))
    line.run(ms=20)
    return line, line.nodes[line.last]


SHIFT = TreeChange(
    neighbourhood_of("k", "ij", "jk", "km"),
    neighbourhood_of("k", "ik", "jk", "km", i=2, j=2, k=2, ik=2, jk=2),
)
"""Cell k gains i, which lay behind j."""


def reshape(line: Line, node: Node, *, wider: bool) -> None:
    """Let a router take the step of k. The width: whether its pubends came through j."""
    node.context.now = line.now
    node.direction = "j" if wider else "m"
    node.router.reshape(SHIFT)
    node.router.reshaped()
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


def test_a_feed_over_edges_of_another_epoch_attaches_again() -> None:
    line, node = fed()
    node.epochs = (("n", "p", shape(2)),)
    reshape(line, node, wider=False)
    line.run(ms=20)
    assert sent(line, Detach, "n", "p") == [Detach(STOCKS, 2)]
    last = sent(line, Attach, "n", "p")[-1]
    assert (last.number, last.path_epochs) == (4, (("n", "p", shape(2)),))
    assert node.router.feeder(STOCKS) == "p"


def test_a_feed_from_a_broker_that_is_no_longer_on_the_path_ends() -> None:
    line, node = fed()
    node.feeder = None
    reshape(line, node, wider=False)
    assert node.router.feeder(STOCKS) is None
    assert sent(line, Detach, "n", "p") == [Detach(STOCKS, 2)]


# --- receivers that know another tree (RS-11) -----------------------------------------------------

OLDER = ViewDifference(outdated=("p", "r"))
NEWER = ViewDifference(missing=("r", "s"))
MIXED = ViewDifference(("p", "r"), ("r", "s"))
REFUSED = FeedUnavailable(STOCKS, 2, FeedUnavailableReason.SHAPE_MISMATCH)


def test_a_receiver_with_an_older_tree_is_sent_the_records_and_refused() -> None:
    line = Line("p")
    node = line.nodes["p"]
    node.differences = {"r": OLDER}
    line.attach()
    line.attach(number=4, pubend=BONDS)
    line.run(ms=20)
    other = FeedUnavailable(BONDS, 4, FeedUnavailableReason.SHAPE_MISMATCH)
    assert line.received["r"] == [REFUSED, other]
    assert node.pushed == [("r", ("p", "r"))], "once for all pubends of a packet"
    assert node.requested == []


def test_the_attach_of_a_receiver_with_a_newer_tree_is_answered_in_the_step() -> None:
    line = Line("p")
    node = line.nodes["p"]
    node.differences = {"r": NEWER}
    line.attach()
    line.run(ms=900)
    assert "r" not in line.received
    assert (node.pushed, node.requested) == ([], [("r", ("r", "s"))])
    node.differences = {}
    reshape(line, node, wider=False)
    line.run(ms=2)
    assert line.received["r"] == [Attached(STOCKS, 2, 0)]


def test_a_receiver_with_newer_and_older_records_is_sent_records_and_asked_for_others() -> None:
    line = Line("p")
    node = line.nodes["p"]
    node.differences = {"r": MIXED}
    line.attach()
    line.run(ms=20)
    assert "r" not in line.received
    assert (node.pushed, node.requested) == ([("r", ("p", "r"))], [("r", ("r", "s"))])


def test_a_deferred_attach_is_refused_when_the_records_do_not_come() -> None:
    line = Line("p")
    line.nodes["p"].differences = {"r": NEWER}
    line.attach()
    line.run(ms=1_000)
    line.attach(number=4, pubend=BONDS)
    line.run(ms=1_003)
    assert line.received["r"] == [REFUSED]
    line.run(ms=1_003)
    assert len(line.received["r"]) == 2
    reshape(line, line.nodes["p"], wider=False)
    line.run(ms=5)
    assert len(line.received["r"]) == 2, "they are forgotten"


def test_a_deferred_attach_ends_with_a_detach_and_with_its_session() -> None:
    line = Line("p")
    node = line.nodes["p"]
    node.differences = {"r": NEWER, "x": NEWER}
    line.attach()
    line.attach("x")
    line.run(ms=5)
    line.send("r", Detach(STOCKS, 2))
    line.run(ms=5)
    node.router.session_closed("x")
    node.differences = {}
    reshape(line, node, wider=False)
    line.run(ms=3_000)
    assert line.received == {}


def test_deferred_attaches_are_bounded() -> None:
    line = Line("p", Parameters(attachments_max=2))
    line.nodes["p"].differences = dict.fromkeys("rst", NEWER)
    for name in "rst":
        line.attach(name)
    line.attach("r")  # it attaches again
    line.run(ms=5)
    assert line.received == {"t": [FeedUnavailable(STOCKS, 2, FeedUnavailableReason.LIMIT)]}


def test_a_receiver_is_notified_when_the_router_steps_before_it() -> None:
    line, node = fed("p")
    node.differences = {"r": OLDER}
    reshape(line, node, wider=False)
    line.publish(knowledge_range(11, 20, event(15, 0)))
    line.run(ms=20)
    assert line.received["r"][-1] == REFUSED
    assert node.pushed == [("r", ("p", "r"))]
    assert line.ticks() == [5]


def test_a_feed_ends_when_its_receiver_refreshes_with_other_epochs() -> None:
    line, node = fed("p")
    node.differences = {"r": NEWER}
    line.attach()
    line.run(ms=5)
    line.publish(knowledge_range(11, 20, event(15, 0)))
    line.run(ms=20)
    assert line.ticks() == [5]
    node.differences = {}
    reshape(line, node, wider=False)
    line.run(ms=5)
    assert line.received["r"][-1] == Attached(STOCKS, 2, 20)


# --- a feed found after a step (RS-11) ------------------------------------------------------------


def test_the_tick_of_a_new_feeder_is_sent_to_all_receivers_at_once() -> None:
    line = Line("pmn")
    line.attach()
    line.run(ms=20)
    node = line.nodes["m"]
    line.cuts.add(("p", "m"))
    line.publish(knowledge_range(1, 10, event(5, 0)))
    line.run(ms=5)
    line.cuts.clear()
    before = len(line.received["r"])
    node.epochs = (("m", "p", shape(2)),)
    reshape(line, node, wider=False)
    line.run(ms=5)
    assert line.received["r"][before:] == [Attached(STOCKS, 2, 10)], "through n, without a timer"


# --- the path -------------------------------------------------------------------------------------


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
