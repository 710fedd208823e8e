"""The filter that a subscription requests, and a change of it that has no reply yet.

:mod:`.requested_filter_state` has the states and the theory of operation.
"""

from __future__ import annotations

from gapless.client.requested_filter_state import (
    NEXT_STATE,
    RequestedFilterInput,
    RequestedFilterState,
)

__all__ = ["RequestedFilter"]


class RequestedFilter:
    """The text with which a subscription is requested, and the change in progress."""

    def __init__(self, text: str | None, *, durable: bool) -> None:
        self.text = text
        """The filter with which the subscription starts again if the connection is lost; None until
        the broker has sent the filter that a durable subscription has."""
        self._durable = durable
        self._before = text
        self._state = RequestedFilterState.SETTLED

    @property
    def state(self) -> RequestedFilterState:
        """Whether a change is in progress."""
        return self._state

    @property
    def is_changing(self) -> bool:
        """Whether a change is in progress."""
        return self._state is RequestedFilterState.CHANGING

    def _take(self, given: RequestedFilterInput) -> None:
        following = NEXT_STATE.get((self._state, given))
        assert following is not None, f"{given} in {self._state}"
        self._state = following

    def request(self, text: str) -> None:
        """The program requests another filter."""
        self._take(RequestedFilterInput.REQUESTED)
        self._before = self.text
        if not self._durable:
            self.text = text

    def changed(self, text: str) -> bool:
        """The broker has made the change; return whether the filter differs from the one before.

        The text of a durable subscription is not replaced yet, so that the caller can compare.
        """
        self._take(RequestedFilterInput.CHANGED)
        return text != self._before

    def refused(self) -> None:
        """The change was not made."""
        self._take(RequestedFilterInput.REFUSED)
        self.text = self._before

    def unknown(self) -> None:
        """The reply is not awaited any more, and the outcome is unknown."""
        self._take(RequestedFilterInput.UNKNOWN)

    def replace(self, text: str) -> None:
        """The broker has sent the filter that applies."""
        self._take(RequestedFilterInput.REPLACED)
        self.text = text
