"""The refusals of requests for a pubend that this broker does not serve."""

from __future__ import annotations

from gapless.core.context import Context
from gapless.core.ids import PubendId
from gapless.directory.announcements import KnownPubends
from gapless.directory.hosted import Hosted
from gapless.messages.clients import RefusalCause, Refused
from gapless.pubend.protocols import OtherBrokers

__all__ = ["PubendRefusals"]


class PubendRefusals:
    """Refuses requests, and names the broker that has the pubend."""

    def __init__(
        self,
        context: Context,
        hosted: Hosted,
        announcements: KnownPubends,
        status: OtherBrokers,
    ) -> None:
        self._context = context
        self._hosted = hosted
        self._announcements = announcements
        self._status = status

    def refuse(
        self, client: str, request: int, reason: str, cause: RefusalCause = RefusalCause.OTHER
    ) -> None:
        """Refuse a request."""
        self._context.notify(client, Refused(request, reason, cause))

    def refuse_for(self, client: str, request: int, pubend: PubendId, reason: str) -> None:
        """Refuse a request for a pubend; name its broker if it is another broker."""
        where = None if pubend in self._hosted else self._status.other_broker(pubend)
        if pubend not in self._hosted and self._status.is_closed(pubend):
            self.refuse(client, request, reason, RefusalCause.CLOSED)
        elif where is None:
            self.refuse(client, request, reason)
        else:
            refused = Refused(request, reason, RefusalCause.WRONG_BROKER, where)
            self._context.notify(client, refused)

    def refuse_missing(self, client: str, request: int, pubend: PubendId) -> None:
        """Refuse a request for a pubend that this broker does not serve."""
        self.refuse_for(client, request, pubend, self._status.not_here(pubend))

    def refuse_unknown(
        self, client: str, request: int, pubend: PubendId, cause: RefusalCause
    ) -> None:
        """Do the same, but with the given cause if no broker has announced the pubend."""
        is_known = self._announcements.get(pubend) is not None or self._status.is_closed(pubend)
        if pubend in self._hosted.corrupt or is_known:
            self.refuse_missing(client, request, pubend)
        else:
            self.refuse(client, request, self._status.not_here(pubend), cause)
