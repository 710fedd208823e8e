"""Objects that all subscriptions and cursors of this SHB share."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gapless.core.context import Context
from gapless.subscribers.buffer import Backlog
from gapless.subscribers.filters import Filters
from gapless.subscribers.protocols import PubendRequester, PubendStatus
from gapless.subscribers.slow_consumers import SlowConsumers
from gapless.subscribers.step_end import StepEnd

if TYPE_CHECKING:
    from gapless.subscribers.subends import Subends

__all__ = ["Resources"]


class Resources(NamedTuple):
    """The registry passes these to every subscription."""

    context: Context
    requests: PubendRequester
    status: PubendStatus
    filters: Filters
    subends: Subends
    step_end: StepEnd
    slow_consumers: SlowConsumers
    backlog: Backlog
