"""Jobs on a Spark cluster.

Theory of operation
-------------------
- :func:`archive` copies streams into Parquet, each event once, and continues from its last position
  (:mod:`.archiving`). Only the manifest states which files belong to an archive (:mod:`.manifest`).
  It is replaced by its next version atomically, so a batch is in the archive or not, and small
  files are replaced by large ones while they are read (:mod:`.compacting`). :func:`read_archive`
  reads a version.
- :func:`backtest` computes what filters would have matched (:mod:`.backtesting`). Executors match
  with the index of the brokers and return counts and sketches, never matches (:mod:`.tallies`).
- :func:`audit` compares expected with actual deliveries (:mod:`.auditing`), from the logs that
  brokers and clients write (:mod:`gapless.audit`, :mod:`.audit_logs`). Expected deliveries are
  matched on executors (:mod:`.expected_deliveries`). Events that no log can know are not counted as
  faults (:mod:`.horizons`). With rules (:mod:`.rights`) it reports unauthorised publications and
  deliveries (:mod:`.rights_audit`).
- :func:`profile` counts the traffic between cells from the same logs (:mod:`.profiling`) and the
  interests of cells (:mod:`.interests`), and searches for a tree over which the traffic travels
  fewer hops (:mod:`.trees`).

All take a Spark session and run at its master. Executors need gapless; it is shipped if they lack
it, and other missing packages are named in an error (:mod:`.shipping`).

Invariants
----------
- An archive has every event of its streams once, whatever failed or was repeated.
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
