"""Runs spread over a Spark cluster: simulator seeds and experiments.

:func:`sweep` runs an experiment at many points, :func:`sweep_seeds` the simulator at many seeds. An executor that is
free takes the next point, as the costs of points are very uneven (:mod:`.distribution`). Results come back in the order
of the points, while others still run. A sweep over seeds says of each exactly what ``gapless sim run`` says.
"""

from gapless_lab.sweep.sweeping import sweep, sweep_seeds

__all__ = ["sweep", "sweep_seeds"]
