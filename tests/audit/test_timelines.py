"""What is owed, from what was said of a subscription: filters, visits, gaps, and what is not known."""

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


def test_a_switch_divides_what_is_owed() -> None:
    found = timeline(
        opened(10),
        AuditFilterChanged("s", "1", "b", [(Q, 50)]),
        AuditEnded("s", "1", [(Q, 90)]),
        closed=True,
    )
    assert spans(found) == [(10, 50, "a", True), (50, 90, "b", True)]


def test_a_pubend_that_starts_after_a_switch_has_the_new_filter_from_its_start() -> None:
    found = timeline(
        AuditOpened("s", "1", "b", "a", False, False, []),
        AuditFilterChanged("s", "1", "b", []),
        AuditStarted("s", "1", Q, 30),
        AuditEnded("s", "1", [(Q, 40)]),
    )
    assert spans(found) == [(30, 40, "b", True)]


def test_a_lost_connection_goes_on_where_it_was_and_hides_nothing() -> None:
    found = timeline(opened(10), opened(60), AuditEnded("s", "1", [(Q, 90)]))
    assert spans(found) == [(10, 90, "a", True)]


def test_a_told_gap_is_not_owed() -> None:
    found = timeline(opened(10), GapReported("s", "1", Q, 21, 40), AuditEnded("s", "1", [(Q, 90)]))
    assert spans(found) == [(10, 20, "a", True), (40, 90, "a", True)]
    assert found.gaps == [("q", 21, 40)]


def test_what_was_gone_before_the_oldest_is_no_gap() -> None:
    gap = GapReported("s", "1", Q, 1, 40, expected=True)
    found = timeline(opened(0), gap, AuditEnded("s", "1", [(Q, 90)]))
    assert spans(found) == [(40, 90, "a", True)]
    assert found.gaps == []


def test_a_durable_one_that_left_is_owed_what_is_published_later() -> None:
    found = timeline(opened(10, durable=True), AuditEnded("s", "1", [(Q, 90)]))
    assert spans(found) == [(10, 90, "a", True), (90, FOREVER, "a", False)]
    assert found.name == "s@b"


def test_a_durable_one_that_was_ended_for_good_is_owed_nothing_more() -> None:
    found = timeline(opened(10, durable=True), AuditEnded("s", "1", [(Q, 90)], is_removed=True))
    assert spans(found) == [(10, 90, "a", True)]


def test_between_client_sessions_all_is_owed() -> None:
    found = timeline(
        opened(10, durable=True),
        AuditEnded("s", "1", [(Q, 50)]),
        opened(70, client_session="2", durable=True),
        AuditEnded("s", "2", [(Q, 90)]),
    )
    assert spans(found)[:-1] == [(10, 50, "a", True), (50, 70, "a", True), (70, 90, "a", True)]


def test_what_did_not_come_for_long_is_settled_while_the_subscriber_is_there() -> None:
    now = 1_000 * SECOND
    found = timeline(opened(10), Progressed("s", "1", [(Q, 50)]), closed=False, at_us=now)
    overdue = now - 60 * SECOND
    assert spans(found) == [
        (10, 50, "a", True),
        (50, overdue, "a", True),
        (overdue, FOREVER, "a", False),
    ]


def test_to_a_broker_a_client_that_comes_back_says_what_it_has() -> None:
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


def test_a_client_session_whose_beginning_is_gone_counts_from_where_it_is_said_again() -> None:
    again = AuditOpened("s", "1", "b", "a", False, False, [(Q, 30)], restated=True)
    found = timeline(again, AuditEnded("s", "1", [(Q, 90)]))
    assert spans(found) == [(30, 90, "a", True)]
    assert found.client_sessions[0].above == 30
