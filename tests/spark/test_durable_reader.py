"""A named reader retains the logs that its query reads, and no others."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("pyspark", reason='Spark is not installed: pip install "gapless[spark]"')

from gapless.client.sync import SyncSession, connect_sync
from gapless.messages.operating import ListAllDurable
from gapless.spark.durable_reader import DurableReader
from gapless.spark.network import OverlayClient
from gapless.testing import SyncOverlay
from tests.spark.rows import until


class DurableReaderHarness:
    """A broker, a publisher and the connections of a driver."""

    def __init__(self, url: str, session: SyncSession) -> None:
        self.network = OverlayClient((url,), 10.0)
        self.session = session
        self._url = url

    def reader(self, *pubends: str) -> DurableReader:
        return DurableReader(self.network, self._url, "archive", "TRUE", pubends)

    def publish(self, pubend: str) -> int:
        with self.session.publisher(pubend) as publisher:
            return publisher.publish({"n": 1})[pubend]

    def publish_behind_the_reader(self, pubend: str) -> int:
        """Create a pubend, wait until the reader has started on it, and publish an event that it retains."""
        self.publish(pubend)
        self.retained_from(pubend)
        return self.publish(pubend)

    def reach(self, pubend: str, tick: int) -> None:
        """Wait until the broker of the reader knows a stream up to a tick."""
        reader = self.reader()

        def is_there() -> bool:
            cursor = (reader._cursors() or {}).get(pubend)
            return cursor is not None and (cursor.horizon or 0) >= tick

        until(is_there, f"{pubend} is known up to {tick}")

    def retained_from(self, pubend: str) -> int:
        """Return the tick after which the log is retained; the reader must have started on it."""
        reader = self.reader()
        until(lambda: pubend in (reader.position() or {}), "the reader has begun")
        return (reader.position() or {})[pubend]


@pytest.fixture
def harness() -> Iterator[DurableReaderHarness]:
    with SyncOverlay() as overlay, connect_sync(overlay.url()) as session:
        made = DurableReaderHarness(overlay.url(), session)
        yield made
        made.network.close()


def test_a_log_is_retained_from_the_commit_on(harness: DurableReaderHarness) -> None:
    first, second = harness.publish("quotes"), harness.publish("quotes")
    reader = harness.reader()
    reader.keep({"quotes": 0})
    assert harness.retained_from("quotes") < first
    reader.commit({"quotes": first})
    assert first <= harness.retained_from("quotes") < second


def test_pubends_outside_the_query_are_not_retained(harness: DurableReaderHarness) -> None:
    read, unread = harness.publish("quotes"), harness.publish("orders")
    harness.reader("quotes").keep({"quotes": 0})
    assert harness.retained_from("quotes") < read
    assert harness.retained_from("orders") >= unread


def test_a_later_pubend_outside_the_query_is_retained_until_the_next_commit(
    harness: DurableReaderHarness,
) -> None:
    done = harness.publish("quotes")
    reader = harness.reader("quotes")
    reader.keep({"quotes": 0})
    unread = harness.publish_behind_the_reader("orders")
    assert harness.retained_from("orders") < unread
    harness.reach("orders", unread)
    reader.commit({"quotes": done})
    assert harness.retained_from("orders") >= unread


def test_a_new_pubend_of_the_query_is_retained(harness: DurableReaderHarness) -> None:
    done = harness.publish("quotes")
    reader = harness.reader()
    reader.keep({"quotes": 0})
    new = harness.publish_behind_the_reader("orders")
    assert harness.retained_from("orders") < new
    harness.reach("orders", new)
    reader.commit({"quotes": done})  # the batch was planned before the new pubend was known
    assert harness.retained_from("orders") < new
    assert harness.retained_from("quotes") >= done


def test_a_reader_is_found_when_the_first_server_is_another_one() -> None:
    # the position is at b2; a new reader at b1 would start behind events that are not committed
    with SyncOverlay("line:2") as overlay, connect_sync(overlay.url("b2")) as session:
        there = DurableReaderHarness(overlay.url("b2"), session)
        first, second = there.publish("quotes"), there.publish("quotes")
        there.reader().keep({"quotes": first})
        there.network.close()
        here = DurableReaderHarness(overlay.url("b1"), session)
        assert first <= here.retained_from("quotes") < second
        reader = here.reader()
        reader.keep({"quotes": first})
        reader.commit({"quotes": second})
        assert here.retained_from("quotes") >= second
        (entry,) = session.request(ListAllDurable(0), changes=False).entries
        assert (entry.name, entry.host.broker) == ("archive", "b2")
        here.network.close()
