"""The feed of one receiver: it has one feeder of a pubend, and changes to another (R7 to R9).

A receiver is a router or the subscriber side of a broker (its *leaf*). A feed sends Attach to its
candidates in the order of their ranks, and waits ``attach_timeout_ms`` for each. When no candidate
is left it starts again after a growing pause. A feed gives its feeder up when the session with the
feeder ends, when the feeder cannot feed, or when nothing arrives for ``dct_ms`` longer than is
usual. It changes to a better candidate only after that candidate was reachable for a while and has
replied. Until then the old feeder continues. The states and the table are in :mod:`.feed_state`.

A feeder that replies that it is fed over relays ranks lower for a while. Otherwise a feed would
change back and forth between two candidates that are equally bad.

Knowledge ranges are facts. A receiver accepts them from any feeder, old or new, so a change of
feeder loses nothing and repeats nothing. There is one exception: when more SHBs are behind the
receiver than before, silence that was sent for fewer is not true for all of them (RS-37). Then the
receiver raises its *scope*, a part of its attach numbers, attaches again, and drops ranges of an
older scope.

After a step of the tree a feed whose feeder is still on the path, over edges of the same epochs,
continues. Every other feed attaches again at once (RS-11).
"""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol

from gapless.core.context import Context, Timer
from gapless.core.ids import BrokerId, PubendId
from gapless.core.parameters import microseconds
from gapless.core.ticks import Tick
from gapless.feeds.feed_state import NEXT_STATES, FeedInput, FeedState
from gapless.feeds.paths import RELAYED, Candidate, FeedPaths
from gapless.messages.overlay import PathEpochs
from gapless.messages.streams import (
    Attach,
    Attached,
    AttachKind,
    BestEffortPosition,
    Detach,
    FeedUnavailable,
)

__all__ = [
    "RELAYED",
    "Candidate",
    "Feed",
    "FeedListener",
    "FeedPaths",
    "is_leaf_number",
    "scope_of",
]

_NUMBERS_PER_SCOPE: Final = 2**32
"""The attach numbers of one scope: enough for weeks at a thousand requests a second."""

PATIENCE: Final = 3
"""A feeder is silent if nothing comes for so many times as long as lately, and ``dct_ms`` (R9). The
intervals of an idle stream double, and a silence may be lost."""


class FeedListener(Protocol):
    """The receiver of a feed."""

    @property
    def after(self) -> BestEffortPosition | None:
        """The position in a best-effort pubend up to which the receiver has everything."""

    def feed_found(self, at: Tick, position: BestEffortPosition | None) -> None:
        """The feed has a new feeder, which sends what is above ``at``, or ``position`` (RS-14)."""

    def feed_sent_up_to(self, at: Tick) -> bool:
        """The feeder has sent everything up to ``at``; return whether some of it did not arrive."""

    def feed_lost(self) -> None:
        """The feed has no feeder."""


class _Trial(NamedTuple):
    """A candidate that has not replied to an Attach."""

    candidate: Candidate
    number: int
    timer: Timer


def is_leaf_number(number: int) -> bool:
    """Return whether an attach number is of a leaf's feed; a router's numbers are even."""
    return bool(number & 1)


def scope_of(number: int) -> int:
    """Return the scope of an attach number."""
    return number // _NUMBERS_PER_SCOPE


class Feed:
    """One receiver's feed of one pubend."""

    def __init__(
        self,
        context: Context,
        pubend: PubendId,
        kind: AttachKind,
        receiver_name: str,
        listener: FeedListener,
        paths: FeedPaths,
        *,
        eager: bool = False,
        scope: int = 0,
    ) -> None:
        self._context = context
        self._paths = paths
        self._is_leaf = kind is AttachKind.LEAF
        self._pubend = pubend
        self._kind = kind
        self._name = receiver_name
        self._listener = listener
        self._count = scope * _NUMBERS_PER_SCOPE
        self._oldest = self._count
        """Replies with lower numbers are for a path that has changed since (R13)."""
        self._epochs_sent: dict[BrokerId, PathEpochs] = {}
        """The path epochs in the last Attach to each broker, if there are any."""
        self._numbers: dict[BrokerId, int] = {}
        """The attach number of each broker in the current session with it."""
        self._number = 0
        self._state = FeedState.RETRYING
        self._current: Candidate | None = None
        self._trial: _Trial | None = None
        self._untried: list[Candidate] = []
        self._pause_us = microseconds(ms=context.parameters.retry_ms)
        self._retry: Timer | None = None
        self._progress = context.now
        self._gap_us = context.parameters.idle_us // PATIENCE
        """About how long there was no progress lately: an idle stream moves seldom (R30)."""
        self._missing_since: int | None = None
        """Since when it is known that something from the feeder did not arrive, and nothing has."""
        self._better_since: dict[BrokerId, int] = {}
        self._relayed_until: dict[BrokerId, int] = {}
        """Until when a broker counts as fed over relays."""
        self.eager = eager
        self.relayed = False
        self._rank_and_try(FeedInput.START)
        self._refresh_us = microseconds(ms=context.parameters.attach_refresh_ms)
        self._refresh_timer = context.call_about(self._refresh_us, self._refresh)

    @property
    def feeder(self) -> BrokerId | None:
        """The current feeder."""
        return None if self._current is None else self._current.broker

    @property
    def number(self) -> int:
        """The attach number at the feeder."""
        return self._number

    @property
    def state(self) -> FeedState:
        """The state of the feed."""
        return self._state

    def note_progress(self) -> None:
        """Note that new knowledge has arrived."""
        now = self._context.now
        # a longer pause is a fault, and must not be expected again
        pause_us = min(now - self._progress, self._context.parameters.longest_idle_us)
        self._gap_us = max(pause_us, self._gap_us // 2)
        self._progress = now
        self._missing_since = None

    def note_received(self) -> None:
        """Note that something has arrived that was missing."""
        self._missing_since = None

    def set_eager(self, eager: bool) -> None:
        """Set whether silence must be sent soon."""
        if eager != self.eager:
            self.eager = eager
            if self._current is not None:
                self._send_attach(self._current.broker, self._number)

    def follow_tree(self, scope: int) -> None:
        """Attach again after a step of the tree if the step has touched the path (RS-11)."""
        feeder, trial = self.feeder, self._trial
        if feeder is None or not self._is_untouched(feeder):
            self.renew(scope)
        elif trial is not None and not self._is_untouched(trial.candidate.broker):
            self._send_attach(trial.candidate.broker, trial.number)

    def renew(self, scope: int) -> None:
        """Attach again with new numbers, perhaps of a new scope (R13, RS-37)."""
        self._detach_all()
        self._numbers.clear()
        self._epochs_sent.clear()
        self._better_since.clear()
        self._count = max(self._count, scope * _NUMBERS_PER_SCOPE)
        self._oldest = self._count + 2
        self._pause_us = microseconds(ms=self._context.parameters.retry_ms)
        if self._current is not None:
            self._lose(FeedInput.RENEW)
        else:
            self._rank_and_try(FeedInput.RENEW)

    def close(self) -> None:
        """End the feed."""
        self._enter(FeedInput.CLOSE, FeedState.CLOSED)
        self._stop_retry()
        self._detach_all()
        self._current = None

    def _enter(self, cause: FeedInput, state: FeedState) -> None:
        """Change the state, and assert that the table allows it."""
        allowed = NEXT_STATES.get((self._state, cause), ())
        assert state in allowed, f"{cause} leads from {self._state} to {state}"
        self._state = state

    # --- inputs ------------------------------------------------------------------------------

    def attached(self, peer: BrokerId, message: Attached) -> None:
        """A broker feeds this receiver."""
        trial = self._trial
        if message.number < self._oldest:
            self._enter(FeedInput.STALE_ATTACHED, self._state)
            self._context.send(peer, Detach(self._pubend, message.number))
            return
        self._note_relayed(peer, relayed=message.relayed)
        if trial is not None and (peer, message.number) == (trial.candidate.broker, trial.number):
            self._trial_attached(trial.candidate, message)
        elif peer == self.feeder:
            self._enter(FeedInput.FEEDER_ATTACHED, self._state)
            # a feeder keeps one attachment of a receiver, the last requested one
            self._number = max(self._number, message.number)
            self.relayed = message.relayed or self._find(peer).relayed
            if self._listener.feed_sent_up_to(message.sent_up_to):
                self._note_missing()
        elif self._state in {FeedState.RETRYING, FeedState.TRYING}:
            self._context.mark("late Attached accepted")
            self._switch(FeedInput.OTHER_ATTACHED, self._find(peer), message)
        else:
            self._enter(FeedInput.OTHER_ATTACHED, self._state)
            self._decline(peer, message)

    def _note_missing(self) -> None:
        """The stream is not idle, but nothing arrives: look again soon (R9)."""
        if self._missing_since is None:
            self._missing_since = self._context.now
            self._refresh_timer.cancel()
            self._plan_refresh(is_idle=False)

    def _trial_attached(self, candidate: Candidate, message: Attached) -> None:
        """Change to the tried candidate, unless it is no better than the current feeder."""
        current, cause = self._current, FeedInput.TRIAL_ATTACHED
        rank = self._find(candidate.broker).rank
        if (
            current is None
            or self._state is FeedState.FED_LEAVING
            or rank < self._find(current.broker).rank
        ):
            self._switch(cause, candidate, message)
            return
        self._context.mark("feeder is no better")
        self._stop_trial()
        self._decline(candidate.broker, message)
        self._try_next(cause)

    def _decline(self, peer: BrokerId, message: Attached) -> None:
        self._forget_number(peer)
        self._context.send(peer, Detach(self._pubend, message.number))

    def _note_relayed(self, peer: BrokerId, *, relayed: bool) -> None:
        if relayed:
            trusted = microseconds(ms=4 * self._context.parameters.feed_switch_delay_ms)
            self._relayed_until[peer] = self._context.now + trusted
        else:
            self._relayed_until.pop(peer, None)

    def feed_unavailable(self, peer: BrokerId, message: FeedUnavailable) -> None:
        """A broker cannot feed this receiver."""
        trial = self._trial
        if trial is not None and (peer, message.number) == (trial.candidate.broker, trial.number):
            self._trial_failed()
        elif peer == self.feeder and message.number == self._number:
            self._lose(FeedInput.FEEDER_LOST)

    def session_opened(self) -> None:
        """A peer session has opened: try the candidates again if there is no feeder."""
        self._pause_us = microseconds(ms=self._context.parameters.retry_ms)
        if self._state is FeedState.RETRYING:
            self._rank_and_try(FeedInput.SESSION_OPENED)

    def session_closed(self, peer: BrokerId) -> None:
        """A peer session has closed."""
        self._better_since.pop(peer, None)
        self._forget_number(peer)
        if self._trial is not None and self._trial.candidate.broker == peer:
            self._trial_failed()
        if peer == self.feeder:
            self._lose(FeedInput.FEEDER_LOST)

    # --- trials ------------------------------------------------------------------------------

    def _retry_due(self) -> None:
        self._rank_and_try(FeedInput.RETRY_TIMER)

    def _rank_and_try(self, cause: FeedInput) -> None:
        """Rank the candidates again and try the first, unless a trial is pending."""
        self._stop_retry()
        if self._state is not FeedState.CLOSED:
            self._untried = self._ranked()
            self._try_next(cause)

    def _try_next(self, cause: FeedInput, *, leaving: bool = False) -> None:
        """Try the next untried candidate; retry later if none is left and there is no feeder."""
        if self._trial is None and self._untried:
            self._try(self._untried.pop(0))
        is_trying = self._trial is not None
        if self._current is None:
            self._enter(cause, FeedState.TRYING if is_trying else FeedState.RETRYING)
            if not is_trying:
                self._retry_later()
        elif leaving:
            self._enter(cause, FeedState.FED_LEAVING)
        else:
            self._enter(cause, FeedState.FED_TRYING if is_trying else FeedState.FED)

    def _try(self, candidate: Candidate) -> None:
        number = self._number_for(candidate.broker)
        timer = self._context.call_later(
            microseconds(ms=self._context.parameters.attach_timeout_ms), self._trial_failed
        )
        self._trial = _Trial(candidate, number, timer)
        self._send_attach(candidate.broker, number)

    def _number_for(self, broker: BrokerId) -> int:
        """Return the attach number for a broker: the same throughout a session.

        Over several hops a reply may take longer than this feed waits. A new number would cancel
        the request each time.
        """
        if broker not in self._numbers:
            self._count += 2
            self._numbers[broker] = self._count + (1 if self._is_leaf else 0)
        return self._numbers[broker]

    def _forget_number(self, broker: BrokerId) -> None:
        """The broker has no attachment of this feed any more."""
        self._numbers.pop(broker, None)
        self._epochs_sent.pop(broker, None)

    def _send_attach(self, broker: BrokerId, number: int) -> None:
        epochs = self._path_epochs(broker)
        if epochs:
            self._epochs_sent[broker] = epochs
        else:
            self._epochs_sent.pop(broker, None)
        pubend, kind, after = self._pubend, self._kind, self._listener.after
        attach = Attach(pubend, number, kind, self._name, self.eager, epochs, after)
        self._context.send(broker, attach)

    def _path_epochs(self, feeder: BrokerId) -> PathEpochs:
        """Return the path epochs for an Attach; a leaf is behind its cell in every tree."""
        return () if self._is_leaf else self._paths.path_epochs(feeder)

    def _is_untouched(self, broker: BrokerId) -> bool:
        """Return whether a broker is a candidate, over edges of the epochs that it was sent."""
        sent = self._epochs_sent.get(broker, ())
        return sent == self._path_epochs(broker) and any(
            each.broker == broker for each in self._ranked()
        )

    def _trial_failed(self) -> None:
        """Try the next candidate: this one cannot feed, or did not reply."""
        self._stop_trial()
        self._try_next(FeedInput.TRIAL_FAILED, leaving=self._state is FeedState.FED_LEAVING)

    def _stop_trial(self) -> None:
        if self._trial is not None:
            self._trial.timer.cancel()
            self._trial = None

    def _retry_later(self) -> None:
        assert self._retry is None, "the retry timer is armed once"
        self._retry = self._context.call_later(self._pause_us, self._retry_due)
        longest = microseconds(ms=self._context.parameters.retry_max_ms)
        self._pause_us = min(2 * self._pause_us, longest)

    def _stop_retry(self) -> None:
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None

    # --- the feeder --------------------------------------------------------------------------

    def _switch(self, cause: FeedInput, candidate: Candidate, message: Attached) -> None:
        """Change to a feeder that has replied, and then detach the old one."""
        old, old_number = self.feeder, self._number
        self._stop_trial()
        self._stop_retry()
        self._untried = []
        self._enter(cause, FeedState.FED)
        self._current, self._number = candidate, message.number
        self.relayed = message.relayed or candidate.relayed
        self._pause_us = microseconds(ms=self._context.parameters.retry_ms)
        self._progress, self._missing_since = self._context.now, None
        if old is not None and old != candidate.broker:
            self._context.mark("feed moved")
            self._forget_number(old)
            self._context.send(old, Detach(self._pubend, old_number))
        self._listener.feed_found(message.sent_up_to, message.at)

    def _lose(self, cause: FeedInput) -> None:
        """Drop the feeder and try the candidates; the listener may close the feed meanwhile."""
        self._current = None
        self._listener.feed_lost()
        self._rank_and_try(cause)

    def _refresh(self) -> None:
        if self._state is FeedState.CLOSED:
            return
        # a sealed stream is silent for ever: what is missing of it shows in the feeder's replies
        is_sealed = self._paths.is_sealed(self._pubend)
        silent_us = 0 if is_sealed else self._context.now - self._progress
        self._plan_refresh(
            is_idle=is_sealed or 2 * max(silent_us, self._gap_us) >= self._refresh_us
        )
        if self._current is None:
            return
        dct_us, missing = microseconds(ms=self._context.parameters.dct_ms), self._missing_since
        is_missing = missing is not None and self._context.now - missing > dct_us
        if is_missing or silent_us > dct_us + PATIENCE * self._gap_us:
            self._leave_silent_feeder()
        else:
            self._send_attach(self._current.broker, self._number)
            self._look_for_better(self._current.broker)

    def _plan_refresh(self, *, is_idle: bool) -> None:
        """Wait for the next refresh: ever longer while the stream is idle and the feeder is kept."""
        parameters = self._context.parameters
        shortest = microseconds(ms=parameters.attach_refresh_ms)
        longest = max(shortest, parameters.idle_us)
        is_calm = is_idle and self._state is FeedState.FED
        self._refresh_us = min(2 * self._refresh_us, longest) if is_calm else shortest
        self._refresh_timer = self._context.call_about(self._refresh_us, self._refresh)

    def _leave_silent_feeder(self) -> None:
        """Try the other candidates, then the feeder again: it was silent for too long (R9)."""
        self._context.mark("feeder was silent")
        self._progress, self._missing_since = self._context.now, None
        candidates = self._ranked()
        others = [each for each in candidates if each.broker != self.feeder]
        self._untried = others + [each for each in candidates if each not in others]
        self._try_next(FeedInput.REFRESH_TIMER, leaving=True)

    def _look_for_better(self, feeder: BrokerId) -> None:
        """Try a candidate of better rank than the feeder that was reachable for long enough."""
        if self._trial is not None:
            return
        ranked = self._ranked()
        present = next((each.rank for each in ranked if each.broker == feeder), 3 * RELAYED)
        better = [each for each in ranked if each.rank < present]
        since = {
            each.broker: self._better_since.get(each.broker, self._context.now) for each in better
        }
        self._better_since = since
        stable = self._context.now - microseconds(ms=self._context.parameters.feed_switch_delay_ms)
        ready = [each for each in better if since[each.broker] <= stable]
        if ready:
            self._untried = ready[:1]
            self._try_next(FeedInput.REFRESH_TIMER, leaving=self._state is FeedState.FED_LEAVING)

    # --- candidates --------------------------------------------------------------------------

    def _ranked(self) -> list[Candidate]:
        """Return the candidates, best first; those known to be fed over relays rank lower."""
        now, paths = self._context.now, self._paths
        find = paths.leaf_candidates if self._is_leaf else paths.candidates
        self._relayed_until = {
            broker: until for broker, until in self._relayed_until.items() if until > now
        }
        found = [
            each._replace(rank=each.rank + RELAYED)
            if each.rank < RELAYED and each.broker in self._relayed_until
            else each
            for each in find(self._pubend)
        ]
        return sorted(found, key=lambda candidate: candidate.rank)

    def _find(self, broker: BrokerId) -> Candidate:
        """Return a broker as a candidate; a broker that is no candidate any more ranks last."""
        ranked = (each for each in self._ranked() if each.broker == broker)
        return next(ranked, Candidate(broker, 3 * RELAYED))

    def _detach_all(self) -> None:
        """Detach from the feeder and from the tried candidate."""
        if self._current is not None:
            self._context.send(self._current.broker, Detach(self._pubend, self._number))
        if self._trial is not None:
            tried = self._trial.candidate.broker
            self._context.send(tried, Detach(self._pubend, self._trial.number))
        self._stop_trial()
