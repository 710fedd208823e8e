"""The pubends of which this SHB is a member (R43), and those among them that are abandoned (R26).

The states are in :mod:`.membership_state`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from gapless.core.context import Context
from gapless.core.ids import MembershipId, PubendId
from gapless.core.parameters import microseconds
from gapless.messages.records import DeleteRecord, JoinedPubendRecord, PutRecord
from gapless.subscribers.membership_state import (
    NEXT_ABANDONED,
    NEXT_STATES,
    AbandonedInput,
    MembershipInput,
    MembershipState,
)
from gapless.subscribers.protocols import CancellableRequest, PubendRequester

__all__ = ["Membership", "Memberships"]


class Membership:
    """One membership of this SHB."""

    def __init__(self, membership: MembershipId, state: MembershipState) -> None:
        self.id = membership
        self.state = state
        self._unneeded_since: int | None = None
        self._leave_request: CancellableRequest | None = None

    def stored(self) -> None:
        """Its record is on disk."""
        following = self.state
        if self.state is MembershipState.JOINING:
            is_needed = self._unneeded_since is None
            following = MembershipState.JOINED if is_needed else MembershipState.UNNEEDED
        self._enter(following, MembershipInput.STORED)

    def needed(self) -> None:
        """A subscription needs the pubend."""
        self._unneeded_since = None
        is_joining = self.state is MembershipState.JOINING
        following = MembershipState.JOINING if is_joining else MembershipState.JOINED
        self._enter(following, MembershipInput.NEEDED)

    def unneeded_for(self, now: int) -> int:
        """No subscription needs the pubend. Return for how long."""
        if self._unneeded_since is None:
            self._unneeded_since = now
        is_joining = self.state is MembershipState.JOINING
        following = MembershipState.JOINING if is_joining else MembershipState.UNNEEDED
        self._enter(following, MembershipInput.UNUSED)
        return now - self._unneeded_since

    def expire(self) -> None:
        """Start to leave."""
        self._enter(MembershipState.LEAVING, MembershipInput.EXPIRED)

    def finish(self) -> None:
        """Start to leave a sealed pubend."""
        self._enter(MembershipState.LEAVING, MembershipInput.FINISHED)

    def end(self) -> None:
        """The pubend is a tombstone: cancel a request to its PHB."""
        self.give_up_leaving()
        self._enter(MembershipState.ENDED, MembershipInput.TOMBSTONE)

    def replace(self) -> None:
        """End the membership: a newer one with another id replaces it."""
        if self.state is not MembershipState.LEAVING:
            self._enter(MembershipState.ENDED, MembershipInput.REPLACED)

    def set_leave_request(self, request: CancellableRequest) -> None:
        """Note the pending request to the PHB."""
        self._leave_request = request

    def left(self) -> None:
        """The membership has ended."""
        self._leave_request = None
        self._enter(MembershipState.ENDED, MembershipInput.LEFT)

    def give_up_leaving(self) -> bool:
        """Cancel the request to a PHB that will not answer. Return whether one was pending."""
        request, self._leave_request = self._leave_request, None
        if request is not None:
            request.cancel()
        return request is not None

    def _enter(self, state: MembershipState, given: MembershipInput) -> None:
        assert state in NEXT_STATES.get((self.state, given), ()), (
            f"{self.state.name} does not become {state.name}: {given.value}"
        )
        self.state = state


class Memberships:
    """The memberships of this SHB, by pubend."""

    def __init__(
        self,
        context: Context,
        requests: PubendRequester,
        joined_pubends: Iterable[JoinedPubendRecord],
    ) -> None:
        self._context = context
        self._requests = requests
        joined_pubends = tuple(joined_pubends)
        self._current = {
            each.pubend: Membership(each.membership, MembershipState.JOINED)
            for each in joined_pubends
        }
        """The newest membership of each pubend, including memberships that are LEAVING."""
        self._leaving: dict[PubendId, Membership] = {}
        """Memberships that are LEAVING; the pubend may have a newer one."""
        self._abandoned = {each.pubend for each in joined_pubends if each.abandoned}
        self._count = 0
        self.unannounced = {*self._current}
        """Pubends that an earlier incarnation joined and that are not announced to this one yet."""

    def __contains__(self, pubend: PubendId) -> bool:
        """Return whether this SHB is a member of a pubend, or is leaving it."""
        return pubend in self._current

    def __iter__(self) -> Iterator[PubendId]:
        """Return the pubends, in the order in which they were first joined."""
        return iter([*self._current])

    def is_abandoned(self, pubend: PubendId) -> bool:
        """Return whether a pubend is abandoned."""
        return pubend in self._abandoned

    def announced(self, pubend: PubendId) -> None:
        """A pubend was announced to this incarnation."""
        self.unannounced.discard(pubend)

    # --- joining -------------------------------------------------------------------------------

    def join(self, pubend: PubendId, *, restored: bool) -> tuple[Membership, bool]:
        """Return the membership for a new subend, and whether its record has to be written.

        A membership of an earlier incarnation is used only for durable subscriptions, which are
        ``restored``. Otherwise a LeavePubend of it may still arrive at the PHB.
        """
        found = self._current.get(pubend)
        is_older = found is not None and found.id.incarnation < self._context.identity.incarnation
        is_new = found is None or self._leaving.get(pubend) is found or (is_older and not restored)
        if found is not None and not is_new:
            return found, False
        if found is not None:
            found.replace()
        self._count += 1
        identity = MembershipId(self._context.identity.incarnation, self._count)
        made = self._current[pubend] = Membership(identity, MembershipState.JOINING)
        return made, True

    def store(self, pubend: PubendId, then: Callable[[], None]) -> None:
        """Write the record of a new membership; call ``then`` when it is durable."""
        made = self._current[pubend]

        def stored() -> None:
            made.stored()
            then()

        record = JoinedPubendRecord(pubend, made.id, pubend in self._abandoned)
        self._context.write((PutRecord(record),), stored)

    def needed(self, pubend: PubendId) -> None:
        """A subscription needs a pubend."""
        self._current[pubend].needed()

    # --- leaving -------------------------------------------------------------------------------

    def review(self, pubend: PubendId, *, needed: bool, at_once: bool = False) -> bool:
        """Return whether to leave a pubend that no subscription has needed for
        ``interest_grace_s``, or one that none needs now.

        While an older membership of the pubend is LEAVING, a newer one is kept.
        """
        membership = self._current[pubend]
        if membership.state is MembershipState.LEAVING:
            return False
        if needed or pubend in self._leaving:
            membership.needed()
            return False
        grace = microseconds(s=self._context.parameters.interest_grace_s)
        unneeded_for = membership.unneeded_for(self._context.now)
        return at_once or unneeded_for >= grace

    def leave(self, pubend: PubendId) -> None:
        """End the membership of a pubend that no subscription needs."""
        membership = self._current[pubend]
        membership.expire()
        self._leave(pubend, membership)

    def finish(self, pubend: PubendId) -> None:
        """End the membership of a sealed pubend of which nothing is needed any more (RS-32)."""
        membership = self._current[pubend]
        membership.finish()
        self._leave(pubend, membership)

    def may_finish(self, pubend: PubendId) -> bool:
        """Return whether the membership of a pubend is on disk, and no older one is ending."""
        membership = self._current.get(pubend)
        finished = (MembershipState.JOINED, MembershipState.UNNEEDED)
        is_stored = membership is not None and membership.state in finished
        return is_stored and pubend not in self._leaving

    def pubend_ended(self, pubend: PubendId) -> None:
        """A pubend is a tombstone: its memberships end without a LeavePubend (RS-34)."""
        current = self._current.pop(pubend, None)
        leaving = self._leaving.pop(pubend, None)
        self._abandoned.discard(pubend)
        self.unannounced.discard(pubend)
        for each in (current, None if leaving is current else leaving):
            if each is not None:
                each.end()
        if current is not None:
            key = JoinedPubendRecord(pubend, current.id).key
            self._context.write((DeleteRecord(key),))

    def _leave(self, pubend: PubendId, membership: Membership) -> None:
        self._leaving[pubend] = membership
        if pubend in self._abandoned:
            self._left(pubend, membership)  # there is no PHB
            return
        shb = self._context.identity.shb
        request = self._requests.leave(
            pubend, shb, membership.id, lambda: self._left(pubend, membership)
        )
        if membership.state is MembershipState.LEAVING:
            membership.set_leave_request(request)

    def _left(self, pubend: PubendId, membership: Membership) -> None:
        """A membership has ended."""
        membership.left()
        if self._leaving.get(pubend) is membership:
            del self._leaving[pubend]
        if self._current.get(pubend) is membership:
            del self._current[pubend]
            self._abandoned.discard(pubend)
            key = JoinedPubendRecord(pubend, membership.id).key
            self._context.write((DeleteRecord(key),))

    # --- abandoned -----------------------------------------------------------------------------

    def abandon(self, pubend: PubendId) -> bool:
        """The PHB is retired and the pubend not fed. Return whether it is newly abandoned."""
        return self._decide(pubend, AbandonedInput.UNAVAILABLE)

    def give_up_leaving(self, pubend: PubendId) -> None:
        """Cancel the request to the PHB of an abandoned pubend to end a membership."""
        leaving = self._leaving.get(pubend)
        if leaving is not None and leaving.give_up_leaving():
            self._left(pubend, leaving)

    def pubend_returned(self, pubend: PubendId) -> bool:
        """A pubend is fed again, or its PHB has returned. Return whether it was abandoned."""
        is_back = self._decide(pubend, AbandonedInput.RETURNED)
        if is_back:
            self._context.mark("abandoned pubend returned")
        return is_back

    def _decide(self, pubend: PubendId, given: AbandonedInput) -> bool:
        """Update whether a pubend is abandoned and store a change. Return whether it changed."""
        before = pubend in self._abandoned
        abandoned = NEXT_ABANDONED[before, given]
        if abandoned == before:
            return False
        if abandoned:
            self._abandoned.add(pubend)
        else:
            self._abandoned.remove(pubend)
        record = JoinedPubendRecord(pubend, self._current[pubend].id, abandoned=abandoned)
        self._context.write((PutRecord(record),))
        return True
