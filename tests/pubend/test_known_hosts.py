"""What a pubend knew of hosts before they came, and how long its log waits for them (R46)."""

from __future__ import annotations

from gapless.core.ids import Entry, PubendId, ShbId, VirtualTime
from gapless.core.limits import EARLY_TIMES_MAX
from gapless.core.parameters import DEFAULTS, us
from gapless.messages.records import EarlyHostRecord, Erase, Store
from gapless.pubend.known_hosts import EarlyHosts

STOCKS = PubendId("stocks")
HOST, OTHER = ShbId("n", "n"), ShbId("m", "m")


def at(counter: int) -> VirtualTime:
    return VirtualTime(1, counter)


def nobody(shb: ShbId) -> Entry | None:
    """Claim nothing."""
    del shb
    return None


def everybody(shb: ShbId) -> Entry | None:
    """Claim every host."""
    del shb
    return Entry(at(1))


def hosts(*records: EarlyHostRecord) -> EarlyHosts:
    return EarlyHosts(STOCKS, DEFAULTS, 0, records)


def test_each_time_is_known_from_when_it_came() -> None:
    early = hosts()
    early.note(HOST, at(1), 10, 0)
    early.note(HOST, at(1), 20, 0)
    early.note(HOST, at(3), 30, 0)
    assert early.known(HOST) == ((at(1), 10), (at(3), 30))
    assert early.known(OTHER) == ()


def test_what_is_new_is_to_be_on_disk_once() -> None:
    early = hosts()
    early.note(HOST, at(1), 10, 0)
    record = EarlyHostRecord(STOCKS, HOST, ((at(1), 10),))
    assert early.changes() == (Store(record),)
    assert early.changes() == ()
    assert hosts(record).known(HOST) == early.known(HOST)


def test_too_many_moments_begin_earlier_never_later() -> None:
    early = hosts()
    for number in range(1, 50):
        early.note(HOST, at(number), 10 * number, 0)
    known = early.known(HOST)
    assert len(known) == EARLY_TIMES_MAX
    for number in range(1, 50):
        begins = next(tick for time, tick in known if time >= at(number))
        assert 10 <= begins <= 10 * number
    assert known[-1] == (at(49), 490), "the newest is not taken for one of long ago"


def test_of_too_many_moments_the_nearest_become_one() -> None:
    early = hosts()
    for number, tick in enumerate((10, 20, 30, 31, 50, 60, 70, 80, 90), 1):
        early.note(HOST, at(number), tick, 0)
    assert (at(4), 30) in early.known(HOST)
    assert [tick for _, tick in early.known(HOST)] == [10, 20, 30, 50, 60, 70, 80, 90]


def test_nothing_is_noted_of_who_has_known_the_pubend_for_long() -> None:
    early = hosts()
    early.note(HOST, at(1), 10, 0)
    early.observe(everybody, 0)
    grace = us(s=DEFAULTS.member_grace_s)
    early.note(HOST, at(2), 20, grace)
    assert early.known(HOST)[-1] == (at(2), 20), "it may have been under way"
    early.note(HOST, at(3), 30, grace + 1)
    assert early.known(HOST)[-1] == (at(2), 20)


def test_what_a_wider_advertisement_brings_is_known_from_there() -> None:
    early = hosts()
    early.note(HOST, at(1), 10, 0)
    early.note(OTHER, at(1), 10, 0)
    early.observe(lambda shb: Entry(at(1)) if shb == HOST else None, 0)
    early.widened(us(s=3_600))
    for shb in (HOST, OTHER):
        early.note(shb, at(1), 50, us(s=3_600))
    assert early.known(HOST) == ((at(1), 50),)
    assert early.known(OTHER) == ((at(1), 10),), "it has not heard of the pubend at all"


def test_a_wider_advertisement_leaves_what_a_host_that_just_came_may_ask_for() -> None:
    # its subscription would miss what was published between its news and the widening
    early = hosts()
    early.note(HOST, at(1), 10, 0)
    early.observe(lambda _: Entry(at(1)), 0)
    early.widened(us(s=1))
    early.note(HOST, at(1), 50, us(s=1))
    assert early.known(HOST) == ((at(1), 10),)


def test_the_log_waits_a_while_for_who_has_not_heard_of_the_pubend() -> None:
    early = hosts()
    early.note(HOST, at(1), 10, 0)
    early.note(OTHER, at(1), 20, 5)
    early.observe(nobody, 0)
    grace = us(s=DEFAULTS.member_grace_s)
    assert early.floor(grace) == 10
    assert early.floor(grace + 1) == 20
    assert early.floor(grace + 6) is None


def test_the_log_waits_shortly_for_who_has_heard_of_the_pubend() -> None:
    early = hosts()
    early.note(HOST, at(1), 10, 0)
    early.observe(everybody, 0)
    patience = us(ms=DEFAULTS.attach_timeout_ms)
    assert early.floor(patience) == 10
    assert early.floor(patience + 1) is None
    assert early.known(HOST) == ((at(1), 10),), "but it may still come"


def test_who_will_not_return_is_forgotten() -> None:
    early = hosts(EarlyHostRecord(STOCKS, HOST, ((at(1), 10),)))
    assert early.retire(HOST) == [Erase(("early host", "stocks", "n@n"))]
    assert early.retire(HOST) == []
    assert (early.known(HOST), early.floor(0), early.changes()) == ((), None, ())
