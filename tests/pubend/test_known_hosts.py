"""Known hosts: from which tick a pubend knew them, and how long its log waits for them (R46)."""

from __future__ import annotations

from gapless.core.ids import PubendId, ShbId, VectorEntry, VirtualTime
from gapless.core.limits import KNOWN_HOST_TIMES_MAX
from gapless.core.parameters import DEFAULTS, microseconds
from gapless.messages.records import DeleteRecord, KnownHostRecord, PutRecord
from gapless.pubend.known_hosts import KnownHosts

STOCKS = PubendId("stocks")
HOST, OTHER = ShbId("n", "n"), ShbId("m", "m")


def at(counter: int) -> VirtualTime:
    return VirtualTime(1, counter)


def claim_none(shb: ShbId) -> VectorEntry | None:
    """Claim nothing."""
    del shb
    return None


def claim_all(shb: ShbId) -> VectorEntry | None:
    """Claim every host."""
    del shb
    return VectorEntry(at(1))


def hosts(*records: KnownHostRecord) -> KnownHosts:
    return KnownHosts(STOCKS, DEFAULTS, 0, records)


def test_each_virtual_time_is_known_from_the_tick_of_its_arrival() -> None:
    known_hosts = hosts()
    known_hosts.note(HOST, at(1), 10, 0)
    known_hosts.note(HOST, at(1), 20, 0)
    known_hosts.note(HOST, at(3), 30, 0)
    assert known_hosts.known(HOST) == ((at(1), 10), (at(3), 30))
    assert known_hosts.known(OTHER) == ()


def test_a_new_known_host_is_written_once() -> None:
    known_hosts = hosts()
    known_hosts.note(HOST, at(1), 10, 0)
    record = KnownHostRecord(STOCKS, HOST, ((at(1), 10),))
    assert known_hosts.changes() == (PutRecord(record),)
    assert known_hosts.changes() == ()
    assert hosts(record).known(HOST) == known_hosts.known(HOST)


def test_with_too_many_times_a_start_is_earlier_and_never_later() -> None:
    known_hosts = hosts()
    for number in range(1, 50):
        known_hosts.note(HOST, at(number), 10 * number, 0)
    known = known_hosts.known(HOST)
    assert len(known) == KNOWN_HOST_TIMES_MAX
    for number in range(1, 50):
        start = next(tick for time, tick in known if time >= at(number))
        assert 10 <= start <= 10 * number
    assert known[-1] == (at(49), 490), "the newest time is not merged with an old one"


def test_of_too_many_times_the_nearest_are_merged() -> None:
    known_hosts = hosts()
    for number, tick in enumerate((10, 20, 30, 31, 50, 60, 70, 80, 90), 1):
        known_hosts.note(HOST, at(number), tick, 0)
    assert (at(4), 30) in known_hosts.known(HOST)
    assert [tick for _, tick in known_hosts.known(HOST)] == [10, 20, 30, 50, 60, 70, 80, 90]


def test_no_time_is_noted_for_a_host_that_has_claimed_the_pubend_longer_than_the_grace() -> None:
    known_hosts = hosts()
    known_hosts.note(HOST, at(1), 10, 0)
    known_hosts.observe(claim_all, 0)
    grace = microseconds(s=DEFAULTS.member_grace_s)
    known_hosts.note(HOST, at(2), 20, grace)
    assert known_hosts.known(HOST)[-1] == (at(2), 20), "the announcement may have been in transit"
    known_hosts.note(HOST, at(3), 30, grace + 1)
    assert known_hosts.known(HOST)[-1] == (at(2), 20)


def test_after_a_widening_times_are_known_from_the_new_tick() -> None:
    known_hosts = hosts()
    known_hosts.note(HOST, at(1), 10, 0)
    known_hosts.note(OTHER, at(1), 10, 0)
    known_hosts.observe(lambda shb: VectorEntry(at(1)) if shb == HOST else None, 0)
    known_hosts.widened(microseconds(s=3_600))
    for shb in (HOST, OTHER):
        known_hosts.note(shb, at(1), 50, microseconds(s=3_600))
    assert known_hosts.known(HOST) == ((at(1), 50),)
    assert known_hosts.known(OTHER) == ((at(1), 10),), "no table claims this host"


def test_a_widening_keeps_the_times_of_a_recent_host() -> None:
    # its subscription would miss events published between its table update and the widening
    known_hosts = hosts()
    known_hosts.note(HOST, at(1), 10, 0)
    known_hosts.observe(lambda _: VectorEntry(at(1)), 0)
    known_hosts.widened(microseconds(s=1))
    known_hosts.note(HOST, at(1), 50, microseconds(s=1))
    assert known_hosts.known(HOST) == ((at(1), 10),)


def test_the_log_is_retained_for_the_member_grace_for_a_host_without_a_claim() -> None:
    known_hosts = hosts()
    known_hosts.note(HOST, at(1), 10, 0)
    known_hosts.note(OTHER, at(1), 20, 5)
    known_hosts.observe(claim_none, 0)
    grace = microseconds(s=DEFAULTS.member_grace_s)
    assert known_hosts.floor(grace) == 10
    assert known_hosts.floor(grace + 1) == 20
    assert known_hosts.floor(grace + 6) is None


def test_the_log_is_retained_for_the_attach_timeout_for_a_host_with_a_claim() -> None:
    known_hosts = hosts()
    known_hosts.note(HOST, at(1), 10, 0)
    known_hosts.observe(claim_all, 0)
    timeout = microseconds(ms=DEFAULTS.attach_timeout_ms)
    assert known_hosts.floor(timeout) == 10
    assert known_hosts.floor(timeout + 1) is None
    assert known_hosts.known(HOST) == ((at(1), 10),), "the host is still known"


def test_a_retired_host_is_forgotten() -> None:
    known_hosts = hosts(KnownHostRecord(STOCKS, HOST, ((at(1), 10),)))
    assert known_hosts.retire(HOST) == [DeleteRecord(("known host", "stocks", "n@n"))]
    assert known_hosts.retire(HOST) == []
    assert (known_hosts.known(HOST), known_hosts.floor(0), known_hosts.changes()) == ((), None, ())
