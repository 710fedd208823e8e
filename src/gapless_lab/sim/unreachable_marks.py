"""Rare branches that no run of the simulator can take, each with the reason.

A branch that nobody took is either one that the generator should reach and does not, or one that
needs what the simulated overlay does not have. The second kind is listed here, so that the first
stands out. Who makes one of these possible takes it off the list.
"""

from __future__ import annotations

from typing import Final

__all__ = ["OUT_OF_REACH"]

_TREE = "in a tree that does not change every way leads nearer: needs reshaping (R13)"
_SHAPE = "needs a tree that changes under load (R13)"
_LIES = "needs a peer that breaks the protocol; nobody lies here"
_OPERATORS = (
    "the workload has no operators; their calls are tried at random in "
    "tests/subscribers/test_seeks_at_random.py"
)
_RETIRED = (
    "nobody is retired here; tests/scenarios/test_retirement_runs.py has whole brokers that are"
)
_MANY = "needs more at once than a run has"

OUT_OF_REACH: Final[dict[str, str]] = {
    "abandoned pubend returned": _RETIRED,
    "announcement went in a circle": _TREE,
    "acknowledgement from before a seek": _OPERATORS,
    "unreadable advertisement": "all brokers are of one version",
    "another protocol": "all brokers are of one version",
    "client paused": "connections of clients hold any number of bytes here",
    "answer that makes no sense": _LIES,
    "answer to another question": _LIES,
    "message of no component": _LIES,
    "operator moved a subscription": _OPERATORS,
    "packet from an unknown broker": "links are only between brokers that know each other",
    "knowledge of an older scope": _SHAPE,
    "invalid knowledge range": _LIES,
    "position from before a seek": _OPERATORS,
    "probe went in a circle": f"{_LIES}: who passes a probe on leaves out who has",
    "pubend lies behind no edge": _SHAPE,
    "read turned away": f"{_MANY}: 1,024 reads of one pubend",
    "read with a bad filter": "clients' filters are read at the door, and brokers send what they read",
    "receiver knows another shape": _SHAPE,
    "relayed from an unknown broker": _SHAPE,
    "relayed to nowhere": _LIES,
    "reply astray": _LIES,
    "report with an unknown set": "a report and the meaning of its set travel in one packet",
    "request in a circle": _TREE,
    "retired by mistake": _RETIRED,
    "retirement beyond the limit": _RETIRED,
    "scope raised": _SHAPE,
    "unknown table requested": _TREE,
    "too many batches wait for a look-up": f"{_MANY}: 1,024 batches of one publisher",
}
"""By mark why it waits; tests of the rooms own them."""
