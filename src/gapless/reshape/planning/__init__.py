"""Plans from one tree of cells to another: pure functions over labelled trees.

- ``trees`` has the tree and what an operation makes of it, ``steps`` the operations as values
- ``composites`` has HA's composite operations, ``baseline`` the plan of HA's proof
- ``plan`` is the planner; ``wanted`` makes its second tree of what an operator writes
- the planner's parts are ``keep`` (cells that must not change), ``target`` (the wanted tree on all
  cells, appends and detaches), ``shifts`` and ``exchange`` (the next SHIFTs), ``bounds`` and ``cuts``
  (what SHIFTs do to degrees and distances), ``exact`` (the shortest plan between small trees) and
  ``lower_bound``
"""
