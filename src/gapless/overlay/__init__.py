"""Overlay: the tree of cells, who can be talked to in it, and where each pubend lies.

Theory of operation
-------------------
Cells form a tree; each broker knows the part of it within Δ (:mod:`.neighbourhood`). With every
broker in that part it tries to have a session (:mod:`.sessions`, each one a :mod:`.session`): over the
link between them, or, while that is cut, over other brokers (:mod:`.relays`). Over sessions pubends are
announced (:mod:`gapless.directory.announcements`): a broker learns that a pubend exists, in which direction it
lies, and through which cells, so that it can ask a feeder nearer to the pubend for its stream.
Brokers that will never return are told around too (:mod:`.retirements`), and when one is back after all.
When the tree changes, all of them follow in one step (R13; :mod:`gapless.reshape.step`).
Which cells cannot be reached is told around for people (:mod:`.partitions`); no rule reads that.

Invariants: no message of a dead session or an older life changes state (I12); the direction of a
pubend is a neighbour cell nearer to its home, so feeds that follow directions approach the
pubend's broker and make no cycle (I11). A relay passes bytes on: what a session brings comes from its
other end, whatever lies between.

The papers: link bundles and cells are GD 3, the neighbourhood of Δ = δ + 1 is PT III. A way around a
cut link over other brokers is GD 3.1's "sideways", made general.
"""
