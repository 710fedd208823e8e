"""Propagation: who wants what, brought to where it is filtered, and whether that suffices.

Theory of operation
-------------------
Every broker that hosts subscribers has a **leaf table** (:mod:`.leaf`): the roots of the covering
forest of all that its subscribers want, and one entry, its virtual time. A new subscription gets a
virtual start time from the forest; it has started on a stream where the stream's vector has
reached that time.

News travels as **tables** (:mod:`.table`): one broker's conjunctions, its vector of entries, and
the pubends for which it is complete, changed together from version to version. Copies are asked
for by the receiver and brought up to date by deltas that apply to exactly one version, else by the
whole table (:mod:`.transfer`).

A router holds the tables that came over each **edge** (:mod:`.edge`), side by side, also old ones
of brokers that are gone for the moment (:mod:`.stale_tables`). From those of all other edges it computes
the **out-table** of a direction (:mod:`.out_table`): covered and merged (:mod:`.cover`), pruned by
the advertisements of the pubends that lie there. :mod:`.table_store` puts all tables of a broker
together.

A piece of a stream is filtered for a receiver if what is held is **sufficient** for the stream's
vector (:mod:`.sufficiency`): for every host that may be behind the receiver, a table claims as much
as the vector demands, at the piece's control version. If not, everything passes. One match of an
event gives the tables that want it (:mod:`.index`), and the receiver's mask decides.

Everything here is passive: no messages are sent, no timers run, no disk is written.

Invariants
----------
- *S-Λ* (I4): what a table claims of a host for a pubend, its conjunctions cover. It holds for a
  leaf's table because versions contain the roots of everything owned, for an out-table because it
  is taken in one step from tables for which it holds, for a copy because it is a copy.
- *Copies* (I5): a table that is held equals its sender's of that life and version, or is legacy.
- *Limits* (I14): an edge holds at most one table a broker of its direction, and a legacy table; a
  table says at most its budget of conjunctions.
- Stale state forwards too much, never too little. Dropping a table is always safe.
- Nothing depends on the order of hashes: the same calls give the same messages in every process.

Papers: virtual times and the conjunction graph (VT 4.1.1 to 4.1.4); incremental changes and their
constraint, here a base version (VT 4.1.5, 4.1.6, 4.2.2); sufficiency (VT 3.2.3, 4.1.7, 4.2.3);
start points (VT 4.1.8); recovery from crashes, loss, reordering and duplication (VT 4.3); merging
(VT 3.5). Where VT has one broker of a node speak for all, tables of several stand side by side;
where it slices vectors by what a broker knows, an unknown place counts everywhere.
"""

from gapless.propagation.edge import Edge, HeldTable
from gapless.propagation.leaf import LeafTable
from gapless.propagation.out_table import OutTable
from gapless.propagation.sufficiency import NeighbourhoodPaths, Receiver, TableChooser
from gapless.propagation.table import SubscriptionTable
from gapless.propagation.table_store import TableStore
from gapless.propagation.transfer import TableReceiver, TableSender, TransferOutcome
from gapless.stream.epochs import StreamVector

__all__ = [
    "Edge",
    "HeldTable",
    "LeafTable",
    "NeighbourhoodPaths",
    "OutTable",
    "Receiver",
    "StreamVector",
    "SubscriptionTable",
    "TableChooser",
    "TableReceiver",
    "TableSender",
    "TableStore",
    "TransferOutcome",
]
