"""The simulator: whole overlays in one thread and virtual time, with faults, against an oracle.

Theory of operation
-------------------
A **world** (:mod:`.world`) has hosts, each with a wall clock, a disk (:mod:`.disk`) and at most
one running process: a machine with one door (:mod:`.machine`). Everything that happens is an entry
of one queue ordered by time and then by order of asking. A network (:mod:`.network`) moves packets,
and connections (:mod:`.connections`) carry the talk of clients. All chance comes from one seed,
split into streams by purpose, so a seed and its options replay a run bit for bit, also under
another ``PYTHONHASHSEED``; taking one kind of fault away leaves the draws of the others as they
were, which is what shrinking needs.

A run has two phases. In the **safety phase** clients work (:mod:`.workload`, :mod:`.publishers`,
:mod:`.subscribers`, :mod:`.readers`) while faults strike (:mod:`.faults`). In the **liveness
phase** a connected core heals and no new fault comes to it; all that is owed inside the core must
then happen in bounded time. What stands outside the core may stay broken for ever.

The **oracle** (:mod:`.oracle`) learns the truth from the disks: what is durable was published. The
**checkers** (:mod:`.checkers`, :mod:`.expected_stream`) compare what clients see with it, at every notice.
Probes (:mod:`.invariants`) look inside brokers at every step. What they find has a name:

- *lost*: an event was passed over, or a later one came before it;
- *duplicate*, *nonmonotonic*, *spurious*: an event came twice, too late, or without reason;
- *undurable*: something was acknowledged or delivered that is not on disk;
- *dishonest gap*: a gap was told over what retention had not released;
- *segments*: a filter change does not cut the stream where its answer said;
- *disorder*: two pubends were merged against the total order;
- *flooded*: more came than the client gave credit for;
- *stuck*: in the healed core something owed did not happen;
- *refused*: what was refused happened all the same, or the other way round;
- *exception*: the machine broke an assertion of its own;
- *I1* to *I15*: an invariant of the protocols does not hold inside a broker.

:mod:`.runner` runs one seed, :mod:`.campaign` many, :mod:`.shrink` makes a failing one small,
:mod:`.planted_bugs` proves that the alarms ring, :mod:`.regressions` lists the seeds that once failed.

Fault budget
------------
What may happen, all at once if the seed wills: crash and restart of any broker at any moment, also
between a write and its sync; loss of any suffix of the writes that were not synced; a torn last
write; pause of a process for longer than any session lives; cuts of links in one direction or
both, for a while or for ever; a connection that dies unseen by one end or both; in some seeds one
that loses a packet in its middle; loss, duplication and reordering (datagrams); wall clocks that are wrong and jump; clients that vanish,
come back elsewhere or do not read; a full disk, which ends the process; a damaged log row.

What does not happen: a synced write is never lost; no disk returns under another name or goes
back in time; a session link never repeats or reorders inside one connection; a damaged row is
always told apart from a sound one; the clock ``now`` of a process never goes back; nobody lies.
"""
