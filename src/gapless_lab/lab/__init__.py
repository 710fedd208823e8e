"""The lab: the papers' experiments as code, with our own figures beside theirs.

Theory of operation
-------------------
An **experiment** (:mod:`.experiment`) is a figure of a paper: axes of parameters, a function that
measures one point, and how rows become tables, charts, and comparisons with what the paper's text says.
What axes take is declared (:mod:`.axes`), and what makes no sense is refused before anything is measured.
One module has one; :mod:`.catalogue` knows them all. A run (:mod:`.running`) measures the points that
have no result yet, in this process or wherever ``spread`` puts them, and keeps each result as soon as it
is there (:mod:`.results`). So a run may be stopped at any time and goes on where it was. A report names
the code that made it (:mod:`.origin`), and :mod:`.present` says whether that is the code at hand.

There are two kinds. Some count on the graph of the overlay (:mod:`.trees`). The others run real broker
machines in the simulator, with clients and failures of the experiment's choice (:mod:`.testbed`) and
probes that count nacks and traffic (:mod:`.observers`). The checkers of the simulator look on: a run that
breaks a promise has no numbers.

Invariants
----------
- A point gives the same row whenever and wherever it is measured.
- What is said of a paper is in its text. Its figures are pictures, and nothing is read off them.
- Where a testbed is smaller than the paper's or differs, the report says so.
- Nothing that a broker needs imports this package.
"""
