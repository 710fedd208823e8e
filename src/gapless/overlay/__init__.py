"""Overlay: the tree of cells and the peer sessions between its brokers.

Theory of operation
-------------------
Cells form a tree. Each broker knows the part of it within Δ (:mod:`.neighbourhood`). It opens a
peer session (:mod:`.sessions`, :mod:`.session`) with every broker in that part: over the link
between them or, while that is down, over other brokers (:mod:`.relays`). Brokers announce pubends
over sessions (:mod:`gapless.directory.announcements`): a broker learns that a pubend exists, its
direction and its path, so that it can attach to a feeder nearer to the PHB. Brokers also spread
which brokers were retired or have returned (:mod:`.retirements`). When the tree changes, all these
modules change in one step (R13; :mod:`gapless.reshape.step`).
A question to all brokers passes over the tree from cell to cell (:mod:`.questions`).
The table of unreachable cells (:mod:`.partitions`) is for operators; no rule reads it.

Invariants: no message of a dead session or an older incarnation changes state (I12). The direction
of a pubend is a neighbour cell nearer to its PHB, so feeds that follow directions approach the PHB
and make no cycle (I11). A relay forwards bytes: every message of a session comes from its other
end.

The papers: link bundles and cells are GD 3, the neighbourhood of Δ = δ + 1 is PT III. A route over
other brokers around a link that is down is GD 3.1's "sideways", made general.
"""
