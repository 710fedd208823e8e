"""Propagation of subscriptions to the routers, and the test whether a router may filter.

Theory of operation
-------------------
Every SHB has a **leaf table** (:mod:`.leaf`): the roots of the covering forest of its
subscriptions' conjunctions, and one entry, its virtual time. A new subscription gets a virtual
start time from the forest. It starts on a stream when the stream's vector reaches that time.

Subscriptions are sent as **tables** (:mod:`.table`): one broker's conjunctions, its vector of
entries, and the pubends for which the table is complete. All of these change together from version
to version. A receiver requests a table and updates its copy by deltas, each of which applies to
exactly one version. If no delta fits, it gets the full table (:mod:`.transfer`).

A router holds the tables received over each **edge** (:mod:`.edge`), also stale ones of brokers
that are not reachable (:mod:`.stale_tables`). From the tables of all other edges it computes the
**out-table** of a direction (:mod:`.out_table`), which is covered and merged (:mod:`.cover`) and
pruned by the advertisements of the pubends in that direction. :mod:`.table_store` contains all
tables of a broker. :mod:`.exchange` sends and requests them from its sources (:mod:`.sources`).

A router filters a knowledge range for a receiver if its tables are **sufficient** for the stream's
vector (:mod:`.sufficiency`): for every SHB that may be behind the receiver, a table claims at least
what the vector states, at the control version of the range. Otherwise everything passes. One match
of an event gives the tables that it matches (:mod:`.index`); a mask test decides for the receiver.

All modules except :mod:`.exchange` are passive: they send nothing and have no timers. None of them
writes to disk.

Invariants
----------
- *S-Λ* (I4): the conjunctions of a table cover what it claims of an SHB for a pubend. This holds
  for a leaf table because each version contains the roots of everything owned, for an out-table
  because it is computed in one step from tables for which it holds, and for a copy.
- *Copies* (I5): a held table equals its sender's of that incarnation and version, or is merged.
- *Limits* (I14): an edge holds at most one table for each broker of its direction, and one merged
  stale table. A table has at most its budget of conjunctions.
- Stale state forwards too much, never too little. Dropping a table is always safe.
- Nothing depends on the order of hashes: the same calls give the same messages in every process.

Papers: virtual times and the conjunction graph (VT 4.1.1 to 4.1.4); incremental changes and their
constraint, here a base version (VT 4.1.5, 4.1.6, 4.2.2); sufficiency (VT 3.2.3, 4.1.7, 4.2.3);
start points (VT 4.1.8); recovery from crashes, loss, reordering and duplication (VT 4.3); merging
(VT 3.5). Differences: VT lets one broker of a node send a table for all, here tables of several
are held next to each other. VT slices vectors by what a broker knows, here an SHB of unknown
location counts on every edge.
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
