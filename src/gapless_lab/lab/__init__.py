"""The lab: the papers' experiments as code, with our own figures beside the papers'.

Theory of operation
-------------------
An **experiment** (:mod:`.experiment`) is a figure of a paper: axes of parameters, a function that
measures one point, and functions that make tables, charts, and comparisons with the paper's text.
The values of axes are declared (:mod:`.axes`), and invalid ones are refused before the first point is
measured. Each experiment is a module; :mod:`.catalogue` lists them all. A run (:mod:`.running`)
measures the points that have no result yet, in this process or wherever ``spread`` runs them, and
stores each result at once (:mod:`.results`). So a run may be stopped at any time and continued later.
A report names the code that made it (:mod:`.origin`), and :mod:`.present` compares that with the
present code.

There are two kinds. Some count on the graph of the overlay (:mod:`.trees`). The others run real
broker machines in the simulator, with chosen clients and failures (:mod:`.testbed`) and observers
that count nacks and traffic (:mod:`.observers`). The checkers of the simulator run too: a run that
violates a guarantee has no numbers.

Invariants
----------
- A point gives the same row whenever and wherever it is measured.
- A statement about a paper is in its text. Its figures are pictures, and nothing is read off them.
- If a testbed is smaller than the paper's or differs, the report states it.
- Nothing that a broker needs imports this package.
"""
