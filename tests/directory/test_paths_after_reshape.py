"""The paths to pubends when the tree around a broker changes (R13)."""

from __future__ import annotations

from gapless.core.context import Context, Identity
from gapless.core.ids import PubendId
from gapless.core.parameters import Parameters
from gapless.directory.announcements import UNCONFIRMED, Announcements
from gapless.directory.locations import PubendLocations
from gapless.messages.overlay import FIRST_SHAPE, Announce, PubendProperties, ShapeVersion
from gapless.overlay.neighbourhood import Neighbourhood, Topology
from gapless.overlay.sessions import PeerSessions
from gapless.overlay.tree import Tree, TreeChange
from tests.overlay.small_world import neighbourhood_of
from tests.shape_versions import shape

P = PubendId("P")


class FakeSessions(PeerSessions):
    """Sessions with the brokers that a test names."""

    def __init__(self) -> None:
        """Reach no broker."""
        self.reached: list[str] = []

    def open_peers(self) -> list[str]:
        return self.reached


class Directory:
    """Announcements and their tree; records the calls of the listener."""

    def __init__(self, near: Neighbourhood) -> None:
        self.context = Context(Identity(near.own, near.own, 1), Parameters(delta=0))
        self.tree = Tree(near)
        self.sessions = FakeSessions()
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
        change = TreeChange(self.tree.neighbourhood, near)
        self.tree.replace(near)
        self.announcements.reshape(change)
        return self.announced


def announcement(
    path: str, version: int = 1, shape_version: ShapeVersion = FIRST_SHAPE
) -> Announce:
    properties = PubendProperties(path[-1], path[-1], "TRUE")
    return Announce(P, version, properties, tuple(path), shape_version=shape_version)


def path(directory: Directory) -> str | None:
    known = directory.get(P)
    return None if known is None else "".join(known.path)


def test_a_moved_cell_reaches_pubends_behind_its_old_neighbour_through_the_new_one() -> None:
    # i leaves j for k; the pubend is at m, behind j
    directory = Directory(neighbourhood_of("i", "ij", "jk", "jm"))
    directory.received("j", announcement("jm"))
    assert directory.reshape(neighbourhood_of("i", "ik", "kj", "jm", version=2)) == [P]
    assert path(directory) == "kj", "Δ + 1 cells are stored"


def test_a_cell_that_moves_next_to_a_pubend_has_a_shorter_path() -> None:
    directory = Directory(neighbourhood_of("i", "ij", "jk"))
    directory.received("j", announcement("jk"))
    directory.reshape(neighbourhood_of("i", "ik", "kj", version=2))
    assert path(directory) == "k"


def test_the_new_neighbour_has_a_path_to_the_moved_pubend() -> None:
    directory = Directory(neighbourhood_of("k", "ij", "jk", "ix"))
    directory.received("j", announcement("ji"))
    directory.reshape(neighbourhood_of("k", "ik", "jk", "ix", version=2))
    assert path(directory) == "i"


def test_an_unchanged_path_is_not_announced_again() -> None:
    directory = Directory(neighbourhood_of("k", "ij", "jk"))
    directory.received("j", announcement("j"))
    assert directory.reshape(neighbourhood_of("k", "ik", "jk", version=2)) == []


def test_a_pubend_behind_a_removed_edge_is_forgotten_until_it_is_announced_again() -> None:
    directory = Directory(neighbourhood_of("j", "ij", "jk"))
    directory.received("i", announcement("ix"))
    assert directory.reshape(neighbourhood_of("j", "jk", version=2)) == [P]
    assert directory.get(P) is None
    assert directory.received("k", announcement("ki"))


def test_a_longer_path_is_accepted_from_the_direction_of_the_pubend() -> None:
    directory = Directory(neighbourhood_of("m", "mj", "ji"))
    directory.received("j", announcement("ji"))
    assert directory.received("j", announcement("jk"))
    assert path(directory) == "jk"
    assert not directory.received("j", announcement("jk")), "only once"


def test_another_direction_is_refused_from_a_sender_with_an_older_shape() -> None:
    directory = Directory(neighbourhood_of("k", "ik", "jk", i=2, j=2))
    directory.received("i", announcement("i", shape_version=shape(2)))
    assert not directory.received("j", announcement("jm", shape_version=shape(1)))
    assert not directory.received("j", announcement("jm", shape_version=shape(2))), (
        "the known path is confirmed"
    )
    assert path(directory) == "i"


def test_a_path_from_before_a_reshape_is_replaced_by_one_announced_after_it() -> None:
    directory = Directory(neighbourhood_of("k", "ik", "jk", i=2, j=2))
    directory.received("j", announcement("jm", shape_version=shape(1)))
    assert directory.received("i", announcement("i", shape_version=shape(2)))
    assert path(directory) == "i"


def test_a_path_from_before_a_reshape_is_confirmed_when_it_is_announced_again() -> None:
    directory = Directory(neighbourhood_of("k", "ik", "jk", i=2, j=2))
    directory.received("j", announcement("jm", shape_version=shape(1)))
    assert not directory.received("j", announcement("jm", shape_version=shape(2))), (
        "the announcement is not new"
    )
    assert not directory.received("i", announcement("i", shape_version=shape(2)))
    assert path(directory) == "jm"


def test_an_unconfirmed_announcement_does_not_replace_a_path() -> None:
    directory = Directory(neighbourhood_of("k", "ik", "jk", i=2, j=2))
    directory.received("j", announcement("jm", shape_version=shape(1)))
    assert not directory.received("i", announcement("i", shape_version=UNCONFIRMED))
    assert path(directory) == "jm"


def test_a_path_announced_by_a_removed_cell_is_not_confirmed() -> None:
    directory = Directory(neighbourhood_of("k", "jk", "jm"))
    directory.received("j", announcement("jm"))
    directory.reshape(neighbourhood_of("k", "ik", "im", version=2, i=2))
    assert path(directory) == "im"
    assert directory.received("i", announcement("ij", shape_version=shape(2)))


def test_announcements_state_whether_their_path_is_confirmed() -> None:
    directory = Directory(neighbourhood_of("k", "kj", "kn", j=2))
    directory.sessions.reached = ["n"]
    directory.received("j", announcement("jm", shape_version=shape(1)))
    directory.received("j", announcement("jm", shape_version=shape(2)))
    directory.received("j", announcement("jm", shape_version=shape(2)))
    ((_, messages),) = directory.context.take_messages()
    assert [each.shape_version for each in messages] == [UNCONFIRMED, FIRST_SHAPE], "each sent once"


def test_a_path_announced_in_a_future_shape_is_confirmed_when_the_shape_is_applied() -> None:
    directory = Directory(neighbourhood_of("k", "jk"))
    directory.received("j", announcement("jm", shape_version=shape(1)))
    directory.received("j", announcement("jm", shape_version=shape(2)))
    directory.reshape(neighbourhood_of("k", "ik", "jk", version=2, j=2))
    assert not directory.received("i", announcement("ij")), "j was ahead of this broker"
    assert path(directory) == "jm"


def test_a_path_from_a_cellmate_is_not_told_to_other_cellmates() -> None:
    # else two paths in one direction would go around for ever among three brokers of a cell
    tree = Topology.of({"i": ["i", "i2", "i3"], "j": ["j"], "x": ["x"]}, [("i", "j"), ("i", "x")])
    directory = Directory(tree.neighbourhood("i", radius=1))
    directory.sessions.reached = ["i2", "i3", "x"]
    directory.received("j", announcement("jm"))
    assert told(directory, "i2") == told(directory, "i3") == 1, "what comes from outside"
    assert told(directory, "x") == 1
    directory.received("i2", announcement("jk"))
    assert path(directory) == "jk"
    assert told(directory, "i3") == 0
    assert told(directory, "x") == 1
    directory.received("i2", announcement("jk", version=2))
    assert told(directory, "i3") == 1, "a new version goes everywhere"


def told(directory: Directory, peer: str) -> int:
    """Return how many announcements a peer is sent."""
    return len(directory.context.take_messages_to(peer))
