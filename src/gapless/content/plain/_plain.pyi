# The compiled form has the signature of the Python fallback.
from collections.abc import Sequence

def are_plain(events: Sequence[object]) -> bool: ...
