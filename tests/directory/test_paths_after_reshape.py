"""The paths to pubends when the tree around a broker changes (R13)."""

from __future__ import annotations

from gapless.core.ids import PubendId
from gapless.core.machine import Context, Identity
from gapless.core.parameters import Parameters
from gapless.directory.announcements import UNCONFIRMED, Announcements
from gapless.directory.locations import PubendLocations
from gapless.messages.overlay import Announce, PubendProperties
from gapless.overlay.neighbourhood import Neighbourhood
from gapless.overlay.sessions import PeerSessions
from gapless.overlay.tree import Tree, TreeChange
from tests.overlay.small_world import neighbourhood_of

P = PubendId("P")


class Alone(PeerSessions):
    """The sessions of a broker that reaches the brokers that a test names."""

    def __init__(self) -> None:
        """Reach no broker."""
        self.reached: list[str] = []

    def open_peers(self) -> list[str]:
        return self.reached


class Room:
    """Announcements and their tree; keeps what the listener is told."""

    def __init__(self, near: Neighbourhood) -> None:
        self.context = Context(Identity(near.own, near.own, 1), Parameters(delta=0))
        self.tree = Tree(near)
        self.sessions = Alone()
        self.announced: list[PubendId] = []
        locations = PubendLocations(self.context, ())
        self.announcements = Announcements(self.context, self.tree, self.sessions, locations, self)
        self.received, self.get = self.announcements.received, self.announcements.get

    def pubend_announced(self, pubend: PubendId) -> None:
        self.announced.append(pubend)

    def pubend_redirected(self, pubend: PubendId) -> None:
        """The direction is read from the announcements."""

    def reshape(self, near: Neighbourhood) -> list[PubendId]:
        """Change the tree; return the pubends that were announced to the listener."""
        self.announced.clear()
        change = TreeChange(self.tree.neighbourhood, near, wider=False)
        self.tree.replace(near)
        self.announcements.reshape(change)
        return self.announced


def announcement(path: str, version: int = 1, shape_version: int = 1) -> Announce:
    properties = PubendProperties(path[-1], path[-1], "TRUE")
    return Announce(P, version, properties, tuple(path), shape_version=shape_version)


def path(room: Room) -> str | None:
    known = room.get(P)
    return None if known is None else "".join(known.path)


def test_a_cell_that_moves_reaches_what_it_left_through_its_new_neighbour() -> None:
    # i leaves j for k; the pubend is at m, behind j
    room = Room(neighbourhood_of("i", "ij", "jk", "jm"))
    room.received("j", announcement("jm"))
    assert room.reshape(neighbourhood_of("i", "ik", "kj", "jm", version=2)) == [P]
    assert path(room) == "kj", "Δ + 1 cells are kept"


def test_a_cell_that_moves_next_to_a_pubend_is_nearer_to_it() -> None:
    room = Room(neighbourhood_of("i", "ij", "jk"))
    room.received("j", announcement("jk"))
    room.reshape(neighbourhood_of("i", "ik", "kj", version=2))
    assert path(room) == "k"


def test_the_new_neighbour_finds_what_moved_where_it_is_now() -> None:
    room = Room(neighbourhood_of("k", "ij", "jk", "ix"))
    room.received("j", announcement("ji"))
    room.reshape(neighbourhood_of("k", "ik", "jk", "ix", version=2))
    assert path(room) == "i"


def test_a_way_that_has_not_changed_is_not_told_again() -> None:
    room = Room(neighbourhood_of("k", "ij", "jk"))
    room.received("j", announcement("j"))
    assert room.reshape(neighbourhood_of("k", "ik", "jk", version=2)) == []


def test_what_lay_behind_an_edge_that_is_gone_is_forgotten_until_it_is_announced_again() -> None:
    room = Room(neighbourhood_of("j", "ij", "jk"))
    room.received("i", announcement("ix"))
    assert room.reshape(neighbourhood_of("j", "jk", version=2)) == [P]
    assert room.get(P) is None
    assert room.received("k", announcement("ki"))


def test_how_the_way_goes_on_is_heard_from_the_direction_it_has() -> None:
    room = Room(neighbourhood_of("m", "mj", "ji"))
    room.received("j", announcement("ji"))
    assert room.received("j", announcement("jk"))
    assert path(room) == "jk"
    assert not room.received("j", announcement("jk")), "once"


def test_another_direction_is_not_believed_of_one_who_may_not_have_heard() -> None:
    room = Room(neighbourhood_of("k", "ik", "jk", i=2, j=2))
    room.received("i", announcement("i", shape_version=2))
    assert not room.received("j", announcement("jm", shape_version=1))
    assert not room.received("j", announcement("jm", shape_version=2)), (
        "the way that is known is confirmed"
    )
    assert path(room) == "i"


def test_a_way_from_before_a_change_gives_way_to_one_that_is_told_after_it() -> None:
    room = Room(neighbourhood_of("k", "ik", "jk", i=2, j=2))
    room.received("j", announcement("jm", shape_version=1))
    assert room.received("i", announcement("i", shape_version=2))
    assert path(room) == "i"


def test_a_way_from_before_a_change_is_confirmed_by_being_told_again() -> None:
    room = Room(neighbourhood_of("k", "ik", "jk", i=2, j=2))
    room.received("j", announcement("jm", shape_version=1))
    assert not room.received("j", announcement("jm", shape_version=2)), "it is no news"
    assert not room.received("i", announcement("i", shape_version=2))
    assert path(room) == "jm"


def test_a_way_is_confirmed_only_by_one_whose_own_way_is() -> None:
    room = Room(neighbourhood_of("k", "ik", "jk", i=2, j=2))
    room.received("j", announcement("jm", shape_version=1))
    assert not room.received("i", announcement("i", shape_version=UNCONFIRMED))
    assert path(room) == "jm"


def test_a_way_that_was_told_by_a_cell_that_is_gone_is_not_confirmed() -> None:
    room = Room(neighbourhood_of("k", "jk", "jm"))
    room.received("j", announcement("jm"))
    room.reshape(neighbourhood_of("k", "ik", "im", version=2, i=2))
    assert path(room) == "im"
    assert room.received("i", announcement("ij", shape_version=2))


def test_who_is_confirmed_says_so_and_who_is_not_does_not() -> None:
    room = Room(neighbourhood_of("k", "kj", "kn", j=2))
    room.sessions.reached = ["n"]
    room.received("j", announcement("jm", shape_version=1))
    room.received("j", announcement("jm", shape_version=2))
    room.received("j", announcement("jm", shape_version=2))
    ((_, messages),) = room.context.take_messages()
    assert [each.shape_version for each in messages] == [UNCONFIRMED, 1], "once each"


def test_what_is_told_in_a_shape_to_come_is_confirmed_when_it_is_there() -> None:
    room = Room(neighbourhood_of("k", "jk"))
    room.received("j", announcement("jm", shape_version=1))
    room.received("j", announcement("jm", shape_version=2))
    room.reshape(neighbourhood_of("k", "ik", "jk", version=2, j=2))
    assert not room.received("i", announcement("ij")), "j was ahead of this broker"
    assert path(room) == "jm"
