"""Random runs of a world of tables; the oracle checks every step.

Fault budget: links lose, repeat and reorder; brokers restart with empty state; sources are replaced,
also by brokers beyond the next cell; announcements arrive late and in any order; stale tables expire.
Changes of the tree are not included.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import ClassVar

from gapless.core.ids import PubendId, ShbId, VectorEntry
from gapless.core.parameters import Parameters
from gapless.messages.propagation import TableDelta, TableFull
from gapless.propagation import StreamVector, TransferOutcome
from tests.propagation.oracle import ADVERTISEMENTS, FILTERS, Oracle
from tests.propagation.world import World

STEPS = 120
VECTORS_KEPT = 3
PARAMETERS = Parameters(
    table_conjunctions_max=4, delta_log_max=3, frame_bytes_max=200, stale_table_ttl_s=400, delta=1
)


class Run:
    """One random run."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        cells = [f"c{number}" for number in range(self.dice.randint(2, 6))]
        neighbours: dict[str, tuple[str, ...]] = {cells[0]: ()}
        for number, cell in enumerate(cells[1:], 1):
            # long trees, so that SHBs lie outside neighbourhoods
            parent = cells[max(0, number - self.dice.choice((1, 1, 2)))]
            neighbours[parent] = (*neighbours[parent], cell)
            neighbours[cell] = (parent,)
        brokers = {f"{cell}.0": cell for cell in cells}
        brokers |= {f"{cell}.1": cell for cell in cells if self.dice.random() < 0.2}
        self.world = World(neighbours, brokers, parameters=PARAMETERS)
        self.oracle = Oracle(self.world)
        self.owners = 0
        self.mail: list[tuple[str, str, TableFull | TableDelta]] = []
        self.vectors: dict[PubendId, list[StreamVector]] = {}
        for number in range(self.dice.randint(1, 3)):
            self.open_pubend(f"p{number}")

    def step(self) -> None:
        action, times = self.dice.choice(self.ACTIONS)
        for _ in range(self.dice.randint(1, times)):
            action(self)
        for broker in self.world.brokers.values():
            if self.dice.random() < 0.7:
                broker.leaf.flush()
                broker.table_store.flush()
        self.promise()
        self.oracle.check(self.vectors)
        self.oracle.check_index(self.world[self.broker()])

    def broker(self) -> str:
        return self.dice.choice(sorted(self.world.brokers))

    # --- actions ---------------------------------------------------------------------------------

    def open_pubend(self, name: str) -> None:
        phb_cell = self.dice.choice(sorted(self.world.cells))
        self.world.advertise(name, phb_cell, self.dice.choice(ADVERTISEMENTS), known_to=())

    def widen(self) -> None:
        pubend = self.dice.choice(sorted(self.world.pubends))
        phb_cell, adverts = self.world.pubends[pubend]
        if len(adverts) < 3:
            newest = adverts[len(adverts)]
            wider = f"{newest} OR {self.dice.choice(ADVERTISEMENTS[:-1])}" if newest else ""
            self.world.advertise(pubend.name, phb_cell, wider, known_to=())

    def learn(self) -> None:
        pubend = self.dice.choice(sorted(self.world.pubends))
        version = self.dice.choice(sorted(self.world.pubends[pubend][1]))
        self.world[self.broker()].learn(pubend, version)

    def subscribe(self) -> None:
        broker = self.world[self.broker()]
        self.owners += 1
        text = self.dice.choice(FILTERS)
        start = broker.subscribe(f"x{self.owners}", text)
        self.oracle.filters.setdefault(broker.shb, {})[f"x{self.owners}"] = (text, start)

    def unsubscribe(self) -> None:
        broker = self.world[self.broker()]
        filters = self.oracle.filters.get(broker.shb, {})
        if filters:
            owner = self.dice.choice(sorted(filters))
            broker.leaf.disown(owner)
            del filters[owner]

    def ask(self) -> None:
        """A random broker requests a table from another; the answer is in transit, or lost."""
        requester = self.world[self.broker()]
        near = [
            name
            for name, other in sorted(self.world.brokers.items())
            if requester.paths.path_to(other.cell) is not None
        ]
        sender = self.dice.choice(near)
        request = self.world.request(requester.name, sender)
        for message in self.world.answer(requester.name, sender, request):
            self.post(requester.name, sender, message)

    def post(self, requester: str, sender: str, message: TableFull | TableDelta) -> None:
        for _ in range(self.dice.choice((0, 1, 1, 1, 2))):
            self.mail.append((requester, sender, message))

    def deliver(self) -> None:
        if not self.mail:
            return
        first = self.dice.random() < 0.7
        requester, sender, message = self.mail.pop(
            0 if first else self.dice.randrange(len(self.mail))
        )
        if requester not in self.world.brokers or sender not in self.world.brokers:
            return
        if self.world[sender].incarnation != message.table.incarnation:
            return  # sessions are fenced by incarnations
        edge = self.world.sender(self.world[requester], self.world[sender])[0]
        if edge.receive(sender, message) is TransferOutcome.REQUEST:
            request = self.world.request(requester, sender)
            for answer in self.world.answer(requester, sender, request):
                self.post(requester, sender, answer)

    def heartbeat(self) -> None:
        requester = self.world[self.broker()]
        for edge in requester.table_store.edges.values():
            for name in edge.sources():
                if name in self.world.brokers:
                    state = self.world.sender(requester, self.world[name])[1].state()
                    if edge.compare_state(name, state) is TransferOutcome.REQUEST:
                        request = self.world.request(requester.name, name)
                        for answer in self.world.answer(requester.name, name, request):
                            self.post(requester.name, name, answer)

    def restart(self) -> None:
        name = self.broker()
        self.mail = [mail for mail in self.mail if mail[0] != name]
        self.oracle.filters.pop(self.world[name].shb, None)
        self.world.start(name)

    def mark_stale(self) -> None:
        requester = self.world[self.broker()]
        edge = self.dice.choice(
            sorted(requester.table_store.edges.values(), key=lambda edge: edge.name)
        )
        for name in edge.sources()[:1]:
            edge.mark_stale(name, self.world.now)
            if self.dice.random() < 0.3:
                edge.merge_stale(name, self.world.now)

    def drop_stale(self) -> None:
        self.world.now += self.dice.choice((1, 1_000_000, 300_000_000))
        self.world[self.broker()].table_store.drop_stale(self.world.now)

    def converge(self) -> None:
        """Lose nothing for a while."""
        for name in sorted(self.world.brokers):
            for pubend in self.world.pubends:
                if self.dice.random() < 0.9:
                    self.world[name].learn(pubend)
        links = self.world.links()
        self.dice.shuffle(links)
        for requester, sender in links * self.dice.choice((1, 2, 3)):
            self.world.exchange(requester, sender)

    def promise(self) -> None:
        """Let each PHB make its vector as great as its tables allow (R31)."""
        for pubend, (phb_cell, adverts) in self.world.pubends.items():
            name = self.world.brokers_of(phb_cell)[0]
            if name not in self.world.brokers:
                continue
            known = self.vectors.setdefault(pubend, [StreamVector(1, 1, {})])
            entries: dict[ShbId, VectorEntry] = dict(known[-1].entries)
            version = max(known[-1].announcement_version, self.dice.choice(sorted(adverts)))
            for shb, claim in self.world[name].claims(pubend, version).items():
                if shb not in entries or claim.time > entries[shb].time:
                    entries[shb] = claim
            if (entries, version) != (known[-1].entries, known[-1].announcement_version):
                known.append(StreamVector(known[-1].stream_epoch + 1, version, entries))
                del known[:-VECTORS_KEPT]

    ACTIONS: ClassVar[list[tuple[Callable[[Run], None], int]]] = [
        (subscribe, 2),
        (subscribe, 2),
        (unsubscribe, 1),
        (learn, 3),
        (ask, 6),
        (ask, 6),
        (deliver, 12),
        (deliver, 12),
        (deliver, 12),
        (heartbeat, 1),
        (converge, 1),
        (restart, 1),
        (restart, 1),
        (mark_stale, 1),
        (drop_stale, 1),
        (widen, 1),
    ]


def play(seeds: Iterable[int]) -> int:
    """Play runs; return the number of routes on which a required event had to pass a filter."""
    filtered = 0
    for seed in seeds:
        run = Run(seed)
        for _ in range(STEPS):
            run.step()
        filtered += run.oracle.filtered
    return filtered
