"""Which events a subscription must receive, by its audit records: filters, client sessions, gaps."""

from __future__ import annotations

from gapless.audit.facts import Control
from gapless.audit.records import (
    AuditEnded,
    AuditFilterChanged,
    AuditOpened,
    AuditRecord,
    AuditStarted,
    Closing,
    GapReported,
    Header,
    Progressed,
)
from gapless.audit.timelines import FOREVER, AuditedSubscription, subscriptions_of
from gapless.core.ids import PubendId

Q = PubendId("q")
SECOND = 1_000_000


def timeline(
    *records: AuditRecord, side: str = "client", closed: bool = True, at_us: int = 10**9
) -> AuditedSubscription:
    header = Header(1, side, "w", "", "r", 1, 0)  # type: ignore[arg-type]
    given = [*records, Closing()] if closed else [*records]
    controls = [Control(header, offset, at_us, record) for offset, record in enumerate(given)]
    (found,) = subscriptions_of(controls, 60 * SECOND)
    return found


def opened(
    after: int, *, client_session: str = "1", durable: bool = False, text: str = "a"
) -> AuditOpened:
    return AuditOpened("s", client_session, "b", text, durable, False, [(Q, after)])


def spans(found: AuditedSubscription) -> list[tuple[int, int, str, bool]]:
    return [(low, high, text, settled) for _, low, high, text, settled in found.intervals]


def test_a_filter_change_divides_the_interval() -> None:
    found = timeline(
        opened(10),
        AuditFilterChanged("s", "1", "b", [(Q, 50)]),
        AuditEnded("s", "1", [(Q, 90)]),
        closed=True,
    )
    assert spans(found) == [(10, 50, "a", True), (50, 90, "b", True)]


def test_a_pubend_that_starts_after_a_filter_change_has_the_new_filter_from_its_start() -> None:
    found = timeline(
        AuditOpened("s", "1", "b", "a", False, False, []),
        AuditFilterChanged("s", "1", "b", []),
        AuditStarted("s", "1", Q, 30),
        AuditEnded("s", "1", [(Q, 40)]),
    )
    assert spans(found) == [(30, 40, "b", True)]


def test_a_reconnect_continues_the_interval() -> None:
    found = timeline(opened(10), opened(60), AuditEnded("s", "1", [(Q, 90)]))
    assert spans(found) == [(10, 90, "a", True)]


def test_a_reported_gap_is_not_expected() -> None:
    found = timeline(opened(10), GapReported("s", "1", Q, 21, 40), AuditEnded("s", "1", [(Q, 90)]))
    assert spans(found) == [(10, 20, "a", True), (40, 90, "a", True)]
    assert found.gaps == [("q", 21, 40)]


def test_a_range_released_before_an_earliest_start_is_no_gap() -> None:
    gap = GapReported("s", "1", Q, 1, 40, expected=True)
    found = timeline(opened(0), gap, AuditEnded("s", "1", [(Q, 90)]))
    assert spans(found) == [(40, 90, "a", True)]
    assert found.gaps == []


def test_a_disconnected_durable_subscription_must_still_receive_later_events() -> None:
    found = timeline(opened(10, durable=True), AuditEnded("s", "1", [(Q, 90)]))
    assert spans(found) == [(10, 90, "a", True), (90, FOREVER, "a", False)]
    assert found.name == "s@b"


def test_a_removed_durable_subscription_must_receive_no_later_events() -> None:
    found = timeline(opened(10, durable=True), AuditEnded("s", "1", [(Q, 90)], is_removed=True))
    assert spans(found) == [(10, 90, "a", True)]


def test_a_durable_subscription_must_receive_the_events_between_client_sessions() -> None:
    found = timeline(
        opened(10, durable=True),
        AuditEnded("s", "1", [(Q, 50)]),
        opened(70, client_session="2", durable=True),
        AuditEnded("s", "2", [(Q, 90)]),
    )
    assert spans(found)[:-1] == [(10, 50, "a", True), (50, 70, "a", True), (70, 90, "a", True)]


def test_an_interval_of_a_connected_subscriber_is_settled_when_overdue() -> None:
    now = 1_000 * SECOND
    found = timeline(opened(10), Progressed("s", "1", [(Q, 50)]), closed=False, at_us=now)
    overdue = now - 60 * SECOND
    assert spans(found) == [
        (10, 50, "a", True),
        (50, overdue, "a", True),
        (overdue, FOREVER, "a", False),
    ]


def test_a_returning_client_confirms_its_position_to_the_broker() -> None:
    found = timeline(
        opened(10),
        Progressed("s", "1", [(Q, 50)]),
        AuditEnded("s", "1"),
        opened(40, client_session="2"),
        Progressed("s", "2", [(Q, 80)]),
        AuditEnded("s", "2"),
        side="broker",
    )
    assert [session.fresh_up_to for session in found.client_sessions] == [10, 40]
    assert [(low, high) for low, high, _, _ in spans(found)] == [(10, 40), (40, 50), (50, 80)]


def test_a_client_session_without_its_start_counts_from_its_restatement() -> None:
    again = AuditOpened("s", "1", "b", "a", False, False, [(Q, 30)], restated=True)
    found = timeline(again, AuditEnded("s", "1", [(Q, 90)]))
    assert spans(found) == [(30, 90, "a", True)]
    assert found.client_sessions[0].above == 30
