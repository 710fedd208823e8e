"""A link: a connection to a broker that is made again whenever it is lost.

Theory of operation. A link has addresses and keeps a connection to one of them. Whoever uses it is
told when it is *up*, which is also when everything that was under way on the connection before is
gone, and asks again for what it still wants, under the same request numbers. A link never resends by
itself, but for :meth:`ReconnectingLink.call`, which has only one thing to send.

States::

    DOWN --connected and greeted--> UP --lost--> DOWN      any --closed, or a fatal farewell--> OVER
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from random import Random
from typing import Any, Final, Protocol

import msgspec

from gapless.client.addresses import BrokerAddress
from gapless.client.connection import BrokerConnection
from gapless.client.options import SessionOptions
from gapless.core.errors import (
    AuthenticationError,
    ConnectionLostError,
    DeadlineError,
    FencedError,
    GaplessError,
    OutcomeUnknownError,
    ProtocolError,
    RefusedError,
    UnavailableError,
    UsageError,
    WrongBrokerError,
)
from gapless.messages.clients import (
    Delivery,
    FilterChanged,
    Gap,
    Progress,
    RefusalCause,
    Refused,
    Stalled,
    SubscriptionEnded,
    SubscriptionStarted,
)
from gapless.wire import Connected, DisconnectReason

__all__ = ["LinkUser", "ReconnectingLink", "RequestNumbers", "SubscriptionListener", "refusal"]

_FATAL: Final = {DisconnectReason.NO_COMMON_VERSION, DisconnectReason.UNKNOWN_BROKER}
"""Coming back as we are will not help."""

_OF_SUBSCRIPTIONS: Final = frozenset(
    {Delivery, SubscriptionStarted, Stalled, Progress, Gap, SubscriptionEnded, FilterChanged}
)
"""Notices that name a subscription and no request."""

_DIAL_TIMEOUT_S: Final = 10.0
"""How long an address may take to accept a connection, and as long again to greet."""

_FIRST_ROUND_TIMEOUT_S: Final = 2.5
"""The same, in a first round, where there are other addresses: one that hangs must not use up the time
in which another would have answered. It doubles from round to round, in case all are slow."""


class LinkUser(Protocol):
    """Whoever needs a link for longer than one call."""

    def link_up(self) -> None:
        """There is a new connection; nothing that was asked before will be answered."""

    def link_down(self) -> None:
        """The connection is lost."""

    def link_over(self, error: GaplessError) -> None:
        """There will be no connection any more."""


class SubscriptionListener(Protocol):
    """A subscription, which hears notices that answer no request."""

    def delivered(self, notice: Delivery) -> None:
        """Events came."""

    def notified(
        self,
        notice: SubscriptionStarted | Stalled | Progress | Gap | SubscriptionEnded | FilterChanged,
    ) -> None:
        """Something about the subscription itself came."""


class RequestNumbers:
    """Request numbers that no request of a session had before."""

    __slots__ = ("_last",)

    def __init__(self) -> None:
        self._last = 0

    def next(self) -> int:
        """Return a new number."""
        self._last += 1
        return self._last


def refusal(notice: Refused) -> RefusedError:
    """Return the error that a refusal is."""
    match notice.cause:
        case RefusalCause.WRONG_BROKER:
            return WrongBrokerError(notice.reason, notice.broker)
        case RefusalCause.FENCED:
            return FencedError(notice.reason)
        case RefusalCause.UNAVAILABLE:
            return UnavailableError(notice.reason)
        case _:
            return RefusedError(notice.reason)


def _shown(deadline_s: float | None) -> str:
    """Return a deadline for people; some of it may have passed before the call began."""
    return "any" if deadline_s is None else f"{round(deadline_s, 2):g}"


class ReconnectingLink:
    """Keeps a connection to one of several addresses, or to the one broker it is for."""

    def __init__(
        self,
        addresses: tuple[BrokerAddress, ...],
        options: SessionOptions,
        numbers: RequestNumbers,
        *,
        broker: str | None = None,
        failover_after_s: float = 0.0,
    ) -> None:
        self.numbers = numbers
        self.handshake: Connected | None = None
        """Who is at the other end, while the link is up."""
        self.address: BrokerAddress | None = None
        """Where the last broker that greeted was."""
        self.trouble = "no connection was made yet"
        """Why the link is down, or was last."""
        self.connections = 0
        """How many connections it has had."""
        self._addresses = addresses
        self._options = options
        self._broker = broker
        self._failover_after_s = failover_after_s
        """For so many seconds after a loss only the address is tried that answered last."""
        self._lost_at = 0.0
        self._random = Random(options.seed)  # noqa: S311  # for waits, not for secrets
        self._connection: BrokerConnection | None = None
        self._requests: dict[int, Callable[[Any], None]] = {}
        self._listeners: dict[str, SubscriptionListener] = {}
        self._users: dict[LinkUser, None] = {}
        self._pending_calls: set[asyncio.Future[Any]] = set()
        """Calls that wait for an answer on this connection."""
        self._dialled = addresses[0]
        self._timed_out: BrokerAddress | None = None
        """Where a broker fell silent, if that was the last thing that went wrong."""
        self._changed: asyncio.Future[None] | None = None
        """Done when the link goes up, down or is over."""
        self._denied: AuthenticationError | None = None
        """Why an address of this round does not let us in, if one does not."""
        self._error: GaplessError | None = None
        self._task: asyncio.Task[None] | None = None

    # --- beginning and ending ------------------------------------------------------------------

    def start(self) -> None:
        """Begin to connect."""
        assert self._task is None
        loop = asyncio.get_running_loop()
        self._lost_at = loop.time()
        self._task = loop.create_task(self._keep_connected())

    async def close(self, error: GaplessError) -> None:
        """End; who still waits gets the error."""
        self._fail(error)
        if self._connection is not None:
            self._connection.close(DisconnectReason.CLIENT_DONE, "the client has all it wanted")
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _fail(self, error: GaplessError) -> None:
        if self._error is None:
            self._error = error
            for user in [*self._users]:
                user.link_over(error)
            self._release_pending()
            self._change()

    @property
    def is_up(self) -> bool:
        """Whether there is a connection."""
        return self.handshake is not None

    def _change(self) -> None:
        if self._changed is not None and not self._changed.done():
            self._changed.set_result(None)
        self._changed = None

    async def change(self) -> None:
        """Wait until the link goes up, down or is over; raise if it is over."""
        if self._error is not None:
            raise self._error
        if self._changed is None:
            self._changed = asyncio.get_running_loop().create_future()
        await asyncio.shield(self._changed)
        if self._error is not None:
            raise self._error

    async def up(self) -> Connected:
        """Wait until the link is up; return who is there."""
        while self.handshake is None:
            await self.change()
        return self.handshake

    # --- keeping a connection ------------------------------------------------------------------

    async def _keep_connected(self) -> None:
        """Connect, again and again, the first address first and then the one that answered last."""
        with contextlib.suppress(GaplessError):  # it is over, and everybody was told
            backoff, loop = self._options.backoff, asyncio.get_running_loop()
            waits = backoff.waits(self._random)
            while self._error is None:
                timeout_s = _DIAL_TIMEOUT_S if len(self._addresses) == 1 else _FIRST_ROUND_TIMEOUT_S
                while not await self._round(timeout_s):
                    await asyncio.sleep(self._until_failover(next(waits)))
                    timeout_s = min(2 * timeout_s, _DIAL_TIMEOUT_S)
                since = loop.time()
                while self.is_up:
                    await self.change()
                if loop.time() - since > backoff.longest_s:
                    waits = backoff.waits(self._random)
                # also after a connection that worked: a broker that turns us away is not stormed
                await asyncio.sleep(self._until_failover(next(waits)))

    def _until_failover(self, wait: float) -> float:
        """Return how long to wait: no longer than until other addresses may be tried."""
        left = self._lost_at + self._failover_after_s - asyncio.get_running_loop().time()
        return min(wait, left) if left > 0 else wait

    async def _round(self, timeout_s: float) -> bool:
        """Try all addresses once; say whether one is greeted, or none is worth another try.

        Who is not let in asks the others too: one may not have heard yet of a token that is new. After
        a round in vain it is over.
        """
        self._denied = None
        for address in self._in_order():
            if self._error is not None or await self._try(address, timeout_s):
                return True
        return self._gave_up()

    def _gave_up(self) -> bool:
        """End if nobody let us in and somebody said that nobody will."""
        if self._denied is not None:
            self._fail(self._denied)
        return self._error is not None

    def _in_order(self) -> list[BrokerAddress]:
        """Return the address that answered last, then, unless that is to be waited for, the others.

        One that fell silent comes last. A process that died refuses at once, but one that hangs, or
        is cut off, still costs the whole patience for a greeting, while another broker would do.
        """
        lost_for = asyncio.get_running_loop().time() - self._lost_at
        if self.address is not None and lost_for < self._failover_after_s:
            return [self.address]
        known = self._addresses if self.address is None else (self.address, *self._addresses)
        return sorted(dict.fromkeys(known), key=lambda address: address == self._timed_out)

    async def _try(self, address: BrokerAddress, timeout_s: float) -> bool:
        try:
            token = self._options.credentials.token_for(address)
        except UsageError as error:  # its file is being written, or gone; it may come back
            self.trouble = str(error)
            return False
        made = BrokerConnection(self._options.name, self, timeout_s, token=token)
        self._connection = made
        self._dialled = address
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(timeout_s):
                await loop.create_connection(lambda: made, address.host, address.port)
        except (OSError, ValueError) as error:  # a host that can be no name is the latter
            if self._connection is made:
                self._connection = None
            self.trouble = f"{address}: {str(error) or 'no answer'}"
            return False
        except asyncio.CancelledError:
            made.abort("given up")
            raise
        while self._connection is made and self.handshake is None and self._error is None:
            await self.change()
        return self.handshake is not None

    # --- what the connection says --------------------------------------------------------------

    def opened(self, connection: BrokerConnection, handshake: Connected) -> None:
        """Tell everybody who waits that the link is up, unless it is the wrong broker."""
        if self._broker is not None and handshake.broker != self._broker:
            reason = f"{self._dialled} is the broker {handshake.broker}, not {self._broker}"
            connection.close(DisconnectReason.CLIENT_DONE, reason)
            return
        self.handshake = handshake
        self.address = self._dialled
        self.connections += 1
        for user in [*self._users]:
            user.link_up()
        self._change()

    def notice_received(self, connection: BrokerConnection, notice: Any) -> None:
        """Hand a notice to whom it is for; what nobody waits for any more is let go."""
        if connection is not self._connection:
            return
        kind = type(notice)
        if kind in _OF_SUBSCRIPTIONS:
            listener = self._listeners.get(notice.subscription)
            if listener is None:
                return  # of a subscription that has ended meanwhile
            if kind is Delivery:
                listener.delivered(notice)
            else:
                listener.notified(notice)
            return
        then = self._requests.pop(notice.request, None)
        if then is not None:
            then(notice)

    def closed(
        self, connection: BrokerConnection, reason: str, code: DisconnectReason | None
    ) -> None:
        """Tell everybody that the connection is lost."""
        if connection is not self._connection:
            return
        self._connection = None
        self._timed_out = self._dialled if connection.has_timed_out else None
        self.trouble = f"{self._dialled}: {reason}"
        was_up, self.handshake = self.handshake is not None, None
        if was_up:
            self._lost_at = asyncio.get_running_loop().time()
        self._release_pending()
        if was_up:
            for user in [*self._users]:
                user.link_down()
        if code is DisconnectReason.NOT_AUTHENTICATED:
            self._denied = AuthenticationError(self.trouble)
        elif code in _FATAL:
            self._fail(ConnectionLostError(self.trouble))
        self._change()

    # --- what users do -------------------------------------------------------------------------

    def add(self, user: LinkUser) -> None:
        """Let a user hear of ups and downs; it hears of the present up at once."""
        if self._error is not None:
            raise self._error
        self._users[user] = None
        if self.is_up:
            user.link_up()

    def remove(self, user: LinkUser) -> None:
        """Let a user hear no more."""
        self._users.pop(user, None)

    def listen(self, subscription: str, listener: SubscriptionListener) -> None:
        """Let a subscription hear its notices; another of the same name hears that it is over."""
        older = self._listeners.get(subscription)
        if older is not None:
            # the broker does not tell: to it both are this client
            older.notified(
                SubscriptionEnded(
                    subscription, "the same session has subscribed again under this name"
                )
            )
        self._listeners[subscription] = listener

    def stop_listening(self, subscription: str, listener: SubscriptionListener) -> None:
        """Let a subscription hear no more."""
        if self._listeners.get(subscription) is listener:
            del self._listeners[subscription]

    def send(self, request: Any) -> None:
        """Send what has no answer, if the link is up."""
        if self._connection is not None and self.handshake is not None:
            self._connection.send(request)

    def request(self, request: Any, then: Callable[[Any], None]) -> None:
        """Send a request and call back with its answer, unless the connection is lost before."""
        if self._connection is not None and self.handshake is not None:
            self._requests[request.request] = then
            self._connection.send(request)

    def forget(self, number: int) -> None:
        """Nobody waits for an answer any more."""
        self._requests.pop(number, None)

    # --- calls ---------------------------------------------------------------------------------

    async def call(
        self,
        request: Any,
        deadline_s: float | None,
        *,
        changes: bool = True,
        then: Callable[[Any], None] | None = None,
    ) -> Any:
        """Ask until there is an answer, over as many connections as it takes; return it.

        The request gets its number here. If it ``changes`` something and the deadline passes after it
        was sent, the outcome is not known. ``then`` is called with the answer before anything that
        comes after it on the connection is looked at.
        """
        request = msgspec.structs.replace(request, request=self.numbers.next())
        sent = False
        try:
            async with asyncio.timeout(deadline_s):
                while True:
                    await self.up()
                    sent = True
                    answer = await self._answer(request, then)
                    if answer is not None:
                        break
        except TimeoutError:
            raise self.late(type(request).__name__, deadline_s, sent=sent and changes) from None
        finally:
            self.forget(request.request)
        if isinstance(answer, Refused):
            raise refusal(answer)
        return answer

    async def _answer(self, request: Any, then: Callable[[Any], None] | None) -> Any:
        """Ask once; return the answer, or None if the connection is lost before it comes."""
        answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def take(notice: Any) -> None:
            if not answered.done():
                if then is not None and type(notice) is not Refused:
                    then(notice)
                answered.set_result(notice)

        self._pending_calls.add(answered)
        try:
            self.request(request, take)
            return await answered
        finally:
            self._pending_calls.discard(answered)

    def _release_pending(self) -> None:
        """Nothing that was asked on this connection will be answered."""
        self._requests.clear()
        for answered in self._pending_calls:
            if not answered.done():
                answered.set_result(None)

    def late(self, what: str, deadline_s: float | None, *, sent: bool) -> GaplessError:
        """Return the error for a call that was not answered in time."""
        state = "the link is up" if self.is_up else f"no connection ({self.trouble})"
        if sent:
            return OutcomeUnknownError(
                f"{what} was sent and not answered within {_shown(deadline_s)} s: {state}; "
                "it may have been done, or be done later"
            )
        return DeadlineError(f"{what} was not done within {_shown(deadline_s)} s: {state}")

    @staticmethod
    def expect(notice: Any, kind: type[Any]) -> Any:
        """Return an answer if it is of the kind that was asked for."""
        if type(notice) is not kind:
            raise ProtocolError(f"expected {kind.__name__}, got {type(notice).__name__}")
        return notice
