"""Requests to the broker of a pubend: hop by hop there, back along the recorded way (2.4 of the rules).

A request has an id, an asker and a route. Every hop adds itself to the route and keeps nothing; the
reply carries the way back, takes itself off at every hop, and is at the asker when nothing is left.
So a hop that crashes loses what was under way and no more: the asker repeats its request, always
under a new id, because the id picks the hop where there is a choice (section 17). The attempts of one
errand have ids that follow each other modulo a small number, so that no two errands that take turns
can each meet the same dead hop for ever.

An answer to any attempt is as good as another: what is asked may be done twice, and what is read is
a fact. Ids grow from life to life, so that an answer to an earlier life is not taken for one to this.

What a peer has read is examined where it was asked for, not at the hops between, which keep nothing of
it. An answer that makes no sense is refused as a whole, as if it was lost.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any, Final, Protocol, TypeAlias

import msgspec

from gapless.core.ids import BrokerId, Join, PubendId, ShbId
from gapless.core.limits import REQUEST_ATTEMPTS_KEPT, REQUEST_HOPS_MAX
from gapless.core.machine import Context, Timer
from gapless.core.parameters import us
from gapless.core.ticks import Tick
from gapless.messages.pubend_requests import Done, HoldId, Leave, Read, ReadReply, ReleaseHold
from gapless.messages.streams import Member, ReadForm
from gapless.stream.ranges import fault_of

__all__ = ["Errand", "Hosted", "Requests", "way_back"]

_TURNS: Final = 12
"""The attempts of an errand follow each other modulo this, so they try all of 2, 3, 4, 6 or 12 hops."""

_IDS_PER_LIFE: Final = 1_000
"""What the ids of two lives are apart, at least. Lives are microseconds unless the clock was set back;
times this they still fit into 63 bits."""

_Request: TypeAlias = Read | ReleaseHold | Leave
_Reply: TypeAlias = ReadReply | Done


class Hosted(Protocol):
    """A pubend of this broker as requests see it. What cannot be answered is left unanswered."""

    def read(self, request: Read, then: Callable[[ReadReply], None]) -> None:
        """Answer with what matches, when the hold that the request names is on disk."""

    def release_hold(self, hold: HoldId, then: Callable[[], None]) -> None:
        """Let a hold go; call back when that is on disk."""

    def leave(self, shb: ShbId, join: Join, then: Callable[[], None]) -> None:
        """End a stay; call back when that is on disk."""


def way_back(request: Read | ReleaseHold | Leave) -> tuple[BrokerId, ...]:
    """Return the route of a reply: it goes to the last of these first, and ends at the asker."""
    return (request.asker, *request.route)


def _answers(read: Read, reply: ReadReply) -> bool:
    """Whether a reply tells what was asked for: in sound pieces, in a row, up to where it ends.

    They begin with the lowest tick, or with the lowest that the log still has.
    """
    pieces = reply.pieces
    if not pieces:
        return True
    return (
        all(fault_of(piece) is None for piece in pieces)
        and read.low <= pieces[0].low <= max(read.low, reply.released + 1)
        and all(left.high + 1 == right.low for left, right in pairwise(pieces))
        and pieces[-1].high <= min(read.high, reply.done)
    )


def _nobody_told(reason: str) -> None:
    """Who asks does not want to know why it takes so long."""


class Errand:
    """One request of this broker, under way until it is answered or cancelled."""

    def __init__(
        self,
        requests: Requests,
        number: int,
        pubend: PubendId,
        made: Callable[[int], _Request],
        finish: Callable[[Any], None],
        fault: Callable[[str], None],
    ) -> None:
        self._requests = requests
        self.number = number
        self.pubend = pubend
        self.made = made
        """Returns the request with an id."""
        self.finish = finish
        self.fault = fault
        """Is told why a read cannot go on; it is repeated as if it were not answered."""
        self.ids: list[int] = []
        """Of the attempts that may still be answered, the oldest first."""
        self.turn = number
        """Modulo ``_TURNS`` what the id of the next attempt is."""
        self.is_read = False
        self.has_turn = False
        """Whether it counts among the reads that are under way (``reads_per_shb_max``)."""
        self.is_sent = False
        """Whether the last attempt went to somebody."""
        self.pause_us = 0
        self.timer: Timer | None = None

    def cancel(self) -> None:
        """Let it be; it is not called back. What was sent may still be done."""
        self._requests.end(self)


class Requests:
    """The requests of this broker, and those that pass through it or end here.

    ``next_hop`` says whom to ask for a pubend, given the id of the request; None if there is no way
    now.
    """

    def __init__(
        self,
        context: Context,
        hosted: Callable[[PubendId], Hosted | None],
        next_hop: Callable[[PubendId, int], BrokerId | None],
    ) -> None:
        self._context = context
        self._hosted = hosted
        self._next_hop = next_hop
        self._me = context.identity.broker
        self._last_id = context.identity.life * _IDS_PER_LIFE
        self._count = 0
        self._active: dict[int, Errand] = {}
        """By number, so in the order of asking."""
        self._queue: dict[PubendId, dict[int, Errand]] = {}
        """Reads that wait for their turn, by pubend: one that cannot be reached keeps no other back."""
        self._by_id: dict[int, Errand] = {}
        self._reading: dict[PubendId, int] = {}

    # --- what this broker asks ---------------------------------------------------------------

    def read(
        self,
        pubend: PubendId,
        filter_text: str,
        low: Tick,
        high: Tick,
        *,
        hold: HoldId | None,
        then: Callable[[ReadReply], None],
        hold_tick: Tick | None = None,
        newcomer: Member | None = None,
        hosts: tuple[ShbId, ...] = (),
        fault: Callable[[str], None] = _nobody_told,
        bytes_max: int = 0,
        form: ReadForm = ReadForm.EVENTS,
    ) -> Errand:
        """Read the log of a pubend (R48); the answer may end below ``high``.

        A hold is put, or raised, to ``hold_tick``, which is just below ``low`` unless it is given
        (R49). A ``newcomer`` is a host that asks since when it was known, and other ``hosts`` (R46). Above
        ``reads_per_shb_max`` under way for a pubend a read waits for its turn. While the log cannot be
        read at ``low``, ``fault`` is told why, others take its turn, and it is tried again (P8).
        """
        most = bytes_max if bytes_max > 0 else self._context.parameters.read_chunk_bytes
        above = max(0, low - 1) if hold_tick is None else hold_tick

        def made(number: int) -> Read:
            return Read(
                pubend,
                number,
                self._me,
                (),
                filter_text,
                low,
                high,
                hold,
                most,
                above,
                newcomer,
                form,
                hosts,
            )

        errand = self._errand(pubend, made, then, fault)
        errand.is_read = True
        self._queue.setdefault(pubend, {})[errand.number] = errand
        self._start_reads(pubend)
        return errand

    def release_hold(self, pubend: PubendId, hold: HoldId, then: Callable[[], None]) -> Errand:
        """Let a hold go (R49); reads that name it are to be cancelled before."""

        def made(number: int) -> ReleaseHold:
            return ReleaseHold(pubend, number, self._me, (), hold)

        errand = self._errand(pubend, made, lambda _: then())
        self._start(errand)
        return errand

    def leave(self, pubend: PubendId, shb: ShbId, join: Join, then: Callable[[], None]) -> Errand:
        """End a stay of a subscriber host with a pubend (R43, R55)."""

        def made(number: int) -> Leave:
            return Leave(pubend, number, self._me, (), shb, join)

        errand = self._errand(pubend, made, lambda _: then())
        self._start(errand)
        return errand

    def session_opened(self) -> None:
        """Somebody can be asked who could not before: send what had no way, wait less for the rest."""
        for errand in list(self._active.values()):
            first = self._first_pause_us
            errand.pause_us = first
            assert errand.timer is not None
            if not errand.is_sent:
                errand.timer.cancel()
                self._attempt(errand)
            elif errand.timer.at > self._context.now + first:
                errand.timer.cancel()
                self._wait(errand)

    def statistics(self) -> dict[str, int]:
        """Return how many errands are under way, and how many reads wait for their turn."""
        return {
            "active": len(self._active),
            "queued": sum(map(len, self._queue.values())),
            "ids": len(self._by_id),
        }

    # --- what comes in -----------------------------------------------------------------------

    def received(self, peer: BrokerId, message: Any) -> bool:
        """Take a message of a session; False if it is no request and no reply."""
        del peer  # the route says where it came from
        if isinstance(message, Read | ReleaseHold | Leave):
            self._take_request(message)
        elif isinstance(message, ReadReply | Done):
            self._take_reply(message)
        else:
            return False
        return True

    def _take_request(self, request: _Request) -> None:
        way = way_back(request)
        if self._me in way or len(way) > REQUEST_HOPS_MAX:
            self._context.mark("request in a circle")
            return
        hosted = self._hosted(request.pubend)
        if hosted is not None:
            self._serve(hosted, request, lambda reply: self._context.post(way[-1], reply))
            return
        hop = self._next_hop(request.pubend, request.request)
        if hop is None:
            self._context.mark("request without a way")
        elif hop in way:
            self._context.mark("request in a circle")
        else:
            route = (*request.route, self._me)
            self._context.post(hop, msgspec.structs.replace(request, route=route))

    def _take_reply(self, reply: _Reply) -> None:
        if not reply.route or reply.route[-1] != self._me:
            self._context.mark("reply astray")
            return
        rest = reply.route[:-1]
        if rest:
            self._context.post(rest[-1], msgspec.structs.replace(reply, route=rest))
        else:
            self._answered(reply, examined=False)

    def _serve(self, hosted: Hosted, request: _Request, answer: Callable[[_Reply], None]) -> None:
        """Let a pubend of this broker do what is asked, and answer."""
        done = Done(request.pubend, request.request, way_back(request))
        if isinstance(request, Leave):
            hosted.leave(request.shb, request.join, lambda: answer(done))
        elif isinstance(request, ReleaseHold):
            hosted.release_hold(request.hold, lambda: answer(done))
        else:
            hosted.read(request, answer)

    # --- errands -----------------------------------------------------------------------------

    @property
    def _first_pause_us(self) -> int:
        return us(ms=self._context.parameters.attach_timeout_ms)

    def _errand(
        self,
        pubend: PubendId,
        made: Callable[[int], _Request],
        finish: Callable[[Any], None],
        fault: Callable[[str], None] = _nobody_told,
    ) -> Errand:
        self._count += 1
        return Errand(self, self._count, pubend, made, finish, fault)

    def _start_reads(self, pubend: PubendId) -> None:
        """Start reads that wait for a pubend, first come first served, as far as there is room."""
        waiting = self._queue.get(pubend, {})
        while waiting and (
            self._reading.get(pubend, 0) < self._context.parameters.reads_per_shb_max
        ):
            self._reading[pubend] = self._reading.get(pubend, 0) + 1
            errand = waiting.pop(next(iter(waiting)))
            errand.has_turn = True
            if errand.number in self._active:
                self._attempt(errand)  # it gave way, and goes on
            else:
                self._start(errand)
        if not waiting:
            self._queue.pop(pubend, None)

    def _start(self, errand: Errand) -> None:
        self._active[errand.number] = errand
        errand.pause_us = self._first_pause_us
        self._attempt(errand)

    def _attempt(self, errand: Errand) -> None:
        """Ask, under a new id, and wait for a while."""
        request = errand.made(self._new_id(errand))
        if self._hosted(errand.pubend) is not None:
            self._remember(errand, request.request)
            # a little later, so that nobody is called back before he knows what he asked
            self._context.after(1, lambda: self._serve_own(errand, request))
            errand.is_sent = True
        else:
            hop = self._next_hop(errand.pubend, request.request)
            errand.is_sent = hop is not None
            if hop is not None:
                self._remember(errand, request.request)
                self._context.post(hop, request)
        self._wait(errand)

    def _wait(self, errand: Errand) -> None:
        errand.timer = self._context.after(errand.pause_us, lambda: self._retry(errand))

    def _retry(self, errand: Errand) -> None:
        self._context.mark("request repeated")
        longest = us(ms=self._context.parameters.retry_max_ms)
        errand.pause_us = max(errand.pause_us, min(2 * errand.pause_us, longest))
        if errand.is_read and not errand.has_turn:
            self._queue.setdefault(errand.pubend, {})[errand.number] = errand
            self._start_reads(errand.pubend)
        else:
            self._attempt(errand)

    def _give_way(self, errand: Errand) -> None:
        """Let others read while the log cannot be read where this one is: it may be so for ever."""
        if errand.has_turn:
            errand.has_turn = False
            self._reading[errand.pubend] -= 1
            self._start_reads(errand.pubend)

    def _serve_own(self, errand: Errand, request: _Request) -> None:
        hosted = self._hosted(errand.pubend)
        if hosted is not None and request.request in self._by_id:
            self._serve(hosted, request, self._answered)

    def _answered(self, reply: _Reply, *, examined: bool = True) -> None:
        """Finish the errand that a reply is for; what a peer has sent is examined first."""
        errand = self._by_id.get(reply.request)
        if errand is None:
            self._context.mark("answer to nobody")
        elif reply.pubend != errand.pubend or isinstance(reply, ReadReply) != errand.is_read:
            self._context.mark("answer to another question")
        elif not examined and self._refuses(errand, reply):
            self._context.mark("answer that makes no sense")
        elif isinstance(reply, ReadReply) and reply.fault:
            errand.fault(reply.fault)
            self._give_way(errand)
        else:
            self.end(errand)
            errand.finish(reply)

    def _refuses(self, errand: Errand, reply: _Reply) -> bool:
        if not isinstance(reply, ReadReply):
            return False
        asked = errand.made(reply.request)
        assert isinstance(asked, Read)
        return not _answers(asked, reply)

    def end(self, errand: Errand) -> None:
        """Forget an errand; a read that waits may take its place."""
        self._queue.get(errand.pubend, {}).pop(errand.number, None)
        if self._active.pop(errand.number, None) is None:
            return
        assert errand.timer is not None
        errand.timer.cancel()
        for each in errand.ids:
            del self._by_id[each]
        self._give_way(errand)

    def _new_id(self, errand: Errand) -> int:
        """Return an id above all before, one further than the errand's last modulo ``_TURNS``."""
        self._last_id += 1
        self._last_id += (errand.turn - self._last_id) % _TURNS
        errand.turn += 1
        return self._last_id

    def _remember(self, errand: Errand, request: int) -> None:
        errand.ids.append(request)
        self._by_id[request] = errand
        if len(errand.ids) > REQUEST_ATTEMPTS_KEPT:
            del self._by_id[errand.ids.pop(0)]
