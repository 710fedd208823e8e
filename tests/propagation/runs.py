"""Random runs of a world of tables, with the oracle looking at every step.

Fault budget: links lose, repeat and reorder; brokers restart with nothing; sources are replaced,
also by brokers beyond the next cell; pubends are heard of late and in any order; old tables expire.
What is not here: changes of the tree.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import ClassVar

from gapless.core.ids import Entry, PubendId, ShbId
from gapless.core.parameters import Parameters
from gapless.messages.propagation import TableDelta, TableFull
from gapless.propagation import Outcome, Vector
from tests.propagation.oracle import ADVERTISEMENTS, FILTERS, Truth
from tests.propagation.world import World

STEPS = 120
VECTORS_KEPT = 3
PARAMETERS = Parameters(
    table_conjunctions_max=4, delta_log_max=3, frame_bytes_max=200, legacy_ttl_s=400, delta=1
)


class Run:
    """One random run."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        cells = [f"c{number}" for number in range(self.dice.randint(2, 6))]
        neighbours: dict[str, tuple[str, ...]] = {cells[0]: ()}
        for number, cell in enumerate(cells[1:], 1):
            # long trees, so that hosts lie outside neighbourhoods
            parent = cells[max(0, number - self.dice.choice((1, 1, 2)))]
            neighbours[parent] = (*neighbours[parent], cell)
            neighbours[cell] = (parent,)
        brokers = {f"{cell}.0": cell for cell in cells}
        brokers |= {f"{cell}.1": cell for cell in cells if self.dice.random() < 0.2}
        self.world = World(neighbours, brokers, parameters=PARAMETERS)
        self.truth = Truth(self.world)
        self.owners = 0
        self.mail: list[tuple[str, str, TableFull | TableDelta]] = []
        self.vectors: dict[PubendId, list[Vector]] = {}
        for number in range(self.dice.randint(1, 3)):
            self.open_pubend(f"p{number}")

    def step(self) -> None:
        action, times = self.dice.choice(self.ACTIONS)
        for _ in range(self.dice.randint(1, times)):
            action(self)
        for broker in self.world.brokers.values():
            if self.dice.random() < 0.7:
                broker.leaf.flush()
                broker.holdings.flush()
        self.promise()
        self.truth.check(self.vectors)
        self.truth.check_index(self.world[self.broker()])

    def broker(self) -> str:
        return self.dice.choice(sorted(self.world.brokers))

    # --- what happens ----------------------------------------------------------------------------

    def open_pubend(self, name: str) -> None:
        home = self.dice.choice(sorted(self.world.cells))
        self.world.advertise(name, home, self.dice.choice(ADVERTISEMENTS), heard_by=())

    def widen(self) -> None:
        pubend = self.dice.choice(sorted(self.world.pubends))
        home, adverts = self.world.pubends[pubend]
        if len(adverts) < 3:
            newest = adverts[len(adverts)]
            wider = f"{newest} OR {self.dice.choice(ADVERTISEMENTS[:-1])}" if newest else ""
            self.world.advertise(pubend.name, home, wider, heard_by=())

    def hear(self) -> None:
        pubend = self.dice.choice(sorted(self.world.pubends))
        version = self.dice.choice(sorted(self.world.pubends[pubend][1]))
        self.world[self.broker()].hear(pubend, version)

    def subscribe(self) -> None:
        broker = self.world[self.broker()]
        self.owners += 1
        text = self.dice.choice(FILTERS)
        start = broker.subscribe(f"x{self.owners}", text)
        self.truth.wishes.setdefault(broker.shb, {})[f"x{self.owners}"] = (text, start)

    def unsubscribe(self) -> None:
        broker = self.world[self.broker()]
        wishes = self.truth.wishes.get(broker.shb, {})
        if wishes:
            owner = self.dice.choice(sorted(wishes))
            broker.leaf.disown(owner)
            del wishes[owner]

    def ask(self) -> None:
        """Somebody asks somebody for a table; the answer is in the mail, or lost."""
        asker = self.world[self.broker()]
        near = [
            name
            for name, other in sorted(self.world.brokers.items())
            if asker.around.path_to(other.cell) is not None
        ]
        sender = self.dice.choice(near)
        want = self.world.want(asker.name, sender)
        for message in self.world.answer(asker.name, sender, want):
            self.post(asker.name, sender, message)

    def post(self, asker: str, sender: str, message: TableFull | TableDelta) -> None:
        for _ in range(self.dice.choice((0, 1, 1, 1, 2))):
            self.mail.append((asker, sender, message))

    def deliver(self) -> None:
        if not self.mail:
            return
        first = self.dice.random() < 0.7
        asker, sender, message = self.mail.pop(0 if first else self.dice.randrange(len(self.mail)))
        if asker not in self.world.brokers or sender not in self.world.brokers:
            return
        if self.world[sender].life != message.table.life:
            return  # sessions are fenced by lives
        edge = self.world.sender(self.world[asker], self.world[sender])[0]
        if edge.receive(sender, message) is Outcome.WANT:
            want = self.world.want(asker, sender)
            for answer in self.world.answer(asker, sender, want):
                self.post(asker, sender, answer)

    def heartbeat(self) -> None:
        asker = self.world[self.broker()]
        for edge in asker.holdings.edges.values():
            for name in edge.sources():
                if name in self.world.brokers:
                    state = self.world.sender(asker, self.world[name])[1].state()
                    if edge.told(name, state) is Outcome.WANT:
                        want = self.world.want(asker.name, name)
                        for answer in self.world.answer(asker.name, name, want):
                            self.post(asker.name, name, answer)

    def restart(self) -> None:
        name = self.broker()
        self.mail = [mail for mail in self.mail if mail[0] != name]
        self.truth.wishes.pop(self.world[name].shb, None)
        self.world.start(name)

    def lapse(self) -> None:
        asker = self.world[self.broker()]
        edge = self.dice.choice(sorted(asker.holdings.edges.values(), key=lambda edge: edge.name))
        for name in edge.sources()[:1]:
            edge.lapse(name, self.world.now)
            if self.dice.random() < 0.3:
                edge.fold(name, self.world.now)

    def tidy(self) -> None:
        self.world.now += self.dice.choice((1, 1_000_000, 300_000_000))
        self.world[self.broker()].holdings.tidy(self.world.now)

    def converge(self) -> None:
        """For a while nothing is lost."""
        for name in sorted(self.world.brokers):
            for pubend in self.world.pubends:
                if self.dice.random() < 0.9:
                    self.world[name].hear(pubend)
        links = self.world.links()
        self.dice.shuffle(links)
        for asker, sender in links * self.dice.choice((1, 2, 3)):
            self.world.exchange(asker, sender)

    def promise(self) -> None:
        """Let each pubend's broker make its vector as great as its tables allow (R31)."""
        for pubend, (home, adverts) in self.world.pubends.items():
            name = self.world.brokers_of(home)[0]
            if name not in self.world.brokers:
                continue
            known = self.vectors.setdefault(pubend, [Vector(1, 1, {})])
            entries: dict[ShbId, Entry] = dict(known[-1].entries)
            version = max(known[-1].announcement_version, self.dice.choice(sorted(adverts)))
            for shb, claim in self.world[name].claims(pubend, version).items():
                if shb not in entries or claim.time > entries[shb].time:
                    entries[shb] = claim
            if (entries, version) != (known[-1].entries, known[-1].announcement_version):
                known.append(Vector(known[-1].regime + 1, version, entries))
                del known[:-VECTORS_KEPT]

    ACTIONS: ClassVar[list[tuple[Callable[[Run], None], int]]] = [
        (subscribe, 2),
        (subscribe, 2),
        (unsubscribe, 1),
        (hear, 3),
        (ask, 6),
        (ask, 6),
        (deliver, 12),
        (deliver, 12),
        (deliver, 12),
        (heartbeat, 1),
        (converge, 1),
        (restart, 1),
        (restart, 1),
        (lapse, 1),
        (tidy, 1),
        (widen, 1),
    ]


def play(seeds: Iterable[int]) -> int:
    """Play runs; return on how many routes something that was owed had to pass a filter."""
    filtered = 0
    for seed in seeds:
        run = Run(seed)
        for _ in range(STEPS):
            run.step()
        filtered += run.truth.filtered
    return filtered
