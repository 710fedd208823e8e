"""A feed and its candidates: which one is tried, and when a better one replaces it (R8, R9)."""

from __future__ import annotations

from typing import Any

from gapless.core.context import Context, Identity
from gapless.core.ids import PubendId
from gapless.core.parameters import DEFAULTS, microseconds
from gapless.feeds.feed import RELAYED, Candidate, Feed
from gapless.feeds.feed_state import FeedState
from gapless.messages.overlay import PathEpochs, ShapeVersion
from gapless.messages.streams import (
    Attach,
    Attached,
    AttachKind,
    Detach,
    FeedUnavailable,
    FeedUnavailableReason,
)

P = PubendId("P")
REFRESH_MS = DEFAULTS.attach_refresh_ms
STABLE_MS = DEFAULTS.feed_switch_delay_ms


class Table:
    """One feed, the candidates that a test gives it, and the messages that it sends to them."""

    def __init__(self, *candidates: Candidate) -> None:
        self.found = list(candidates)
        self.epochs: dict[str, PathEpochs] = {}
        self.context = Context(Identity("me", "mine", 1), DEFAULTS)
        self.sent: list[tuple[str, Any]] = []
        self.fed_at: list[int] = []
        self.losses = 0
        self.feed = Feed(self.context, P, AttachKind.CELL, "mine", self, self)
        self._collect()

    # the paths
    def candidates(self, pubend: PubendId) -> list[Candidate]:
        assert pubend == P
        return self.found

    def is_sealed(self, pubend: PubendId) -> bool:
        """Return False: no pubend is closed here."""
        del pubend
        return False

    def leaf_candidates(self, pubend: PubendId) -> list[Candidate]:
        raise NotImplementedError(f"no leaf is fed with {pubend}")

    def path_epochs(self, feeder: str) -> PathEpochs:
        return self.epochs.get(feeder, ())

    # the receiver
    after = None

    def feed_found(self, at: int, position: object) -> None:
        del position
        self.fed_at.append(at)

    def feed_sent_up_to(self, at: int) -> bool:
        is_new = at > max(self.fed_at, default=0)
        self.fed_at.append(at)
        return is_new

    def feed_lost(self) -> None:
        self.losses += 1

    # what a test does
    def last_attached(self) -> str:
        """Return the broker that received the last Attach."""
        return [peer for peer, message in self.sent if isinstance(message, Attach)][-1]

    def answer(self, peer: str, *, at: int = 0, relayed: bool = False) -> None:
        """Let a broker answer the last Attach to it."""
        number = [each.number for to, each in self.sent if to == peer and isinstance(each, Attach)][
            -1
        ]
        self.feed.attached(peer, Attached(P, number, at, relayed))
        self._collect()

    def refuse(self, peer: str) -> None:
        """Let a broker reply that it has no feed."""
        number = [each.number for to, each in self.sent if to == peer and isinstance(each, Attach)][
            -1
        ]
        self.feed.feed_unavailable(peer, FeedUnavailable(P, number, FeedUnavailableReason.NO_FEED))
        self._collect()

    def run(self, ms: int, *, relayed: bool = False) -> None:
        """Let time pass; the feeder sends data and answers every refresh."""
        for _ in range(ms // 10):
            self.context.now += microseconds(ms=10)
            self.feed.note_progress()
            before = len(self.sent)
            self.context.run_timers()
            self._collect()
            feeder = self.feed.feeder
            if feeder and any(
                to == feeder and isinstance(each, Attach) for to, each in self.sent[before:]
            ):
                self.answer(feeder, relayed=relayed)

    def wait_for_attach(self, peer: str, ms: int, *, relayed: bool = False) -> None:
        """Let time pass until a broker receives an Attach, at most so long."""
        for _ in range(ms // 10):
            if self.last_attached() == peer:
                return
            self.run(10, relayed=relayed)
        raise AssertionError(f"{peer} received no Attach within {ms} ms")

    def detached(self) -> list[str]:
        """Return the brokers that received a Detach."""
        return [peer for peer, message in self.sent if isinstance(message, Detach)]

    def _collect(self) -> None:
        self.sent += [(peer, each) for peer, sent in self.context.take_messages() for each in sent]


def test_the_best_candidate_is_tried_first_and_the_next_when_it_has_no_feed() -> None:
    table = Table(Candidate("a", 0), Candidate("b", 1))
    assert table.last_attached() == "a"
    table.refuse("a")
    assert table.last_attached() == "b"
    table.answer("b", at=7)
    assert (table.feed.feeder, table.fed_at) == ("b", [7])


def test_a_better_candidate_is_tried_after_the_feed_switch_delay() -> None:
    table = Table(Candidate("b", 1))
    table.answer("b")
    table.found.insert(0, Candidate("a", 0))
    table.run(STABLE_MS)
    assert table.feed.feeder == "b"
    table.wait_for_attach("a", 2 * REFRESH_MS)
    assert table.detached() == [], "the old feeder stays until the new one has answered"
    table.answer("a")
    assert table.feed.feeder == "a"
    assert table.detached() == ["b"]
    assert table.losses == 0


def test_a_better_candidate_that_disappears_within_the_delay_is_not_tried() -> None:
    table = Table(Candidate("b", 1))
    table.answer("b")
    for _ in range(5):
        table.found.insert(0, Candidate("a", 0))
        table.run(STABLE_MS // 2)
        table.feed.session_closed("a")
        table.found.pop(0)
        table.run(REFRESH_MS)
    assert table.last_attached() == "b"


def test_a_feeder_fed_over_relays_is_worse_than_one_that_is_not() -> None:
    # R7: classes (a) to (c) need a feed without `relayed`
    table = Table(Candidate("a", 0), Candidate("b", 1))
    table.answer("a", relayed=True)
    assert table.feed.relayed
    table.wait_for_attach("b", STABLE_MS + 2 * REFRESH_MS, relayed=True)
    table.answer("b")
    assert table.feed.feeder == "b"
    assert not table.feed.relayed


def test_a_candidate_that_turns_out_to_be_no_better_does_not_replace_the_feeder() -> None:
    # R9: the values of Attached are compared with the current feeder
    table = Table(Candidate("b", 1))
    table.answer("b")
    table.found.insert(0, Candidate("a", 0))
    table.wait_for_attach("a", STABLE_MS + 2 * REFRESH_MS)
    table.answer("a", relayed=True)
    assert table.feed.feeder == "b"
    assert table.detached() == ["a"]
    assert table.context.coverage_marks["feeder is no better"] == 1


def test_the_relayed_flag_of_a_broker_expires() -> None:
    # R9: 4 x feed_switch_delay_ms; a broker that is not fed by it gets no updates
    table = Table(Candidate("b", 1))
    table.answer("b")
    table.found.insert(0, Candidate("a", 0))
    table.wait_for_attach("a", STABLE_MS + 2 * REFRESH_MS)
    table.answer("a", relayed=True)
    last_attached = [peer for peer, each in table.sent if isinstance(each, Attach)].count("a")
    table.run(4 * STABLE_MS)
    assert [peer for peer, each in table.sent if isinstance(each, Attach)].count(
        "a"
    ) == last_attached
    table.wait_for_attach("a", STABLE_MS + 2 * REFRESH_MS)
    table.answer("a")
    assert table.feed.feeder == "a"


def test_over_relays_a_nearer_feeder_is_still_the_better_one() -> None:
    table = Table(Candidate("far", RELAYED + 1, relayed=True))
    table.answer("far")
    assert table.feed.relayed
    table.found.insert(0, Candidate("near", RELAYED, relayed=True))
    table.wait_for_attach("near", STABLE_MS + 2 * REFRESH_MS)
    table.answer("near")
    assert table.feed.feeder == "near"


def test_a_silent_feeder_is_replaced_by_any_other() -> None:
    # R9: dct_ms longer than usual without data; a new feeder may be of an idle stream
    table = Table(Candidate("a", 0), Candidate("b", RELAYED, relayed=True))
    table.answer("a")
    table.context.now += microseconds(ms=DEFAULTS.dct_ms + DEFAULTS.idle_silence_max_ms)
    table.context.now += microseconds(ms=REFRESH_MS)
    table.context.run_timers()
    table._collect()
    assert table.last_attached() == "b"
    table.answer("b")
    assert table.feed.feeder == "b"
    assert table.context.coverage_marks["feeder was silent"] == 1


def test_a_late_attached_reply_is_answered_with_detach_if_there_is_a_feeder() -> None:
    # R8: an unexpected Attached is accepted if there is no feeder, else answered by Detach
    table = Table(Candidate("a", 0), Candidate("b", 1))
    table.context.now += microseconds(ms=DEFAULTS.attach_timeout_ms)
    table.context.run_timers()
    table._collect()
    assert table.last_attached() == "b"
    table.answer("b")
    table.answer("a")
    assert table.feed.feeder == "b"
    assert table.detached() == ["a"]


def test_a_late_attached_reply_is_accepted_if_there_is_no_feeder() -> None:
    table = Table(Candidate("a", 0))
    table.context.now += microseconds(ms=DEFAULTS.attach_timeout_ms)
    table.context.run_timers()
    table._collect()
    table.answer("a")
    assert table.feed.feeder == "a"
    assert table.context.coverage_marks["late Attached accepted"] == 1


def test_a_feeder_that_replied_late_is_kept_after_the_retry_pause() -> None:
    # R9: the feed does not detach its feeder before another broker has replied
    table = Table(Candidate("a", 0))
    table.context.now += microseconds(ms=DEFAULTS.attach_timeout_ms)
    table.context.run_timers()
    table._collect()
    table.answer("a")
    table.run(DEFAULTS.retry_max_ms)
    assert table.detached() == []
    assert table.feed.state is FeedState.FED
    assert table.losses == 0


def refreshes(table: Table, s: int, *, silence_every_ms: int) -> list[int]:
    """Let time pass on an idle stream; return the times of the refreshes in seconds."""
    found = []
    for step in range(s * 10):
        table.context.now += microseconds(ms=100)
        if step * 100 % silence_every_ms == 0:
            table.feed.note_progress()
        before = len(table.sent)
        table.context.run_timers()
        table._collect()
        if any(isinstance(each, Attach) for _, each in table.sent[before:]):
            found.append(table.context.now // 1_000_000)
            table.answer("a")
    return found


def test_a_feed_of_an_idle_stream_is_refreshed_seldom_and_keeps_its_feeder() -> None:
    # R8, R9: silence comes every ten seconds, which is longer than dct_ms
    table = Table(Candidate("a", 0), Candidate("b", 1))
    table.answer("a")
    refreshes(table, 60, silence_every_ms=10_000)
    assert len(refreshes(table, 100, silence_every_ms=10_000)) <= 15
    assert table.feed.feeder == "a"
    assert "feeder was silent" not in table.context.coverage_marks


def test_a_feed_of_a_stream_in_use_is_refreshed_every_attach_refresh_ms() -> None:
    table = Table(Candidate("a", 0))
    table.answer("a")
    found = refreshes(table, 20, silence_every_ms=500)
    assert 8 <= len(found) <= 14


def test_the_feeder_of_a_stream_in_use_is_left_after_about_dct_ms() -> None:
    table = Table(Candidate("a", 0), Candidate("b", 1))
    table.answer("a")
    for _ in range(100):
        table.run(100)  # ranges come all the time
    table.context.now += microseconds(ms=DEFAULTS.dct_ms + REFRESH_MS)
    table.context.run_timers()
    assert table.context.coverage_marks["feeder was silent"] == 1


def test_a_long_fault_does_not_make_a_feed_patient_for_minutes() -> None:
    # the disk of the PHB stood for five minutes; no stream is usually idle for so long
    table = Table(Candidate("a", 0))
    table.answer("a")
    table.context.now += microseconds(s=300)
    table.feed.note_progress()
    table.found.append(Candidate("b", 1))
    refreshes(table, 120, silence_every_ms=1_000_000)
    assert table.context.coverage_marks["feeder was silent"] >= 1


# --- steps of the tree (RS-11) --------------------------------------------------------------------

EDGE = (("mine", "yours", ShapeVersion(count=2)),)


def fed_and_trying() -> Table:
    """Return a feed that is fed by b and tries a."""
    table = Table(Candidate("b", 1))
    table.answer("b")
    table.found.insert(0, Candidate("a", 0))
    table.run(STABLE_MS)
    table.wait_for_attach("a", 2 * REFRESH_MS)
    table.sent.clear()
    return table


def step(table: Table) -> list[tuple[str, Any]]:
    table.feed.follow_tree(0)
    table._collect()
    return table.sent


def test_a_feed_over_untouched_edges_sends_nothing_after_a_step() -> None:
    table = fed_and_trying()
    assert step(table) == []
    assert table.feed.state is FeedState.FED_TRYING


def test_a_trial_over_touched_edges_is_repeated_and_the_feeder_is_kept() -> None:
    table = fed_and_trying()
    table.epochs["a"] = EDGE
    ((peer, attach),) = step(table)
    assert (peer, attach.path_epochs) == ("a", EDGE)
    assert table.feed.feeder == "b"
    table.answer("a")
    assert table.feed.feeder == "a"


def test_a_feed_over_touched_edges_attaches_again_at_once() -> None:
    table = Table(Candidate("b", 1))
    table.answer("b")
    table.sent.clear()
    table.epochs["b"] = EDGE
    (_, detach), (_, attach) = step(table)
    assert isinstance(detach, Detach)
    assert attach.path_epochs == EDGE
    assert attach.number > detach.number


def test_a_feed_that_waits_to_try_again_tries_at_once_after_a_step() -> None:
    table = Table(Candidate("b", 1))
    for _ in range(4):
        table.refuse("b")
        table.run(1_000)
    table.refuse("b")
    assert table.feed.state is FeedState.RETRYING
    table.sent.clear()
    ((peer, attach),) = step(table)
    assert (peer, type(attach)) == ("b", Attach)
