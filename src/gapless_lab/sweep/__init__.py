"""Runs distributed over a Spark cluster: simulator seeds and experiments.

:func:`sweep` runs an experiment at many points, :func:`sweep_seeds` the simulator at many seeds. A
free executor takes the next point, because the costs of points are very uneven
(:mod:`.distribution`). Results come back in the order of the points, while others still run. A
sweep over seeds prints for each exactly what ``gapless sim run`` prints.
"""

from gapless_lab.sweep.sweeping import sweep, sweep_seeds

__all__ = ["sweep", "sweep_seeds"]
