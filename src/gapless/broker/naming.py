"""Names of new pubends: the whole overlay is asked before one is given.

Two brokers that make a pubend of one name at the same time would make two logs with one identity, of
which everybody sees one; what the other one acknowledges would be lost. No broker knows all others. So
one that wants to make a pubend asks its peers, and a broker of every neighbour cell. That one asks its own
peers and the cells beyond in the same way, and answers when all have answered. A name is free if every
broker of the overlay says so.

Of two brokers that ask for one name at once each is asked by the other, and the one whose own name comes
first wins: it says *taken*, the other gives up. So not both can hear that the name is free.

Who is down or cut off does not answer, and may have a pubend of that name. Then nobody knows, and nobody
waits for long: the pubend is made all the same, with a number behind its name that no other broker gives and no
earlier life gave. An island can go on publishing so, and when it is joined again both streams are there.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, TypeAlias

from gapless.core.ids import BrokerId, CellId, PubendId, ShbId
from gapless.core.limits import NAMES_ASKED_MAX
from gapless.core.machine import Identity
from gapless.core.parameters import us
from gapless.messages.overlay import NameAnswer, NameAsk, NameVerdict

if TYPE_CHECKING:
    from gapless.broker.entry import Broker

__all__ = ["Naming", "Then", "numbered"]

FREE, TAKEN, UNKNOWN = NameVerdict.FREE, NameVerdict.TAKEN, NameVerdict.UNKNOWN

_NUMBER_BYTES: Final = 6
"""Of the number behind a name: large enough to meet no other, and exact in every language."""

Then: TypeAlias = Callable[[NameVerdict, BrokerId], None]
"""Who goes on with the answer: the verdict, and who has the name."""

Group: TypeAlias = tuple[BrokerId, ...]
"""Brokers of which one has to be asked."""


def numbered(name: str, identity: Identity) -> PubendId:
    """Return a pubend of that name that no other broker makes, and that no earlier life made."""
    text = f"{identity.broker}/{identity.life}/{name}"
    digest = blake2b(text.encode(), digest_size=_NUMBER_BYTES).digest()
    return PubendId(name, 2 + int.from_bytes(digest))


class _Inquiry:
    """A question that was asked on, until all have answered."""

    def __init__(self, ask: NameAsk, groups: list[Group], then: Then) -> None:
        self.ask = ask
        self.unasked = groups
        """Of whom nobody is in reach, or who was asked and went away."""
        self.awaited: dict[BrokerId, Group] = {}
        """Who has not answered, each with those for whom it was asked."""
        self.verdict = FREE
        self.thens = [then]
        """Who wants to know: more than one, if another broker of the same cell asks the same."""


class Naming:
    """The questions for names that are under way at this broker, its own and those of others."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._context = broker.context
        self._sessions = broker.sessions
        self._inquiries: dict[tuple[BrokerId, int, int], _Inquiry] = {}
        self._own: dict[str, _Inquiry] = {}
        """Those of this broker, by the name."""
        self._count = 0

    @property
    def is_full(self) -> bool:
        """Whether no more questions are taken for a while."""
        return len(self._inquiries) >= NAMES_ASKED_MAX

    def asks_for(self, name: str) -> bool:
        """Say whether this broker asks for a name."""
        return name in self._own

    def ask(self, name: str, then: Then) -> None:
        """Ask all others whether a name is free."""
        identity = self._context.identity
        self._count += 1
        ask = NameAsk(name, identity.broker, identity.life, self._count)
        inquiry = self._own[name] = _Inquiry(ask, self._groups(None), then)
        self._begin(inquiry)

    def _groups(self, source: CellId | None) -> list[Group]:
        """Return who has to be asked by who was asked from a cell, or from nowhere."""
        around = self._broker.neighbourhood
        if source == around.own:
            return []  # the peer that asks has asked all others too
        groups: list[Group] = [(peer,) for peer in self._living(around.own)]
        for cell in around.neighbours:
            living = self._living(cell)
            if cell != source and (living or not around.is_leaf(cell)):
                groups.append(living)
        return groups

    def _living(self, cell: CellId) -> Group:
        """Return the other brokers of a cell, without those that never return."""
        return tuple(
            broker
            for broker in self._broker.neighbourhood.brokers(cell)
            if broker != self._context.identity.broker
            and (
                self._sessions.is_open(broker)
                or not self._broker.retirements.is_fresh(ShbId(broker, cell))
            )
        )

    def _begin(self, inquiry: _Inquiry) -> None:
        self._inquiries[inquiry.ask.key] = inquiry
        self._ask_on(inquiry)
        if not self._end_if_answered(inquiry):
            patience = max(1, us(ms=self._context.parameters.naming_ms))
            self._context.after(patience, lambda: self._give_up(inquiry))

    def _ask_on(self, inquiry: _Inquiry) -> None:
        """Ask those who were not asked, if they are in reach now."""
        unasked, inquiry.unasked = inquiry.unasked, []
        for group in unasked:
            reached = self._sessions.open_in(group)
            if reached:
                inquiry.awaited[reached[0]] = group
                self._context.post(reached[0], inquiry.ask)
            else:
                inquiry.unasked.append(group)

    def _end_if_answered(self, inquiry: _Inquiry) -> bool:
        """Go on if all have answered; say whether they have."""
        if inquiry.awaited or inquiry.unasked:
            return False
        self._end(inquiry, inquiry.verdict)
        return True

    def _give_up(self, inquiry: _Inquiry) -> None:
        if self._inquiries.get(inquiry.ask.key) is inquiry:
            self._context.mark("somebody does not say whether a name is free")
            self._end(inquiry, UNKNOWN)

    def _end(self, inquiry: _Inquiry, verdict: NameVerdict, broker: BrokerId = "") -> None:
        ask = inquiry.ask
        del self._inquiries[ask.key]
        if self._own.get(ask.name) is inquiry:
            del self._own[ask.name]
        for then in inquiry.thens:
            then(verdict, broker)

    # --- what others say -----------------------------------------------------------------------

    def asked(self, peer: BrokerId, ask: NameAsk) -> None:
        """Answer a peer when all behind have answered; at once if the name is taken."""
        cell = self._broker.neighbourhood.cell_of(peer)
        if cell is None:
            return

        def answer(verdict: NameVerdict, broker: BrokerId) -> None:
            if self._sessions.is_open(peer):
                self._context.post(peer, NameAnswer(ask.key, verdict, broker))

        if ask.key in self._inquiries:
            self._inquiries[ask.key].thens.append(answer)
            return
        verdict, broker = self._known(ask)
        rival = self._own.get(ask.name)
        if verdict is FREE and rival is not None:
            verdict, broker = self._contest(rival, ask)
        if verdict is not FREE:
            answer(verdict, broker)
        elif self.is_full:
            answer(UNKNOWN, "")
        else:
            self._begin(_Inquiry(ask, self._groups(cell), answer))

    def _known(self, ask: NameAsk) -> tuple[NameVerdict, BrokerId]:
        """Return what this broker knows of a name."""
        where = self._broker.pubends.home_of_name(ask.name)
        if where not in {None, ask.asker}:
            return TAKEN, where or ""
        if where is not None or self._broker.pubends.is_remembered(ask.name):
            self._context.mark("a name whose pubend nobody has any more")
            return UNKNOWN, ""
        return FREE, ""

    def _contest(self, rival: _Inquiry, ask: NameAsk) -> tuple[NameVerdict, BrokerId]:
        """Decide between this broker and another, which both ask for a name; one gives up."""
        self._context.mark("two brokers ask for one name")
        me = rival.ask.asker
        if me < ask.asker:
            return TAKEN, me
        self._end(rival, TAKEN, ask.asker)
        return FREE, ""

    def answered(self, peer: BrokerId, answer: NameAnswer) -> None:
        """Take what a peer and all behind it say."""
        inquiry = self._inquiries.get(answer.key)
        if inquiry is None or inquiry.awaited.pop(peer, None) is None:
            return
        if answer.verdict is TAKEN:
            self._end(inquiry, TAKEN, answer.broker)
            return
        if answer.verdict is UNKNOWN:
            inquiry.verdict = UNKNOWN
        self._end_if_answered(inquiry)

    # --- sessions ------------------------------------------------------------------------------

    def session_opened(self) -> None:
        """Somebody came into reach."""
        for inquiry in self._inquiries.values():
            self._ask_on(inquiry)

    def session_closed(self, peer: BrokerId) -> None:
        """What was asked, or the answer, may be lost with a session: it is asked again in time."""
        for inquiry in self._inquiries.values():
            group = inquiry.awaited.pop(peer, None)
            if group is not None:
                inquiry.unasked.append(group)
                self._ask_on(inquiry)
