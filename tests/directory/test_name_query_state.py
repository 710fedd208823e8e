"""The states of a name query: every state with every input, and the class."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any, Final, cast

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)
from msgspec.structs import replace

from gapless.core.context import Context, Identity
from gapless.core.ids import BrokerId, CellId, ShbId
from gapless.core.parameters import Parameters, microseconds
from gapless.directory.name_query import NameQueries
from gapless.directory.name_query_state import (
    FINAL,
    TRANSITIONS,
    NameQueryInput,
    NameQueryState,
    next_state,
)
from gapless.directory.names import PubendNames
from gapless.messages.overlay import NameQuery, NameReply, NameStatus, ShapeVersion
from gapless.overlay.neighbourhood import Topology
from gapless.overlay.peers import Peers
from gapless.overlay.retirements import Retirements
from gapless.overlay.tree import Tree, TreeChange
from tests.cases import scaled

WAITING, DOUBTFUL = NameQueryState.WAITING, NameQueryState.DOUBTFUL
FREE, TAKEN, UNKNOWN = NameQueryState.FREE, NameQueryState.TAKEN, NameQueryState.UNKNOWN
RETRY = NameQueryState.RETRY

# --- the table ------------------------------------------------------------------------------------

EXPECTED: Final = {
    # (state, input): next state; no other pair is possible
    (WAITING, NameQueryInput.REPLY_FREE): WAITING,
    (WAITING, NameQueryInput.REPLY_UNKNOWN): DOUBTFUL,
    (WAITING, NameQueryInput.REPLY_TAKEN): TAKEN,
    (WAITING, NameQueryInput.REPLY_RETRY): RETRY,
    (WAITING, NameQueryInput.TREE_STEPPED): RETRY,
    (WAITING, NameQueryInput.ALL_REPLIED): FREE,
    (WAITING, NameQueryInput.TIMEOUT): UNKNOWN,
    (WAITING, NameQueryInput.OUTRANKED): TAKEN,
    (DOUBTFUL, NameQueryInput.REPLY_FREE): DOUBTFUL,
    (DOUBTFUL, NameQueryInput.REPLY_UNKNOWN): DOUBTFUL,
    (DOUBTFUL, NameQueryInput.REPLY_TAKEN): TAKEN,
    (DOUBTFUL, NameQueryInput.REPLY_RETRY): RETRY,
    (DOUBTFUL, NameQueryInput.TREE_STEPPED): RETRY,
    (DOUBTFUL, NameQueryInput.ALL_REPLIED): UNKNOWN,
    (DOUBTFUL, NameQueryInput.TIMEOUT): UNKNOWN,
    (DOUBTFUL, NameQueryInput.OUTRANKED): TAKEN,
}


@pytest.mark.parametrize("state", NameQueryState)
@pytest.mark.parametrize("happened", NameQueryInput)
def test_every_input_in_every_state_has_the_expected_next_state_or_is_refused(
    state: NameQueryState, happened: NameQueryInput
) -> None:
    expected = EXPECTED.get((state, happened))
    if expected is None:
        with pytest.raises(AssertionError, match=f"in state {state.name} takes no {happened.name}"):
            next_state(state, happened)
    else:
        assert next_state(state, happened) is expected


def test_a_state_is_final_if_it_takes_no_input() -> None:
    assert TRANSITIONS.keys() == set(NameQueryState)
    assert {FREE, TAKEN, UNKNOWN, RETRY} == FINAL


def test_a_name_is_free_only_if_all_brokers_have_replied_and_none_was_in_doubt() -> None:
    assert [pair for pair, state in EXPECTED.items() if state is FREE] == [
        (WAITING, NameQueryInput.ALL_REPLIED)
    ]


# --- the class ------------------------------------------------------------------------------------

ME: Final = "m"
CELLS: Final[dict[CellId, list[BrokerId]]] = {"own": [ME, "o"], "x": ["x1", "x2"], "y": ["y1"]}
PEERS: Final = ("o", "x1", "x2", "y1")
REPLIES: Final = {
    NameStatus.FREE: NameQueryInput.REPLY_FREE,
    NameStatus.UNKNOWN: NameQueryInput.REPLY_UNKNOWN,
    NameStatus.TAKEN: NameQueryInput.REPLY_TAKEN,
    NameStatus.RETRY: NameQueryInput.REPLY_RETRY,
}
RESULTS: Final = {
    FREE: NameStatus.FREE,
    TAKEN: NameStatus.TAKEN,
    UNKNOWN: NameStatus.UNKNOWN,
    RETRY: NameStatus.UNKNOWN,  # no time is left to query anew
}
PARAMETERS: Final = Parameters(name_query_retry_ms=Parameters().name_query_timeout_ms)
TIMEOUT_US: Final = microseconds(ms=PARAMETERS.name_query_timeout_ms)


class Reach:
    """The peers that have an open session."""

    def __init__(self) -> None:
        self.open: set[BrokerId] = set()

    def is_open(self, peer: BrokerId) -> bool:
        return peer in self.open

    def open_in(self, brokers: Iterable[BrokerId]) -> list[BrokerId]:
        return [each for each in brokers if each in self.open]


class NobodyRetired:
    """No broker was ever retired."""

    def is_recent(self, shb: ShbId) -> bool:
        del shb
        return False


class NoNames:
    """This broker itself knows no pubend."""

    def broker_of_name(self, name: str) -> BrokerId | None:
        del name
        return None

    def is_remembered(self, name: str) -> bool:
        del name
        return False


class QueryModel:
    """A query that follows the table: the groups without a reply, and the state."""

    def __init__(self, *groups: tuple[BrokerId, ...]) -> None:
        self.state = WAITING
        self.open = [*groups]
        """The groups of which no broker has replied."""
        self.queried: dict[BrokerId, tuple[BrokerId, ...]] = {}
        """The brokers from which a reply is outstanding, each with its group."""

    def take(self, happened: NameQueryInput) -> None:
        self.state = next_state(self.state, happened)

    def replied(self, peer: BrokerId, status: NameStatus) -> None:
        """Take a reply of a peer, unless none is outstanding."""
        group = self.queried.pop(peer, None)
        if group is None or self.state in FINAL:
            return
        self.open.remove(group)
        self.take(REPLIES[status])
        if not self.open and self.state not in FINAL:
            self.take(NameQueryInput.ALL_REPLIED)


class NameQueryMachine(RuleBasedStateMachine):
    """A query of this broker and one of another, with random replies, sessions and rivals."""

    def __init__(self) -> None:
        super().__init__()
        self.context = Context(Identity(ME, "own", 1), PARAMETERS)
        self.reach = Reach()
        topology = Topology.of(CELLS, [("own", "x"), ("own", "y")])
        self.tree = topology.neighbourhood("own", 1)
        self.queries = NameQueries(
            self.context,
            Tree(self.tree),
            cast(Peers, self.reach),
            cast(Retirements, NobodyRetired()),
            cast(PubendNames, NoNames()),
        )
        self.models: dict[Any, QueryModel] = {}
        self.reported: list[tuple[NameStatus, BrokerId]] = []
        self.own = (ME, 1, 1)
        self.numbers = itertools.count(1)

    # --- inputs ----------------------------------------------------------------------------------

    @initialize(opened=st.sets(st.sampled_from(PEERS)))
    def query(self, opened: set[BrokerId]) -> None:
        """This broker queries one name; a broker behind x queries another."""
        self.reach.open = opened | {"x1"}
        self.models[self.own] = QueryModel(("o",), ("x1", "x2"), ("y1",))
        self.queries.query("mine", lambda *result: self.reported.append(result))
        query = NameQuery("theirs", "q", 1, 1)
        self.models[query.key] = QueryModel(("o",), ("y1",))
        self.queries.query_received("x1", query)
        self.collect()

    @rule(
        key=st.sampled_from([(ME, 1, 1), ("q", 1, 1)]),
        peer=st.sampled_from(PEERS),
        status=st.sampled_from(NameStatus),
    )
    def reply(self, key: tuple[BrokerId, int, int], peer: BrokerId, status: NameStatus) -> None:
        """A peer replies, queried or not."""
        self.models[key].replied(peer, status)
        self.queries.reply_received(peer, NameReply(key, status, peer))
        self.collect()

    @rule(peer=st.sampled_from(PEERS))
    def open_session(self, peer: BrokerId) -> None:
        if peer not in self.reach.open:
            self.reach.open.add(peer)
            self.queries.session_opened()
            self.collect()

    @rule(peer=st.sampled_from(PEERS))
    def close_session(self, peer: BrokerId) -> None:
        if peer in self.reach.open:
            self.reach.open.remove(peer)
            for model in self.models.values():
                model.queried.pop(peer, None)
            self.queries.session_closed(peer)
            self.collect()

    @rule(requester=st.sampled_from(["a", "z"]))
    def query_the_same_name(self, requester: BrokerId) -> None:
        """Another broker with a lesser or a greater name queries the same name."""
        model = self.models[self.own]
        was_pending = model.state not in FINAL
        if was_pending and requester < ME:
            model.take(NameQueryInput.OUTRANKED)
        query = NameQuery("mine", requester, 1, next(self.numbers))
        self.queries.query_received("y1", query)
        sent = self.collect()
        if was_pending and requester > ME:
            refusal = NameReply(query.key, NameStatus.TAKEN, ME)
            assert ("y1", refusal) in sent or "y1" not in self.reach.open

    @rule(own=st.booleans())
    def step(self, own: bool) -> None:
        """The epoch of an edge changes, of the own cell or of another one."""
        epoch = ShapeVersion(count=2)
        changed = tuple(
            replace(record, edges=tuple(replace(edge, epoch=epoch) for edge in record.edges))
            if own or "own" not in (record.name, *record.neighbours)
            else record
            for record in self.tree.cells
        )
        for model in self.models.values():
            if own and model.state not in FINAL:
                model.take(NameQueryInput.TREE_STEPPED)
        change = TreeChange(self.tree, replace(self.tree, cells=changed))
        self.queries.reshape(change)
        self.collect()

    @rule(part=st.sampled_from([1, 3]))
    def wait(self, part: int) -> None:
        """A part of the timeout passes; after the whole timeout no query is pending."""
        self.context.now += TIMEOUT_US // part
        if self.context.now >= TIMEOUT_US:
            for model in self.models.values():
                if model.state not in FINAL:
                    model.take(NameQueryInput.TIMEOUT)
        self.context.run_timers()
        self.collect()

    def collect(self) -> list[tuple[BrokerId, Any]]:
        """Note which brokers are queried; return the messages by peer."""
        sent = [(peer, each) for peer, box in self.context.take_messages() for each in box]
        for peer, message in sent:
            assert self.reach.is_open(peer)
            model = self.models.get(message.key)
            if model is not None and isinstance(message, NameQuery):
                (group,) = [each for each in model.open if peer in each]
                assert group not in model.queried.values(), "one broker of a group is queried"
                model.queried[peer] = group
        return sent

    # --- agreement -------------------------------------------------------------------------------

    @invariant()
    def the_class_is_in_the_state_of_the_table(self) -> None:
        for key, model in self.models.items():
            pending = self.queries._questions.gathering(NameQuery, key)
            assert (pending is None) == (model.state in FINAL)
            if pending is not None:
                assert cast(Any, pending).state is model.state

    @invariant()
    def the_result_is_reported_once_and_is_the_final_state(self) -> None:
        own = self.models.get(self.own)
        expected = [] if own is None or own.state not in FINAL else [RESULTS[own.state]]
        assert [status for status, _ in self.reported] == expected

    @invariant()
    def one_broker_of_every_group_that_can_be_reached_is_queried(self) -> None:
        for model in self.models.values():
            if model.state not in FINAL:
                reached = [group for group in model.open if self.reach.open_in(group)]
                assert sorted(model.queried.values()) == sorted(reached)


def test_name_queries_agree_with_the_table() -> None:
    limits = settings(max_examples=scaled(200), stateful_step_count=25)
    run_state_machine_as_test(NameQueryMachine, settings=limits)
