# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False, freethreading_compatible=False
"""The compiled engine of the matching index. Theory of operation: see the package's docstring.

Slots are in groups. A group contains the slots that events find by one key. It is scanned slot by
slot while it is small and through its bit rows once it has grown (`SMALL`). Memory is C arrays
that double, so adding costs amortised constant time and nothing is ever rebuilt as a whole; the
bucket bounds of a group are computed again when it has grown eightfold.
"""

from cpython.dict cimport PyDict_Next
from cpython.float cimport PyFloat_AS_DOUBLE, PyFloat_Check, PyFloat_CheckExact
from cpython.bool cimport PyBool_Check
from cpython.list cimport PyList_GET_ITEM
from cpython.long cimport PyLong_CheckExact
from cpython.mem cimport PyMem_Free, PyMem_Malloc, PyMem_Realloc
from cpython.object cimport PyObject, PyObject_Hash
from cpython.ref cimport Py_DECREF, Py_INCREF, Py_XDECREF
from cpython.unicode cimport PyUnicode_Check, PyUnicode_CheckExact
from libc.math cimport NAN
from libc.stdint cimport int16_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from gapless.content.matching.events import plain_event
from gapless.content.matching.owners import NO_KEYS, Memo, Owners
from gapless.content.values import check_value
from gapless.core.errors import IndexBusyError


cdef extern from "Python.h":
    PyObject *PyDict_GetItemWithError(object mapping, object key) except? NULL
    long long PyLong_AsLongLongAndOverflow(object number, int *overflow) except? -1


cdef extern from "_kernel.h" nogil:
    enum: MISSING, FALSE_, TRUE_, NAN_, NUMBER, TEXT, ONE_TEXT
    enum: TEXT_ROW, TEXT_ROWS, NUMBER_ROW, CONSTRAINED_ROW, ROWS_STORED, BOUNDS, BOUNDS_PADDED
    enum: BLOCK

    ctypedef struct range_t:
        double low, high
        PyObject *text
        int16_t low_step, high_step
        uint32_t attribute, kind, more

    ctypedef struct value_t:
        double number
        PyObject *object
        int16_t step
        uint8_t kind

    void expect(const void *memory, int lines)
    int lowest_bit(uint64_t word)
    int highest_bit(uint64_t word)
    int count_bounds(const double *at, double number)
    int ranges_hold(const range_t *part, const range_t *end, const value_t *values)
    const range_t *next_attribute(const range_t *part)
    int ranges_cover(const range_t *wide, const range_t *wide_end,
                     const range_t *narrow, const range_t *narrow_end)
    int any_left(uint64_t *left, uint64_t **rows, int row_count,
                 const uint64_t *keep, int at, int words)
    int all_common(uint64_t *left, uint64_t **rows, int row_count,
                   const uint64_t *keep, int at, int words)


ctypedef struct location_t:
    PyObject *group  # borrowed: a group exists while it has slots
    uint32_t position

ctypedef struct rule_t:
    PyObject *check  # a Conjunction for what ranges cannot express, or NULL
    uint32_t location_count
    uint32_t range_count
    uint32_t verified  # the first ranges; the access implies those after them

cdef enum:
    LINE = 8  # words of a line of the processor's cache
    SPREAD = 64  # words from which on rows are kept off each other's cache lines
    SMALL = 16  # slots that are verified one by one
    RESLICE_FACTOR = 8
    COLUMN_SHARE = 16  # an attribute has rows if one in so many slots of a group constrains it
    SAMPLE = 2048  # slots from whose ends bounds are computed, about
    PENDING = 64  # slots that wait for a prefetch before they are verified
    EQUAL = 0
    PREFIX = 1
    PRESENT = 2
    ALWAYS = 3

cdef uint64_t NUMBER_BITS = (<uint64_t>0xFFFFFFFFFFFF) << NUMBER_ROW
cdef uint64_t TEXT_BITS = (<uint64_t>0xFFF) << TEXT_ROW


cdef inline location_t *locations_of(rule_t *rule) noexcept:
    return <location_t *>(<char *>rule + sizeof(rule_t))


cdef inline range_t *ranges_of(rule_t *rule) noexcept:
    return <range_t *>(<char *>rule + sizeof(rule_t) + rule.location_count * sizeof(location_t))


cdef void *grown(void *memory, size_t size) except NULL:
    cdef void *result = PyMem_Realloc(memory, size)
    if result == NULL:
        raise MemoryError()
    return result


include "_kernel_groups.pxi"
include "_kernel_store.pxi"
include "_kernel_search.pxi"
include "_kernel_covering.pxi"
