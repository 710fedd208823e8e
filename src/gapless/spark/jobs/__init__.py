"""Jobs: work that is spread over a Spark cluster, with results that people can read.

Theory of operation
-------------------
- :func:`archive` copies streams into Parquet, once, and goes on where it was (:mod:`.archiving`). What
  belongs to an archive is said by its manifest and by nothing else (:mod:`.manifest`): it is switched
  from one version to the next in one step, so that a batch is in or not, and small files are replaced by
  large ones under the eyes of readers (:mod:`.compacting`). :func:`read_archive` reads a version.
- :func:`backtest` tells what filters would have matched (:mod:`.backtesting`). Executors match with the
  index that brokers use, and hand back counts and sketches, never matches (:mod:`.tallies`).
- :func:`audit` compares what was owed with what came (:mod:`.auditing`), from the logs that brokers and
  clients write (:mod:`gapless.audit`, :mod:`.audit_logs`). Who is owed what is matched on executors
  (:mod:`.expected_deliveries`); what no log can know is not held against anybody (:mod:`.horizons`). With rules
  (:mod:`.rights`) it tells who published or was sent what he has no right to (:mod:`.rights_audit`).
- :func:`profile` counts traffic between cells from the same logs (:mod:`.profiling`) and what cells ask for
  (:mod:`.interests`), and looks for a tree over which the traffic travels fewer hops (:mod:`.trees`).

All take a Spark session, and run at its master. Executors need gapless; what is missing there is shipped
or named (:mod:`.shipping`).

Invariants
----------
- An archive has every event of its streams once, whatever failed or was repeated on the way.
- A number that is estimated is marked as an estimate.
"""

from gapless.spark.jobs.archiving import archive, read_archive
from gapless.spark.jobs.auditing import audit
from gapless.spark.jobs.backtesting import backtest
from gapless.spark.jobs.compacting import compact_archive
from gapless.spark.jobs.profiling import profile

__all__ = [
    "archive",
    "audit",
    "backtest",
    "compact_archive",
    "profile",
    "read_archive",
]
