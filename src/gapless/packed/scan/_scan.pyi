# The compiled column scan is called as the fallback is.
from gapless.packed.scan import fallback

class ColumnScan(fallback.ColumnScan): ...
