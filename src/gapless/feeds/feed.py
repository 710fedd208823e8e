"""A feed, seen by its receiver: who feeds it now, and whom to ask next (R7 to R9).

Whoever needs a pubend, a router or the subscriber role of a broker (its *leaf*), keeps one feeder. It
asks candidates in their order, each for a while, and begins again with growing pauses when none is
left. A feeder is given up when its session dies, when it says that it cannot feed, or when nothing
comes for too long. To a better candidate the feed moves only after that one has been there for a
while and has answered; until then the old feeder goes on.

A feeder also says whether it is fed over relays itself. Then it is worse than it looked, and that is
believed for a while; else a feed would go to and fro between two that are equally far from good.

Pieces are facts and are taken from any feeder, old or new; so moving loses and doubles nothing. There
is one exception: when more lies behind the receiver than before, silence that was told for less is
not true for all of it (R13). So the receiver raises its *scope*, which is a part of its attach
numbers, asks anew, and takes no pieces of an older scope.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from gapless.core.ids import BrokerId, CellId, PubendId
from gapless.core.limits import CELL_BROKERS_MAX, DELTA_MAX
from gapless.core.machine import Context, Timer
from gapless.core.parameters import microseconds
from gapless.core.ticks import Tick
from gapless.messages.streams import Attach, Attached, AttachKind, Detach, FeedUnavailable

__all__ = ["RELAYED", "Candidate", "Feed", "FeedListener", "is_leaf_number", "scope_of"]

_NUMBERS_PER_SCOPE: Final = 2**32
"""Attach numbers of one scope; a feed that asks a thousand times a second has enough for weeks."""


RELAYED: Final = (DELTA_MAX + 4) * CELL_BROKERS_MAX
"""From this rank on something on the way from the pubend is relayed; all else is better (R7)."""


class Candidate(NamedTuple):
    """A broker that may feed; a lower rank is better (R7's classes, and load shared inside of them)."""

    broker: BrokerId
    rank: int
    relayed: bool = False
    """Whether what it sends comes over relays."""


class FeedListener(Protocol):
    """Who is fed."""

    def feed_found(self, at: Tick) -> None:
        """There is a new feeder; it sends every tick above ``at``."""

    def feed_sent_up_to(self, at: Tick) -> None:
        """The feeder has sent everything up to ``at``."""

    def feed_lost(self) -> None:
        """There is no feeder."""


class _Trial(NamedTuple):
    """A candidate that was asked and has not answered."""

    candidate: Candidate
    number: int
    timer: Timer


def is_leaf_number(number: int) -> bool:
    """Say whether an attach number is of a leaf's feed; a router's numbers are even."""
    return bool(number & 1)


def scope_of(number: int) -> int:
    """Return the scope in which an attach number was given."""
    return number // _NUMBERS_PER_SCOPE


def _no_shapes(feeder: BrokerId) -> tuple[tuple[CellId, int], ...]:
    """A leaf is behind its cell in every shape."""
    del feeder
    return ()


class Feed:
    """One receiver's feed of one pubend."""

    def __init__(
        self,
        context: Context,
        pubend: PubendId,
        kind: AttachKind,
        receiver_name: str,
        listener: FeedListener,
        candidates: Callable[[], list[Candidate]],
        *,
        eager: bool = False,
        shape_versions: Callable[[BrokerId], tuple[tuple[CellId, int], ...]] = _no_shapes,
        scope: int = 0,
    ) -> None:
        self._context = context
        self._shape_versions = shape_versions
        self._shapes_sent: tuple[tuple[CellId, int], ...] = ()
        """The shapes of the cells between, as the last one was told who was asked."""
        self._pubend = pubend
        self._kind = kind
        self._name = receiver_name
        self._listener = listener
        self._candidates = candidates
        self._count = scope * _NUMBERS_PER_SCOPE
        self._oldest = self._count
        """Answers to questions with lower numbers are for a way that is no more (R13)."""
        self._numbers: dict[BrokerId, int] = {}
        """The attach number of each broker that was asked in the present session."""
        self._number = 0
        self._current: Candidate | None = None
        self._trial: _Trial | None = None
        self._untried: list[Candidate] = []
        self._pause_us = microseconds(ms=context.parameters.retry_ms)
        self._retry: Timer | None = None
        self._progress = context.now
        self._better_since: dict[BrokerId, int] = {}
        self._relayed_until: dict[BrokerId, int] = {}
        """Until when it is believed of a broker that it is fed over relays."""
        self._leaving = False
        """Whether any other feeder is better than the present one, which says nothing."""
        self._closed = False
        self.eager = eager
        self.relayed = False
        self._start()
        context.call_later(microseconds(ms=context.parameters.attach_refresh_ms), self._refresh)

    @property
    def feeder(self) -> BrokerId | None:
        """Who feeds now."""
        return None if self._current is None else self._current.broker

    @property
    def is_current(self) -> bool:
        """Whether the feeder is one that would be asked now, for the shape that it was told (R13)."""
        current = self._current
        return (
            current is not None
            and self._trial is None
            and any(each.broker == current.broker for each in self._candidates())
            and self._shapes_sent == self._shape_versions(current.broker)
        )

    def note_progress(self) -> None:
        """Something new came."""
        self._progress = self._context.now

    def set_eager(self, eager: bool) -> None:
        """Say whether silence has to come at once."""
        if eager != self.eager:
            self.eager = eager
            if self._current is not None:
                self._ask(self._current.broker, self._number)

    def renew(self, scope: int) -> None:
        """Ask anew and with new numbers, perhaps of a new scope: the way is another now (R13)."""
        for broker, number in self._open_ends():
            self._context.send(broker, Detach(self._pubend, number))
        self._stop_trial()
        self._numbers.clear()
        self._better_since.clear()
        self._count = max(self._count, scope * _NUMBERS_PER_SCOPE)
        self._oldest = self._count + 2
        self._pause_us = microseconds(ms=self._context.parameters.retry_ms)
        if self._current is not None:
            self._lose()
        else:
            self._start()

    def close(self) -> None:
        """End the feed."""
        self._closed = True
        for broker, number in self._open_ends():
            self._context.send(broker, Detach(self._pubend, number))
        self._stop_trial()
        self._current = None

    # --- what comes in -----------------------------------------------------------------------

    def attached(self, peer: BrokerId, message: Attached) -> None:
        """A broker says that it feeds us."""
        trial = self._trial
        if message.number < self._oldest:
            self._context.send(peer, Detach(self._pubend, message.number))
            return
        self._note_relayed(peer, relayed=message.relayed)
        if trial is not None and (peer, message.number) == (trial.candidate.broker, trial.number):
            self._answered(trial.candidate, message)
        elif peer == self.feeder:
            # a feeder has one attachment of a receiver, the last that was asked for
            self._number = max(self._number, message.number)
            self.relayed = message.relayed or self._find(peer).relayed
            self._listener.feed_sent_up_to(message.sent_up_to)
        elif self._current is None and not self._closed:
            self._context.mark("attached late")
            self._switch(self._find(peer), message)
        else:
            self._decline(peer, message)

    def _answered(self, candidate: Candidate, message: Attached) -> None:
        """Take the one that was asked, unless it turns out to be no better than the present one."""
        current = self._current
        better = self._find(candidate.broker).rank
        if current is None or self._leaving or better < self._find(current.broker).rank:
            self._switch(candidate, message)
            return
        self._context.mark("feeder is no better")
        self._stop_trial()
        self._decline(candidate.broker, message)
        self._try_next()

    def _decline(self, peer: BrokerId, message: Attached) -> None:
        self._numbers.pop(peer, None)
        self._context.send(peer, Detach(self._pubend, message.number))

    def _note_relayed(self, peer: BrokerId, *, relayed: bool) -> None:
        if relayed:
            trusted = microseconds(ms=4 * self._context.parameters.feed_switch_delay_ms)
            self._relayed_until[peer] = self._context.now + trusted
        else:
            self._relayed_until.pop(peer, None)

    def feed_unavailable(self, peer: BrokerId, message: FeedUnavailable) -> None:
        """A broker says that it cannot feed us."""
        trial = self._trial
        if trial is not None and (peer, message.number) == (trial.candidate.broker, trial.number):
            self._stop_trial()
            self._try_next()
        elif peer == self.feeder and message.number == self._number:
            self._lose()

    def session_opened(self) -> None:
        """Somebody can be asked who could not before."""
        self._pause_us = microseconds(ms=self._context.parameters.retry_ms)
        if self._current is None and self._trial is None:
            self._start()

    def session_closed(self, peer: BrokerId) -> None:
        """A broker cannot be reached any more."""
        self._better_since.pop(peer, None)
        self._numbers.pop(peer, None)
        if self._trial is not None and self._trial.candidate.broker == peer:
            self._stop_trial()
            self._try_next()
        if peer == self.feeder:
            self._lose()

    # --- asking ------------------------------------------------------------------------------

    def _start(self) -> None:
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        self._leaving = False
        self._untried = self._ranked()
        self._try_next()

    def _try_next(self) -> None:
        if self._closed or self._trial is not None:
            return
        if not self._untried:
            if self._current is None:
                self._retry_later()
            return
        candidate = self._untried.pop(0)
        number = self._number_for(candidate.broker)
        timer = self._context.call_later(
            microseconds(ms=self._context.parameters.attach_timeout_ms), self._give_up_trial
        )
        self._trial = _Trial(candidate, number, timer)
        self._ask(candidate.broker, number)

    def _number_for(self, broker: BrokerId) -> int:
        """Return the number to attach with: the same as before, since who was asked may still try.

        Over several hops an answer may take longer than the patience here; a new number would
        take back the question each time.
        """
        if broker not in self._numbers:
            self._count += 2
            self._numbers[broker] = self._count + (1 if self._kind is AttachKind.LEAF else 0)
        return self._numbers[broker]

    def _ask(self, broker: BrokerId, number: int) -> None:
        self._shapes_sent = self._shape_versions(broker)
        attach = Attach(self._pubend, number, self._kind, self._name, self.eager, self._shapes_sent)
        self._context.send(broker, attach)

    def _give_up_trial(self) -> None:
        self._stop_trial()
        self._try_next()

    def _stop_trial(self) -> None:
        if self._trial is not None:
            self._trial.timer.cancel()
            self._trial = None

    def _retry_later(self) -> None:
        if self._retry is None or self._retry.action is None:
            self._retry = self._context.call_later(self._pause_us, self._start)
            longest = microseconds(ms=self._context.parameters.retry_max_ms)
            self._pause_us = min(2 * self._pause_us, longest)

    # --- having and losing -------------------------------------------------------------------

    def _switch(self, candidate: Candidate, message: Attached) -> None:
        """Take a feeder that has answered, and only then let the old one go."""
        old, old_number = self.feeder, self._number
        self._stop_trial()
        self._untried = []
        self._leaving = False
        self._current, self._number = candidate, message.number
        self.relayed = message.relayed or candidate.relayed
        self._pause_us = microseconds(ms=self._context.parameters.retry_ms)
        self._progress = self._context.now
        if old is not None and old != candidate.broker:
            self._context.mark("feed moved")
            self._numbers.pop(old, None)
            self._context.send(old, Detach(self._pubend, old_number))
        self._listener.feed_found(message.sent_up_to)

    def _lose(self) -> None:
        self._current = None
        self._listener.feed_lost()
        self._start()

    def _refresh(self) -> None:
        if self._closed:
            return
        self._context.call_later(
            microseconds(ms=self._context.parameters.attach_refresh_ms), self._refresh
        )
        if self._current is None:
            return
        if self._context.now - self._progress > microseconds(ms=self._context.parameters.dct_ms):
            self._leave_silent_feeder()
        else:
            self._ask(self._current.broker, self._number)
            self._look_for_better()

    def _leave_silent_feeder(self) -> None:
        """Nothing came for too long: ask the others first, then this one again (R9)."""
        self._context.mark("feeder was silent")
        silent = self._current
        self._progress = self._context.now
        self._leaving = True
        candidates = self._ranked()
        others = [each for each in candidates if silent is None or each.broker != silent.broker]
        self._untried = others + [each for each in candidates if each not in others]
        self._try_next()

    def _look_for_better(self) -> None:
        if self._trial is not None or self._current is None:
            return
        present = self._find(self._current.broker).rank
        better = [each for each in self._ranked() if each.rank < present]
        since = {
            each.broker: self._better_since.get(each.broker, self._context.now) for each in better
        }
        self._better_since = since
        stable = self._context.now - microseconds(ms=self._context.parameters.feed_switch_delay_ms)
        ready = [each for each in better if since[each.broker] <= stable]
        if ready:
            self._untried = ready[:1]
            self._try_next()

    def _ranked(self) -> list[Candidate]:
        """Return the candidates, best first; worse are those known to be fed over relays."""
        now = self._context.now
        self._relayed_until = {
            broker: until for broker, until in self._relayed_until.items() if until > now
        }
        found = [
            each._replace(rank=each.rank + RELAYED)
            if each.rank < RELAYED and each.broker in self._relayed_until
            else each
            for each in self._candidates()
        ]
        return sorted(found, key=lambda candidate: candidate.rank)

    def _find(self, broker: BrokerId) -> Candidate:
        """Return a broker as a candidate; one that is none any more is worse than any that is."""
        found = [each for each in self._ranked() if each.broker == broker]
        return found[0] if found else Candidate(broker, 3 * RELAYED)

    def _open_ends(self) -> list[tuple[BrokerId, int]]:
        ends = [] if self._current is None else [(self._current.broker, self._number)]
        if self._trial is not None:
            ends.append((self._trial.candidate.broker, self._trial.number))
        return ends
