"""A link: a connection to a broker that is replaced whenever it is lost.

A link has addresses and keeps a connection to one of them. It calls its users when it is *up*. All
requests of the connection before are then lost, and each user repeats those that it still needs,
under the same request numbers. A link itself repeats only the requests of
:meth:`ReconnectingLink.call`.

:mod:`.link_state` has the states and the theory of operation, :mod:`.dial_order` chooses the
addresses, :mod:`.requests` matches replies with requests.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any, Final, Protocol, TypeAlias, get_args

import msgspec

from gapless.client.connection import BrokerConnection
from gapless.client.dial_order import DialOrder
from gapless.client.link_state import NEXT_STATE, LinkInput, LinkState
from gapless.client.options import SessionOptions
from gapless.client.requests import OpenRequests, RequestNumbers, refusal
from gapless.core.address import Address
from gapless.core.errors import (
    AuthenticationError,
    ConnectionLostError,
    DeadlineError,
    GaplessError,
    OutcomeUnknownError,
    ProtocolError,
    UsageError,
)
from gapless.messages.clients import (
    Closed,
    Delivery,
    FilterChanged,
    Gap,
    Progress,
    Refused,
    Stalled,
    SubscriptionEnded,
    SubscriptionStarted,
)
from gapless.wire import Connected, DisconnectReason

__all__ = [
    "LinkUser",
    "ReconnectingLink",
    "SubscriptionListener",
    "SubscriptionNotice",
    "shown_deadline",
]

_FATAL: Final = {DisconnectReason.NO_COMMON_VERSION, DisconnectReason.UNKNOWN_BROKER}
"""Reasons for which dialling again cannot help."""


_DIAL_TIMEOUT_S: Final = 10.0
"""How long an address may take to accept a connection, and as long again for the handshake."""

_FIRST_ROUND_TIMEOUT_S: Final = 2.5
"""The same in a first round with several addresses: one that hangs must not use up the time in
which another would answer. It doubles from round to round, in case all are slow."""


SubscriptionNotice: TypeAlias = (
    SubscriptionStarted | Stalled | Progress | Gap | Closed | SubscriptionEnded | FilterChanged
)
"""A notice about a subscription itself."""

_OF_SUBSCRIPTIONS: Final = frozenset({Delivery, *get_args(SubscriptionNotice)})
"""Notices that name a subscription and no request."""


class LinkUser(Protocol):
    """A user of a link for longer than one call."""

    def link_up(self) -> None:
        """There is a new connection; requests of the one before will not be answered."""

    def link_down(self) -> None:
        """The connection is lost."""

    def link_over(self, error: GaplessError) -> None:
        """The link is over; there will be no further connection."""


class SubscriptionListener(Protocol):
    """A subscription, which gets the notices that answer no request."""

    def delivered(self, notice: Delivery) -> None:
        """Events have come."""

    def notified(self, notice: SubscriptionNotice) -> None:
        """A notice about the subscription itself has come."""


def shown_deadline(deadline_s: float | None) -> str:
    """Return a deadline for an error text; part of it may have passed before the call began."""
    return "any" if deadline_s is None else f"{round(deadline_s, 2):g}"


class ReconnectingLink:
    """Keeps a connection to one of several addresses, or to the one broker it is for."""

    def __init__(
        self,
        addresses: tuple[Address, ...],
        options: SessionOptions,
        numbers: RequestNumbers,
        *,
        broker: str | None = None,
        stays: bool = True,
        address: Address | None = None,
        failover_after_s: float = 0.0,
    ) -> None:
        """``broker`` is the only one that the link accepts; unless it ``stays`` with it, only for
        the first connection. ``address`` answered last; for ``failover_after_s`` after a loss no
        other is tried.
        """
        self.numbers = numbers
        self.handshake: Connected | None = None
        """The reply of the broker at the other end; only in UP."""
        self.trouble = "no connection was made yet"
        """Why the link is down, or was down last."""
        self.connections = 0
        """How many connections the link has had."""
        self._state = LinkState.DOWN
        self._options = options
        self._reporter = options.reporter
        self._has_reported_failure = False
        """Whether a failed round was reported since the last connection."""
        self._broker = broker
        self._stays = stays
        self._order = DialOrder(addresses, address, failover_after_s)
        self._random = Random(options.seed)  # noqa: S311  # for waits, not for secrets
        self._connection: BrokerConnection | None = None
        self._requests = OpenRequests()
        self._listeners: dict[str, SubscriptionListener] = {}
        self._users: dict[LinkUser, None] = {}
        self._dialled = addresses[0]
        self._changed: asyncio.Future[None] | None = None
        """Done when the link goes up, down or is over."""
        self._denied: AuthenticationError | None = None
        """The refusal of an address of this round that did not accept the token, if any."""
        self._error: GaplessError | None = None
        """Why the link is over; only in OVER."""
        self._task: asyncio.Task[None] | None = None

    # --- states --------------------------------------------------------------------------------

    @property
    def state(self) -> LinkState:
        """Whether there is a connection, and whether there can be one."""
        return self._state

    @property
    def is_up(self) -> bool:
        """Whether there is a connection."""
        return self._state is LinkState.UP

    @property
    def address(self) -> Address | None:
        """The address of the last broker that accepted a connection."""
        return self._order.address

    def _take(self, given: LinkInput) -> LinkState:
        following = NEXT_STATE.get((self._state, given))
        assert following is not None, f"{given} in {self._state}"
        self._state = following
        return following

    def start(self) -> None:
        """Start to connect."""
        assert self._task is None
        loop = asyncio.get_running_loop()
        self._order.lost(loop.time())
        self._task = loop.create_task(self._keep_connected())

    async def close(self, error: GaplessError) -> None:
        """End; waiting calls get the error."""
        self._fail(error)
        if self._connection is not None:
            self._connection.close(DisconnectReason.CLIENT_DONE, "the client closed the session")
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _fail(self, error: GaplessError) -> None:
        if self._state is LinkState.OVER:
            return
        self._take(LinkInput.FAILED)
        self._error = error
        if self._reporter is not None:
            self._reporter.gave_up(error)
        for user in [*self._users]:
            user.link_over(error)
        self._requests.clear()
        self._change()

    def _check(self) -> None:
        """Raise the error with which the link ended, if it has ended."""
        if self._error is not None:
            raise self._error

    def _change(self) -> None:
        if self._changed is not None and not self._changed.done():
            self._changed.set_result(None)
        self._changed = None

    async def change(self) -> None:
        """Wait until the link goes up, down or is over; raise if it is over."""
        self._check()
        if self._changed is None:
            self._changed = asyncio.get_running_loop().create_future()
        await asyncio.shield(self._changed)
        self._check()

    async def up(self) -> Connected:
        """Wait until the link is up; return the handshake of the broker."""
        while not self.is_up:
            await self.change()
        assert self.handshake is not None
        return self.handshake

    # --- keeping a connection ------------------------------------------------------------------

    async def _keep_connected(self) -> None:
        """Connect again and again, first to the address that answered last."""
        with contextlib.suppress(GaplessError):  # the link is over, and its users were called
            loop = asyncio.get_running_loop()
            waits = self._options.backoff.waits(self._random.random)
            while self._error is None:
                one = self._order.has_one_address
                timeout_s = _DIAL_TIMEOUT_S if one else _FIRST_ROUND_TIMEOUT_S
                while not await self._round(timeout_s):
                    await asyncio.sleep(self._order.shortened(next(waits), loop.time()))
                    timeout_s = min(2 * timeout_s, _DIAL_TIMEOUT_S)
                since = loop.time()
                while self.is_up:
                    await self.change()
                waits.lasted(loop.time() - since)
                # also after a connection that worked: a broker that disconnects clients is not
                # flooded
                await asyncio.sleep(self._order.shortened(next(waits), loop.time()))

    async def _round(self, timeout_s: float) -> bool:
        """Try all addresses once; return whether one has accepted, or the link is over.

        If an address does not accept the token, the others are tried too: a new token may not have
        reached all brokers yet. After a round without success the link is over.
        """
        self._denied = None
        for address in self._order.candidates(asyncio.get_running_loop().time()):
            if self._error is not None or await self._try(address, timeout_s):
                return True
        return self._gave_up()

    def _gave_up(self) -> bool:
        """End the link if an address of this round did not accept the token."""
        if self._denied is not None:
            self._fail(self._denied)
        elif self._reporter is not None and not self._has_reported_failure:
            self._has_reported_failure = True
            self._reporter.failed(self.trouble)
        return self._error is not None

    async def _try(self, address: Address, timeout_s: float) -> bool:
        try:
            token = self._options.credentials.token_for(address)
        except UsageError as error:  # the file is missing or being written; it may appear
            self.trouble = str(error)
            return False
        made = BrokerConnection(self._options.name, self, timeout_s, token=token)
        self._connection = made
        self._dialled = address
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(timeout_s):
                await loop.create_connection(lambda: made, address.host, address.port)
        except (OSError, ValueError) as error:  # ValueError: the host cannot be a name
            if self._connection is made:
                self._connection = None
            self.trouble = f"{address}: {str(error) or 'no answer'}"
            return False
        except asyncio.CancelledError:
            made.abort("the attempt was cancelled")
            raise
        while self._connection is made and not self.is_up and self._error is None:
            await self.change()
        return self.is_up

    # --- callbacks of the connection -----------------------------------------------------------

    def opened(self, connection: BrokerConnection, handshake: Connected) -> None:
        """Call all users: the link is up. A connection to the wrong broker is closed."""
        if self._broker is not None and handshake.broker != self._broker:
            reason = f"{self._dialled} is the broker {handshake.broker}, not {self._broker}"
            connection.close(DisconnectReason.CLIENT_DONE, reason)
            return
        if self._take(LinkInput.CONNECTED) is LinkState.OVER:
            connection.close(DisconnectReason.CLIENT_DONE, "the client closed the session")
            return
        self.handshake = handshake
        if not self._stays:
            self._broker = None
        self._order.answered(self._dialled)
        self.connections += 1
        self._has_reported_failure = False
        if self._reporter is not None:
            self._reporter.connected(handshake.broker, self._dialled)
        for user in [*self._users]:
            user.link_up()
        self._change()

    def notice_received(self, connection: BrokerConnection, notice: Any) -> None:
        """Pass a notice to its subscription or its request; drop it if nothing waits for it."""
        if connection is not self._connection:
            return
        kind = type(notice)
        if kind in _OF_SUBSCRIPTIONS:
            listener = self._listeners.get(notice.subscription)
            if listener is None:
                return  # the subscription has ended meanwhile
            if kind is Delivery:
                listener.delivered(notice)
            else:
                listener.notified(notice)
            return
        self._requests.replied(notice)

    def closed(
        self, connection: BrokerConnection, reason: str, code: DisconnectReason | None
    ) -> None:
        """Call all users: the connection is lost."""
        if connection is not self._connection:
            return
        broker = None if self.handshake is None else self.handshake.broker
        self._connection = self.handshake = None
        self._order.failed(self._dialled, silent=connection.has_timed_out)
        self.trouble = f"{self._dialled}: {reason}"
        was_up = self.is_up
        self._take(LinkInput.LOST)
        if was_up:
            self._order.lost(asyncio.get_running_loop().time())
        self._requests.clear()
        if was_up:
            if self._reporter is not None and broker is not None:
                self._reporter.lost(broker, self._dialled, reason)
            for user in [*self._users]:
                user.link_down()
        if code is DisconnectReason.NOT_AUTHENTICATED:
            self._denied = AuthenticationError(self.trouble)
        elif code in _FATAL:
            self._fail(ConnectionLostError(self.trouble))
        self._change()

    # --- what users do -------------------------------------------------------------------------

    def add(self, user: LinkUser) -> None:
        """Add a user; if the link is up, the user is called at once."""
        self._check()
        self._users[user] = None
        if self.is_up:
            user.link_up()

    def remove(self, user: LinkUser) -> None:
        """Remove a user."""
        self._users.pop(user, None)

    def listen(self, subscription: str, listener: SubscriptionListener) -> None:
        """Pass the notices of a subscription to a listener; end an older one of that name."""
        older = self._listeners.get(subscription)
        if older is not None:
            # the broker does not send this notice: to it both are this client
            older.notified(
                SubscriptionEnded(
                    subscription, "the same session has subscribed again under this name"
                )
            )
        self._listeners[subscription] = listener

    def has_listener(self, subscription: str) -> bool:
        """Whether a subscription of that name uses the link."""
        return subscription in self._listeners

    def stop_listening(self, subscription: str, listener: SubscriptionListener) -> None:
        """Remove the listener of a subscription."""
        if self._listeners.get(subscription) is listener:
            del self._listeners[subscription]

    def send(self, request: Any) -> None:
        """Send a request that has no answer, if the link is up."""
        if self._connection is not None and self._state is LinkState.UP:
            self._connection.send(request)

    def request(self, request: Any, then: Callable[[Any], None]) -> None:
        """Send a request and call back with its answer, unless the connection is lost first.

        Raises UsageError, and sends nothing, if it is too large for the broker.
        """
        if self._connection is not None and self._state is LinkState.UP:
            self._connection.send(request)
            self._requests.add(request.request, then)

    def forget(self, number: int) -> None:
        """The answer to a request is not needed any more."""
        self._requests.forget(number)

    # --- calls ---------------------------------------------------------------------------------

    async def call(
        self,
        request: Any,
        deadline_s: float | None,
        *,
        changes: bool = True,
        then: Callable[[Any], None] | None = None,
    ) -> Any:
        """Send a request, over as many connections as it takes, until it is answered; return the
        answer.

        The request gets its number here. If it ``changes`` something and the deadline passes after
        it was sent, the outcome is unknown. ``then`` is called with the answer before anything that
        follows it on the connection is processed.
        """
        request = msgspec.structs.replace(request, request=self.numbers.next())
        sent = False
        try:
            async with asyncio.timeout(deadline_s):
                while True:
                    await self.up()
                    sent = True
                    answer = await self._requests.call(partial(self.request, request), then)
                    if answer is not None:
                        break
        except TimeoutError:
            raise self.late(type(request).__name__, deadline_s, sent=sent and changes) from None
        finally:
            self.forget(request.request)
        if isinstance(answer, Refused):
            raise refusal(answer)
        return answer

    def is_at(self, broker: str) -> bool:
        """Return whether the link is up and leads to a broker."""
        return self.handshake is not None and self.handshake.broker == broker and self.is_up

    async def attempt(self, request: Any) -> Any:
        """Send a request over the present connection; None: it was lost before the answer came."""
        assert self.is_up
        request = msgspec.structs.replace(request, request=self.numbers.next())
        try:
            return await self._requests.call(partial(self.request, request), None)
        finally:
            self.forget(request.request)

    def late(self, what: str, deadline_s: float | None, *, sent: bool) -> GaplessError:
        """Return the error for a call that was not answered in time."""
        if sent:
            return OutcomeUnknownError(
                f"{what} was sent and not answered within {shown_deadline(deadline_s)} s: "
                f"{self.condition}; it may have been done, or be done later"
            )
        return DeadlineError(
            f"{what} was not done within {shown_deadline(deadline_s)} s: {self.condition}"
        )

    @property
    def condition(self) -> str:
        """Whether a broker is connected, for the text of an error."""
        if self.handshake is not None and self.is_up:
            return f"the broker {self.handshake.broker} is connected"
        if self._broker is not None:  # the session may be connected to others
            return f"the broker {self._broker} is not connected ({self.trouble})"
        return f"no broker is connected ({self.trouble})"

    @property
    def has_users(self) -> bool:
        """Whether a publisher or a subscription uses the link."""
        return bool(self._users)

    @staticmethod
    def expect(notice: Any, kind: type[Any]) -> Any:
        """Return an answer; raise ProtocolError if it is not of the expected kind."""
        if type(notice) is not kind:
            raise ProtocolError(f"expected {kind.__name__}, got {type(notice).__name__}")
        return notice
