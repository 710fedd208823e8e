"""Bugs planted into the broker, one rule taken out each: the checks must detect every one.

:mod:`gapless_lab.sim.bug_hunt` hunts them.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from gapless.broker import entry
from gapless.messages.records import PubendRecord
from gapless.messages.streams import KnowledgeRange
from gapless.overlay.session import PeerSession
from gapless.propagation import sufficiency
from gapless.propagation.out_table import OutTable
from gapless.pubend import staging
from gapless.pubend.members import Members
from gapless.pubend.publishers import Publishers
from gapless.pubend.staging import Staging
from gapless.pubend.stream_end import StreamEnd
from gapless.pubend.tick_ceiling import TickCeiling
from gapless.routing.sending import StreamSender
from gapless.stream import istream
from gapless.stream import ranges as knowledge
from gapless.subscribers.catch_up import CatchUp
from gapless.subscribers.cursor import Cursor
from gapless.subscribers.cursor_state import FOREVER
from gapless.subscribers.delivery_limit import DeliveryLimits
from gapless.subscribers.filters import Filters
from gapless.subscribers.groups import CursorGroups
from gapless.subscribers.merge import Merge
from gapless.subscribers.reporter import AckReporter
from gapless.subscribers.start_verification import StartVerification
from gapless_lab.sim.closing_bugs import CLOSING_BUGS
from gapless_lab.sim.failover_bugs import FAILOVER_BUGS
from gapless_lab.sim.naming_bugs import NAMING_BUGS
from gapless_lab.sim.planted_bugs import PlantedBug, constant, replaced
from gapless_lab.sim.reshape_bugs import RESHAPE_BUGS
from gapless_lab.sim.routing_bugs import ROUTING_BUGS
from gapless_lab.sim.shipped_bugs import SHIPPED_BUGS

__all__ = ["BUGS"]

# --- the pubend ----------------------------------------------------------------------------------


def _acknowledge_at_once(original: Any) -> Any:
    def enqueue_all(self: StreamEnd, pendings: Any, changes: Any) -> None:
        answers = [each.done for each in pendings if each.done is not None]
        for each in pendings:
            each.done = None
        original(self, pendings, changes)
        for answer in answers:
            answer()

    return enqueue_all


def _silence_without_ceiling(self: Any, tick: int) -> None:
    if not self._pending and tick > self.last:
        low, self.last = self.last + 1, tick
        self._forward(KnowledgeRange(low, tick, self.stream_epoch, 0))


def _unchanged_record(self: TickCeiling, record: PubendRecord) -> PubendRecord:
    del self
    return record


def _sequences_forgotten(original: Any) -> Any:
    def get(self: Any, publisher: str, session: int) -> Any:
        held = original(self, publisher, session)
        return held.__class__(
            held.pubend, held.publisher, held.session, 0, (), held.used, *_rest(held)
        )

    return get


def _rest(held: Any) -> tuple[Any, ...]:
    names = held.__struct_fields__[6:]
    return tuple(getattr(held, name) for name in names)


def _floor_of_the_fastest(self: Any) -> int | None:
    floors = [row.ack_floor for row in self._rows.values()]
    return max(floors, default=None)


def _takes_two_attempts(original: Any) -> Any:
    """Take every attempt of a partition that has as many chunks, not only the named one."""

    def chunks_of(call: Any, part: Any, held: Any) -> Any:
        partition, attempt, count = part
        names = dict.fromkeys([attempt, *(each.attempt for each in held if each[0] == partition)])
        tried = [(partition, name, count) for name in names]
        whole = [each for each in tried if (partition, each[1], count - 1) in held]
        return [chunk for each in whole for chunk in original(call, each, held)]

    return chunks_of


# --- routers -------------------------------------------------------------------------------------


def _lists_no_late_hosts(self: Any, groups: Any) -> dict[Any, Any]:  # noqa: ARG001
    return {}


def _silence_for_unknown_ticks(
    self: Any, routed: Any, attachment: Any, low: int, high: int, masks: Any
) -> None:
    """Answer every requested tick, known or not."""
    del masks
    for part_low, part_high in attachment.curious.take(low, high):
        stream_epoch = routed.stream_epochs.newest
        self._send(
            routed, attachment, [KnowledgeRange(part_low, part_high, stream_epoch, 0)], first=False
        )


def _joins_stream_epochs(left: Any, right: Any) -> bool:
    return bool(left.high + 1 == right.low)


def _joined_over_stream_epochs(left: Any, right: Any) -> KnowledgeRange:
    both = left.publications + right.publications
    return KnowledgeRange(left.low, right.high, right.stream_epoch, right.control_version, both)


# --- subscriber hosts ------------------------------------------------------------------------------


def _starts_uncovered(original: Any) -> Any:
    def start_if_served(self: Cursor, low: int, time: Any) -> None:
        original(self, low, type(time)(FOREVER, 0))

    return start_if_served


def _drops_buffered_events(original: Any) -> Any:
    def join(self: Any) -> None:
        self.held.clear()
        original(self)

    return join


def _reports_the_horizon(self: Any, subend: Any) -> int:  # noqa: ARG001
    return int(subend.horizon)


def _drops_old_filters(original: Any) -> Any:
    def own(self: Any, segment: Any) -> None:
        original(self, segment)
        for other in segment.subscription.segments:
            if other is not segment:
                self.disown(other)

    return own


def _merges_at_once(self: Any, runs: Any) -> None:
    self._subscription.delivery._drain_in_turn(runs)  # noqa: SLF001


def _omits_released_ticks(original: Any) -> Any:
    def take_read(self: Any, reply: Any, segment: Any, high: int) -> None:
        original(self, msgspec.structs.replace(reply, released=0), segment, high)

    return take_read


def _takes_any_filter(original: Any) -> Any:
    """Take events that match any filter of a live subscription, whichever applies."""

    def take(self: Any, segment: Any, publications: Any) -> None:
        if self.phase.name == "LIVE":
            self._put([each for each in publications if each.tick > self.position])
        else:
            original(self, segment, publications)

    return take


BUGS: Final = (
    PlantedBug(
        "acknowledges before the write is durable",
        "a publisher gets the reply to a batch that a crash may lose (I13)",
        ((StreamEnd, "_enqueue_all", _acknowledge_at_once),),
    ),
    PlantedBug(
        "declares silence above the tick ceiling",
        "ticks declared silent are given to events after a crash (R29, A8)",
        ((StreamEnd, "_be_silent_until", replaced(_silence_without_ceiling)),),
    ),
    PlantedBug(
        "forgets the tick ceiling of the broker",
        "after a crash pubends continue below ticks that were declared silent (R29, A8)",
        ((TickCeiling, "restored", replaced(_unchanged_record)),),
    ),
    PlantedBug(
        "takes the incarnation from the clock",
        "a clock set back makes stream epochs of an older incarnation cover new subscriptions (A9)",
        ((entry, "next_incarnation", replaced(lambda _, clock: max(1, clock))),),
    ),
    PlantedBug(
        "forgets the sequences of publishers",
        "a repeated publication is published again (R27)",
        ((Publishers, "get", _sequences_forgotten),),
    ),
    PlantedBug(
        "publishes a repeated commit again",
        "a batch that its writer repeats after a crash is published again (S1, S3)",
        ((Staging, "_is_over", constant(False)),),
    ),
    PlantedBug(
        "commits two attempts of a partition",
        "a partition that ran twice is published twice (S1, S2)",
        ((staging, "_chunks_of", _takes_two_attempts),),
    ),
    PlantedBug(
        "releases up to the greatest ack floor",
        "the log is released up to the greatest ack floor instead of the least (R56)",
        ((Members, "ack_floor", replaced(_floor_of_the_fastest)),),
    ),
    PlantedBug(
        "skips a released range without a gap",
        "a released range is skipped without a gap notice (R45, A14)",
        ((CatchUp, "take_read", _omits_released_ticks),),
    ),
    PlantedBug(
        "treats every table as sufficient",
        "a router filters by any table, whatever the stream's vector demands (R24, A1)",
        ((sufficiency, "sufficient", constant(True)),),
    ),
    PlantedBug(
        "lists no host as late",
        "a table claims to be complete for pubends unknown to its sources (R18, A3)",
        ((OutTable, "_late", replaced(_lists_no_late_hosts)),),
    ),
    PlantedBug(
        "joins ranges of two stream epochs",
        "silence of two stream epochs becomes one knowledge range (A7)",
        (
            (istream, "_is_cheap_to_join", replaced(_joins_stream_epochs)),
            (istream, "join", replaced(_joined_over_stream_epochs)),
            (knowledge, "joinable", replaced(_joins_stream_epochs)),
            (knowledge, "join", replaced(_joined_over_stream_epochs)),
        ),
    ),
    PlantedBug(
        "sends silence for unknown ticks",
        "a router answers a nack with silence for ticks that it does not know (I3)",
        ((StreamSender, "answer", replaced(_silence_for_unknown_ticks)),),
    ),
    PlantedBug(
        "starts before the vector covers it",
        "a subscription starts on a stream whose vector does not cover it (R44)",
        ((Cursor, "start_if_served", _starts_uncovered),),
    ),
    PlantedBug(
        "ignores start guarantees",
        "a subscription misses the first events of a pubend created after it (R46)",
        ((StartVerification, "guaranteed_start_after", constant(None)),),
    ),
    PlantedBug(
        "uses silence that does not cover the SHB",
        "an SHB that left the vector treats the stream's silence as its own (R44)",
        ((CursorGroups, "is_covered", constant(True)),),
    ),
    PlantedBug(
        "drops buffered events when a cursor joins",
        "events between the end of a read and the live stream are dropped (R48)",
        ((CatchUp, "join_if_read", _drops_buffered_events),),
    ),
    PlantedBug(
        "reports the doubt horizon as ack floor",
        "an SHB reports ticks that its durable subscribers have not acknowledged (R52)",
        ((AckReporter, "ack_floor", replaced(_reports_the_horizon)),),
    ),
    PlantedBug(
        "withdraws an ended filter at once",
        "a filter leaves the tables before the streams have passed its end (R17, A15)",
        ((Filters, "own", _drops_old_filters),),
    ),
    PlantedBug(
        "delivers events of an ended filter",
        "events of an old filter are delivered after the switch to the new one (R47)",
        ((Cursor, "take", _takes_any_filter),),
    ),
    PlantedBug(
        "delivers beyond a switch that is not durable",
        "a client receives events beyond a switch that a crash loses (R47)",
        (
            (DeliveryLimits, "add", constant(None)),
            (DeliveryLimits, "lift", constant(None)),
        ),
    ),
    PlantedBug(
        "merges without waiting for all streams",
        "streams in total order do not wait for each other (R51)",
        ((Merge, "drain", replaced(_merges_at_once)),),
    ),
    PlantedBug(
        "never ends a peer session",
        "a session with a peer that sends or receives nothing stays open for ever (R1, A28)",
        ((PeerSession, "_restart", constant(None)),),
    ),
    *SHIPPED_BUGS,
    *ROUTING_BUGS,
    *FAILOVER_BUGS,
    *CLOSING_BUGS,
    *NAMING_BUGS,
    *RESHAPE_BUGS,
)
"""Each must be detected within :data:`gapless_lab.sim.bug_hunt.SEEDS_MAX` seeds."""
