"""The simulator: whole overlays in one thread and virtual time, with faults, against an oracle.

Theory of operation
-------------------

A **world** (:mod:`.world`) has hosts. Each has a wall clock, a disk (:mod:`.disk`) and at most one
running process: a machine with one entry point (:mod:`.machine`). Every action is an entry of one
queue, ordered by time and then by insertion. A network (:mod:`.network`) moves packets between
brokers, and connections (:mod:`.connections`) move requests and notices of clients. All random
numbers come from one seed, split into streams by purpose. A seed and its options therefore replay a
run bit for bit, also under another ``PYTHONHASHSEED``. Shrinking can remove one kind of fault
without changing the draws of the others.

A run has two phases. In the **safety phase** clients work (:mod:`.workload`, :mod:`.publishers`,
:mod:`.subscribers`, :mod:`.readers`) while faults strike (:mod:`.faults`). In the **liveness
phase** a connected core heals and no new fault strikes it. Everything that the guarantees require
inside the core must then happen in bounded time. Hosts outside the core may stay broken for ever.

The **oracle** (:mod:`.oracle`) reads from the disks what was published: an event is published when
it is durable. The **checkers** (:mod:`.checkers`, :mod:`.expected_stream`) compare every notice to
a client with it. The invariants (:mod:`.invariants`) check the state of brokers after every step.
Violations have these names:

- *lost*: an event was omitted, or a later one came before it;
- *duplicate*, *nonmonotonic*, *spurious*: an event came twice, out of order, or without a matching
  filter;
- *undurable*: something was acknowledged or delivered that is not on disk;
- *dishonest gap*: a gap was reported over ticks that retention had not released;
- *segments*: a filter change does not divide the stream at the tick that its reply names;
- *disorder*: two pubends were merged against the total order;
- *flooded*: a client received more events than it gave credit for;
- *stuck*: something that must happen in the healed core did not happen;
- *refused*: a refused request took effect, or a request was wrongly refused;
- *exception*: an assertion of the machine failed;
- *I1* to *I15*: an invariant of the protocols does not hold inside a broker.

:mod:`.runner` runs one seed, :mod:`.campaign` many. :mod:`.shrink` makes a failing run small.
:mod:`.planted_bugs` proves that the checks fail when a rule is missing. :mod:`.regressions` lists
the seeds that once failed.

Fault budget
------------

These faults may strike, also together: crash and restart of any broker at any time, also between a
write and its sync; loss of any suffix of the unsynced writes; a torn last write; a pause of a
process that is longer than the session timeout; cuts of links in one direction or both, temporary
or permanent; a connection that breaks without notice to one end or both; in some seeds a connection
that loses a packet in its middle; loss, duplication and reordering (datagrams); wall clocks that
are wrong and jump; clients that vanish, reconnect to another broker or do not read; a full disk,
which ends the process; a corrupt log row.

These faults never strike: a synced write is never lost; no disk returns under another name or in an
earlier state; a session link never repeats or reorders inside one connection; the corruption of a
row is always detected; the clock ``now`` of a process never goes back; no broker sends false
statements.
"""
