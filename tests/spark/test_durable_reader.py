"""A named reader keeps the logs that its query reads, and no others."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("pyspark", reason='Spark is not installed: pip install "gapless[spark]"')

from gapless.client.sync import SyncSession, connect_sync
from gapless.spark.durable_reader import Keeper
from gapless.spark.network import Network
from gapless.testing import SyncOverlay
from tests.spark.rows import until


class Desk:
    """A broker, somebody who publishes, and a driver's connections."""

    def __init__(self, url: str, session: SyncSession) -> None:
        self.network = Network((url,), 10.0)
        self.session = session
        self._url = url

    def keeper(self, *pubends: str) -> Keeper:
        return Keeper(self.network, self._url, "archive", "TRUE", pubends)

    def publish(self, pubend: str) -> int:
        with self.session.publisher(pubend) as publisher:
            return publisher.publish({"n": 1})[pubend]

    def publish_behind_the_reader(self, pubend: str) -> int:
        """Make a pubend, wait until the reader has begun on it, and publish what it keeps."""
        self.publish(pubend)
        self.kept_from(pubend)
        return self.publish(pubend)

    def reach(self, pubend: str, tick: int) -> None:
        """Wait until the broker of the reader knows a stream up to a tick."""
        keeper = self.keeper()

        def is_there() -> bool:
            strand = (keeper._strands() or {}).get(pubend)
            return strand is not None and (strand.horizon or 0) >= tick

        until(is_there, f"{pubend} is known up to {tick}")

    def kept_from(self, pubend: str) -> int:
        """After which tick the log is kept; the reader has to have begun on it."""
        keeper = self.keeper()
        until(lambda: pubend in (keeper.position() or {}), "the reader has begun")
        return (keeper.position() or {})[pubend]


@pytest.fixture
def desk() -> Iterator[Desk]:
    with SyncOverlay() as overlay, connect_sync(overlay.url()) as session:
        made = Desk(overlay.url(), session)
        yield made
        made.network.close()


def test_a_log_is_kept_from_what_was_committed_on(desk: Desk) -> None:
    first, second = desk.publish("quotes"), desk.publish("quotes")
    keeper = desk.keeper()
    keeper.keep({"quotes": 0})
    assert desk.kept_from("quotes") < first
    keeper.commit({"quotes": first})
    assert first <= desk.kept_from("quotes") < second


def test_of_pubends_that_the_query_leaves_out_nothing_is_kept(desk: Desk) -> None:
    read, unread = desk.publish("quotes"), desk.publish("orders")
    desk.keeper("quotes").keep({"quotes": 0})
    assert desk.kept_from("quotes") < read
    assert desk.kept_from("orders") >= unread


def test_what_comes_later_of_a_pubend_that_is_left_out_is_kept_until_the_next_commit(
    desk: Desk,
) -> None:
    done = desk.publish("quotes")
    keeper = desk.keeper("quotes")
    keeper.keep({"quotes": 0})
    unread = desk.publish_behind_the_reader("orders")
    assert desk.kept_from("orders") < unread
    desk.reach("orders", unread)
    keeper.commit({"quotes": done})
    assert desk.kept_from("orders") >= unread


def test_a_pubend_that_is_new_to_the_query_is_kept_for_it(desk: Desk) -> None:
    done = desk.publish("quotes")
    keeper = desk.keeper()
    keeper.keep({"quotes": 0})
    new = desk.publish_behind_the_reader("orders")
    assert desk.kept_from("orders") < new
    desk.reach("orders", new)
    keeper.commit({"quotes": done})  # of a batch that was planned before the new one was known
    assert desk.kept_from("orders") < new
    assert desk.kept_from("quotes") >= done
