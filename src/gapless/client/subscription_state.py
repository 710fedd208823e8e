"""The states of a client's subscription, their inputs, and the tables that join them.

Theory of operation
-------------------
A subscription is requested again over every new connection, under the same name, from what was
received. Prefetched events are kept. So nothing is lost and nothing comes twice.

- ``UNOPENED``: the program has not opened the subscription, or the broker that it asked does not
  host it and the client looks for the one that does (:mod:`.finding`).
- ``DISCONNECTED``: the link is down.
- ``SUBSCRIBING``: Subscribe was sent over this connection and has no reply. Notices that come now
  belong to an earlier subscription of the same name, which the same session has closed. They are
  ignored; their events come again.
- ``RESEEKING``: a broker resumes a durable subscription after what was acknowledged. The program
  had sought back to before that, so the client has sent Seek and waits for the reply. The
  subscription has no credit yet, so no event comes from the wrong position. A seek of the program
  that was sent right after Subscribe is executed before this Seek, so the client seeks again after
  its reply.
- ``ACTIVE``: events come. The broker gets credit as the program takes them.
- ``OVER``: closed, refused, fenced, or the link is over. The state is final and wakes every waiter.

A durable subscription has one hosting broker. If that is unreachable for too long, the link fails
over to another broker. There the client presents its hosting reference, and the subscription
continues from what
was received (:mod:`gapless.mobility`). A broker that has the subscription under a newer epoch names the
epoch in its refusal or its SubscriptionEnded; the client then subscribes with the next epoch, and stays
in or returns to ``SUBSCRIBING``.

Four invariants follow. Every link-up outside ``OVER`` sends one Subscribe. Credit goes with a Subscribe
or in ``ACTIVE``. What was received falls only by a seek. ``OVER`` is final.

A notice that is not in ``TAKEN`` for the state is ignored. A pair of state and input that is
not in ``NEXT_STATE`` cannot happen.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Any, Final

from gapless.messages.clients import (
    Closed,
    Delivery,
    FilterChanged,
    Gap,
    Progress,
    Stalled,
    SubscriptionEnded,
    SubscriptionStarted,
)

__all__ = ["NEXT_STATE", "TAKEN", "ClientSubscriptionInput", "ClientSubscriptionState"]


class ClientSubscriptionState(Enum):
    """What a subscription has requested, and whether events come."""

    UNOPENED = auto()
    DISCONNECTED = auto()
    SUBSCRIBING = auto()
    RESEEKING = auto()
    ACTIVE = auto()
    OVER = auto()


class ClientSubscriptionInput(Enum):
    """What can happen to a subscription, beside notices that change no state."""

    OPENED = auto()
    """The program has opened the subscription over a link."""
    LINK_UP = auto()
    SUBSCRIBED = auto()
    """The reply to Subscribe; the broker continues at the right position."""
    SUBSCRIBED_BEHIND = auto()
    """The reply to Subscribe; the subscription is durable and was sought back."""
    RESEEK_DONE = auto()
    """The reply to the Seek of ``RESEEKING``."""
    SEEK_DONE = auto()
    """The reply to a seek of the program."""
    REDIRECTED = auto()
    """Refused before any broker has answered: another broker hosts it, or may host it."""
    HOSTED_ELSEWHERE = auto()
    """Refused, or SubscriptionEnded, with a newer hosting reference, and this client may follow."""
    LINK_DOWN = auto()
    ENDED = auto()
    """Closed by the program, refused or ended by the broker, or the link is over."""


_State = ClientSubscriptionState
_Input = ClientSubscriptionInput

NEXT_STATE: Final[
    dict[tuple[ClientSubscriptionState, ClientSubscriptionInput], ClientSubscriptionState]
] = {
    (_State.UNOPENED, _Input.OPENED): _State.DISCONNECTED,
    (_State.UNOPENED, _Input.ENDED): _State.OVER,
    (_State.DISCONNECTED, _Input.LINK_UP): _State.SUBSCRIBING,
    (_State.DISCONNECTED, _Input.ENDED): _State.OVER,
    (_State.SUBSCRIBING, _Input.LINK_UP): _State.SUBSCRIBING,
    (_State.SUBSCRIBING, _Input.SUBSCRIBED): _State.ACTIVE,
    (_State.SUBSCRIBING, _Input.SUBSCRIBED_BEHIND): _State.RESEEKING,
    (_State.SUBSCRIBING, _Input.SEEK_DONE): _State.SUBSCRIBING,
    (_State.SUBSCRIBING, _Input.REDIRECTED): _State.UNOPENED,
    (_State.SUBSCRIBING, _Input.HOSTED_ELSEWHERE): _State.SUBSCRIBING,
    (_State.SUBSCRIBING, _Input.LINK_DOWN): _State.DISCONNECTED,
    (_State.SUBSCRIBING, _Input.ENDED): _State.OVER,
    (_State.RESEEKING, _Input.LINK_UP): _State.SUBSCRIBING,
    (_State.RESEEKING, _Input.RESEEK_DONE): _State.ACTIVE,
    (_State.RESEEKING, _Input.SEEK_DONE): _State.RESEEKING,
    (_State.RESEEKING, _Input.HOSTED_ELSEWHERE): _State.SUBSCRIBING,
    (_State.RESEEKING, _Input.LINK_DOWN): _State.DISCONNECTED,
    (_State.RESEEKING, _Input.ENDED): _State.OVER,
    (_State.ACTIVE, _Input.LINK_UP): _State.SUBSCRIBING,
    (_State.ACTIVE, _Input.SEEK_DONE): _State.ACTIVE,
    (_State.ACTIVE, _Input.HOSTED_ELSEWHERE): _State.SUBSCRIBING,
    (_State.ACTIVE, _Input.LINK_DOWN): _State.DISCONNECTED,
    (_State.ACTIVE, _Input.ENDED): _State.OVER,
    **{(_State.OVER, given): _State.OVER for given in _Input},
}
"""The next state of a subscription. A pair that is not here cannot happen."""

_NOTHING: Final[frozenset[type[Any]]] = frozenset()

TAKEN: Final[dict[ClientSubscriptionState, frozenset[type[Any]]]] = {
    _State.UNOPENED: _NOTHING,
    _State.DISCONNECTED: _NOTHING,
    _State.SUBSCRIBING: _NOTHING,
    _State.RESEEKING: frozenset({Delivery, Stalled, FilterChanged, SubscriptionEnded}),
    _State.ACTIVE: frozenset(
        {
            Delivery,
            Stalled,
            FilterChanged,
            SubscriptionEnded,
            SubscriptionStarted,
            Progress,
            Gap,
            Closed,
        }
    ),
    _State.OVER: _NOTHING,
}
"""The notices that a subscription processes; all others are ignored."""
