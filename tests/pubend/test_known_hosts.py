"""What a pubend knew of hosts before they came, and how long its log waits for them (R46)."""

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


def nobody(shb: ShbId) -> VectorEntry | None:
    """Claim nothing."""
    del shb
    return None


def everybody(shb: ShbId) -> VectorEntry | None:
    """Claim every host."""
    del shb
    return VectorEntry(at(1))


def hosts(*records: KnownHostRecord) -> KnownHosts:
    return KnownHosts(STOCKS, DEFAULTS, 0, records)


def test_each_time_is_known_from_when_it_came() -> None:
    known_hosts = hosts()
    known_hosts.note(HOST, at(1), 10, 0)
    known_hosts.note(HOST, at(1), 20, 0)
    known_hosts.note(HOST, at(3), 30, 0)
    assert known_hosts.known(HOST) == ((at(1), 10), (at(3), 30))
    assert known_hosts.known(OTHER) == ()


def test_what_is_new_is_to_be_on_disk_once() -> None:
    known_hosts = hosts()
    known_hosts.note(HOST, at(1), 10, 0)
    record = KnownHostRecord(STOCKS, HOST, ((at(1), 10),))
    assert known_hosts.changes() == (PutRecord(record),)
    assert known_hosts.changes() == ()
    assert hosts(record).known(HOST) == known_hosts.known(HOST)


def test_too_many_moments_begin_earlier_never_later() -> None:
    known_hosts = hosts()
    for number in range(1, 50):
        known_hosts.note(HOST, at(number), 10 * number, 0)
    known = known_hosts.known(HOST)
    assert len(known) == KNOWN_HOST_TIMES_MAX
    for number in range(1, 50):
        begins = next(tick for time, tick in known if time >= at(number))
        assert 10 <= begins <= 10 * number
    assert known[-1] == (at(49), 490), "the newest is not taken for one of long ago"


def test_of_too_many_moments_the_nearest_become_one() -> None:
    known_hosts = hosts()
    for number, tick in enumerate((10, 20, 30, 31, 50, 60, 70, 80, 90), 1):
        known_hosts.note(HOST, at(number), tick, 0)
    assert (at(4), 30) in known_hosts.known(HOST)
    assert [tick for _, tick in known_hosts.known(HOST)] == [10, 20, 30, 50, 60, 70, 80, 90]


def test_nothing_is_noted_of_who_has_known_the_pubend_for_long() -> None:
    known_hosts = hosts()
    known_hosts.note(HOST, at(1), 10, 0)
    known_hosts.observe(everybody, 0)
    grace = microseconds(s=DEFAULTS.member_grace_s)
    known_hosts.note(HOST, at(2), 20, grace)
    assert known_hosts.known(HOST)[-1] == (at(2), 20), "it may have been under way"
    known_hosts.note(HOST, at(3), 30, grace + 1)
    assert known_hosts.known(HOST)[-1] == (at(2), 20)


def test_what_a_wider_advertisement_brings_is_known_from_there() -> None:
    known_hosts = hosts()
    known_hosts.note(HOST, at(1), 10, 0)
    known_hosts.note(OTHER, at(1), 10, 0)
    known_hosts.observe(lambda shb: VectorEntry(at(1)) if shb == HOST else None, 0)
    known_hosts.widened(microseconds(s=3_600))
    for shb in (HOST, OTHER):
        known_hosts.note(shb, at(1), 50, microseconds(s=3_600))
    assert known_hosts.known(HOST) == ((at(1), 50),)
    assert known_hosts.known(OTHER) == ((at(1), 10),), "it has not heard of the pubend at all"


def test_a_wider_advertisement_leaves_what_a_host_that_just_came_may_ask_for() -> None:
    # its subscription would miss what was published between its news and the widening
    known_hosts = hosts()
    known_hosts.note(HOST, at(1), 10, 0)
    known_hosts.observe(lambda _: VectorEntry(at(1)), 0)
    known_hosts.widened(microseconds(s=1))
    known_hosts.note(HOST, at(1), 50, microseconds(s=1))
    assert known_hosts.known(HOST) == ((at(1), 10),)


def test_the_log_waits_a_while_for_who_has_not_heard_of_the_pubend() -> None:
    known_hosts = hosts()
    known_hosts.note(HOST, at(1), 10, 0)
    known_hosts.note(OTHER, at(1), 20, 5)
    known_hosts.observe(nobody, 0)
    grace = microseconds(s=DEFAULTS.member_grace_s)
    assert known_hosts.floor(grace) == 10
    assert known_hosts.floor(grace + 1) == 20
    assert known_hosts.floor(grace + 6) is None


def test_the_log_waits_shortly_for_who_has_heard_of_the_pubend() -> None:
    known_hosts = hosts()
    known_hosts.note(HOST, at(1), 10, 0)
    known_hosts.observe(everybody, 0)
    patience = microseconds(ms=DEFAULTS.attach_timeout_ms)
    assert known_hosts.floor(patience) == 10
    assert known_hosts.floor(patience + 1) is None
    assert known_hosts.known(HOST) == ((at(1), 10),), "but it may still come"


def test_who_will_not_return_is_forgotten() -> None:
    known_hosts = hosts(KnownHostRecord(STOCKS, HOST, ((at(1), 10),)))
    assert known_hosts.retire(HOST) == [DeleteRecord(("known host", "stocks", "n@n"))]
    assert known_hosts.retire(HOST) == []
    assert (known_hosts.known(HOST), known_hosts.floor(0), known_hosts.changes()) == ((), None, ())
