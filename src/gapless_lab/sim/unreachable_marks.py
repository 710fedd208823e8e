"""Coverage marks that no run of the simulator can hit, each with the reason.

A mark that no run hit is either one that the generator should reach and does not, or one that needs
something that the simulated overlay does not have. Marks of the second kind are listed here. A
change that makes one of them possible removes it from the list.
"""

from __future__ import annotations

from typing import Final

__all__ = ["OUT_OF_REACH"]

_BROKEN_PEER = "needs a peer that breaks the protocol; no simulated broker does"
_OPERATORS = (
    "the workload has no operators; their requests are tested at random in "
    "tests/subscribers/test_seeks_at_random.py"
)
_RETIRED = (
    "no broker is retired here; tests/scenarios/test_retirement_runs.py retires whole brokers"
)
_MANY = "needs more at once than a run has"

_TAKEOVERS = (
    "no cell is taken over here; tests/reshape/test_operation_runs.py takes cells over at random"
)

OUT_OF_REACH: Final[dict[str, str]] = {
    "abandoned pubend returned": _RETIRED,
    "acknowledgement from before a seek": _OPERATORS,
    "unreadable advertisement": "all brokers have one version",
    "corrupt subscription removed": "the simulated disk corrupts log rows, not records",
    "contradictory knowledge range": f"{_BROKEN_PEER}; in a run it is a violation",
    "other protocol version": "all brokers have one version",
    "client paused": "client connections queue any number of bytes here",
    "invalid reply": _BROKEN_PEER,
    "invalid page of cell records": _BROKEN_PEER,
    "unicast body above its limit": _BROKEN_PEER,
    "walk over the tree found too much": _BROKEN_PEER,
    "reply to another request": _BROKEN_PEER,
    "message of no component": _BROKEN_PEER,
    "leader deposed with a lock": _TAKEOVERS,
    "malformed record in an operation": _BROKEN_PEER,
    "message that no control session carries": _BROKEN_PEER,
    "operator moved a subscription": _OPERATORS,
    "invalid knowledge range": _BROKEN_PEER,
    "position from before a seek": _OPERATORS,
    "probe looped": f"{_BROKEN_PEER}: a broker forwards a probe only to brokers that are not on its route",
    "read refused": f"{_MANY}: 1,024 reads of one pubend",
    "read with a bad filter": "brokers parse the filters of clients at the entry point, and forward only parsed ones",
    "relayed with a wrong route": _BROKEN_PEER,
    "record of a wrong form": _BROKEN_PEER,
    "records that make no tree": _BROKEN_PEER,
    "reply with a wrong route": _BROKEN_PEER,
    "report with an unknown set": "a report and the definition of its set are in one packet",
    "own question returned": _BROKEN_PEER,
    "request with a wrong route": _BROKEN_PEER,
    "request given up during a search": "simulated programs wait for their subscriptions",
    "retired broker is alive": _RETIRED,
    "retirement beyond the limit": _RETIRED,
    "step undone": _TAKEOVERS,
    "too many control sessions": f"{_MANY}: 64 brokers outside a neighbourhood",
    "too many batches wait for a look-up": f"{_MANY}: 1,024 batches of one publisher",
}
"""By coverage mark: the reason. Tests of the components hit these marks."""
