# cython: language_level=3, boundscheck=False, wraparound=False
# cython: freethreading_compatible=False
"""Detection and measurement of plain events in one pass. See the package, and the fallback.

No code of the caller runs during the pass, as all types are exact; so borrowed references stay
valid.
"""

from cpython.bool cimport PyBool_Check
from cpython.bytes cimport PyBytes_CheckExact, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_CheckExact, PyDict_Next
from cpython.float cimport PyFloat_CheckExact
from cpython.long cimport PyLong_CheckExact
from cpython.object cimport PyObject
from cpython.tuple cimport PyTuple_CheckExact, PyTuple_GET_ITEM, PyTuple_GET_SIZE
from cpython.unicode cimport PyUnicode_CheckExact


cdef extern from "Python.h":
    long long PyLong_AsLongLongAndOverflow(object number, int *overflow) except? -1
    bint PyUnicode_IS_ASCII(object text)
    Py_ssize_t PyUnicode_GET_LENGTH(object text)


def are_plain(events):
    """Return whether all events are pairs of a dict and bytes, the dict from texts to values."""
    cdef object event
    for event in events:
        if not (
            PyTuple_CheckExact(event)
            and PyTuple_GET_SIZE(event) == 2
            and PyDict_CheckExact(<object>PyTuple_GET_ITEM(event, 0))
            and PyBytes_CheckExact(<object>PyTuple_GET_ITEM(event, 1))
            and has_plain_items(<object>PyTuple_GET_ITEM(event, 0))
        ):
            return False
    return True


cdef bint has_plain_items(attributes) except -1:
    cdef Py_ssize_t place = 0
    cdef PyObject *name
    cdef PyObject *value
    while PyDict_Next(attributes, &place, &name, &value):
        if not (PyUnicode_CheckExact(<object>name) and is_plain(<object>value)):
            return False
    return True


cdef inline bint is_plain(value) except -1:
    cdef int overflow = 0
    if PyFloat_CheckExact(value) or PyUnicode_CheckExact(value) or PyBool_Check(value):
        return True
    if not PyLong_CheckExact(value):
        return False
    PyLong_AsLongLongAndOverflow(value, &overflow)
    return overflow == 0


def size_bound(events):
    """Return a number of bytes that the encoding of plain events does not exceed."""
    cdef object event
    cdef long long size = 0
    for event in events:
        size += (
            ITEM_BYTES
            + PyBytes_GET_SIZE(<object>PyTuple_GET_ITEM(event, 1))
            + items_bound(<object>PyTuple_GET_ITEM(event, 0))
        )
    return size


cdef enum:
    ITEM_BYTES = 16  # more than the heads of a value and of its container have together


cdef long long items_bound(attributes) except -1:
    cdef Py_ssize_t place = 0
    cdef PyObject *name
    cdef PyObject *value
    cdef long long size = 0
    while PyDict_Next(attributes, &place, &name, &value):
        size += ITEM_BYTES + text_bound(<object>name)
        if PyUnicode_CheckExact(<object>value):
            size += text_bound(<object>value)
    return size


cdef inline long long text_bound(text) except -1:
    return PyUnicode_GET_LENGTH(text) * (1 if PyUnicode_IS_ASCII(text) else 4)
