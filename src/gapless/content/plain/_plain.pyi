# The compiled form is called as the twin is.
from collections.abc import Sequence

def are_plain(events: Sequence[object]) -> bool: ...
