"""Plans from one tree of cells to another: pure functions over labelled trees.

``trees`` has the tree and what an operation makes of it, ``steps`` the operations, ``composites``
HA's composite operations and the plan of HA's proof, ``plan`` the planner. The planner divides its
work: ``target`` (the wanted tree on all cells, and the appends), ``shifts`` and ``exchange`` (the
choice of the next SHIFTs), ``cuts`` and ``bounds`` (what a SHIFT does to degree and diameter),
``exact`` (the shortest plan of a small tree), ``lower_bound``, and ``words`` (``star:9`` over the
present cells).
"""
