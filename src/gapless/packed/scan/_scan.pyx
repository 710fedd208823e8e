# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False, freethreading_compatible=False
"""The compiled column scan. See the package for its purpose and the fallback for its interface.

Packed events are read token by token, always with a check for their end, because they may come from
elsewhere. A `value_t` is recorded for each field. That of a text or a payload has its address, so a
column scan keeps its rows.
"""

from cpython.bytearray cimport (
    PyByteArray_AS_STRING,
    PyByteArray_FromStringAndSize,
    PyByteArray_Resize,
)
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.math cimport isfinite, isnan
from libc.stdint cimport INT64_MAX, int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy, memset

import msgspec
import numpy as np

_encode_json = msgspec.json.Encoder().encode

# The fields and kinds of `fields.py`, and the other kinds of tokens.
cdef enum:
    TICK = 0
    PUBLISHER = 1
    SEQUENCE = 2
    PAYLOAD = 3
    NAMED = 4

cdef enum:
    ABSENT = 0
    FALSE = 1
    TRUE = 2
    INT = 3
    FLOAT = 4
    TEXT = 5
    BYTES = 6
    ARRAY = 7
    MAP = 8
    NIL = 9

cdef enum:
    PARTS = 5  # of a publication
    JSON_GROWTH = 8  # JSON is at most so many times as large as msgpack; control characters take 6

ctypedef struct value_t:
    uint64_t word
    const uint8_t *at
    uint32_t size
    uint32_t kind

ctypedef struct name_t:
    const char *at
    size_t size

ctypedef struct event_t:
    const uint8_t *at
    const uint8_t *attributes
    uint32_t size
    uint32_t attributes_size

_VALUE = np.dtype([("word", "u8"), ("at", "u8"), ("size", "u4"), ("kind", "u4")])


cdef class ColumnScan:
    """The columns of packed events; the interface is that of the Python fallback."""

    cdef list _packed_rows  # kept, because values have addresses in them
    cdef bytearray _events
    cdef bytearray _values
    cdef Py_ssize_t _count
    cdef Py_ssize_t _width
    cdef object _columns

    def __cinit__(self, packed_rows, names=()):
        self._packed_rows = [memoryview(packed) for packed in packed_rows]
        self._width = NAMED + len(names)
        self._count = sum([count_of(packed) for packed in self._packed_rows])
        self._events = unwritten(self._count * sizeof(event_t))
        self._values = unwritten(self._count * self._width * sizeof(value_t))
        cdef list encoded = [each.encode() for each in names]
        cdef bytearray table = bytearray(len(encoded) * sizeof(name_t))
        cdef name_t *name = <name_t *>PyByteArray_AS_STRING(table)
        cdef Py_ssize_t index
        for index, text in enumerate(encoded):
            name[index].at = PyBytes_AS_STRING(text)
            name[index].size = len(text)
        index = 0
        for packed in self._packed_rows:
            index += self._walk(packed, index, name)
        self._columns = np.frombuffer(self._values, _VALUE).reshape(self._count, self._width)

    def __len__(self):
        return self._count

    def kinds(self, Py_ssize_t field):
        return self._columns["kind"][:, field]

    def words(self, Py_ssize_t field):
        return self._columns["word"][:, field]

    def sizes(self, Py_ssize_t field):
        return self._columns["size"][:, field]

    cdef Py_ssize_t _walk(self, const uint8_t[::1] packed, Py_ssize_t first, name_t *names) except -1:
        """Record packed events from the index `first` on; return the number of publications."""
        cdef const uint8_t *at = &packed[0]
        cdef const uint8_t *end = at + packed.shape[0]
        cdef event_t *event = (<event_t *>PyByteArray_AS_STRING(self._events)) + first
        cdef value_t *row = (
            (<value_t *>PyByteArray_AS_STRING(self._values)) + first * self._width
        )
        cdef Py_ssize_t width = self._width
        cdef int name_count = <int>(width - NAMED)
        cdef value_t token
        cdef Py_ssize_t count, index
        at = take(at, end, &token)
        count = <Py_ssize_t>token.word
        with nogil:  # other threads may read the next rows of the log meanwhile
            for index in range(count):
                at = take_event(at, end, event, row, names, name_count)
                if at == NULL:
                    break
                event += 1
                row += width
        if at != end:
            raise msgspec.DecodeError("the packed events are malformed")
        return count

    def texts(self, Py_ssize_t field):
        if not 0 <= field < self._width:
            raise IndexError(field)
        cdef value_t *values = <value_t *>PyByteArray_AS_STRING(self._values)
        cdef Py_ssize_t width = self._width, index
        cdef int64_t total = 0
        for index in range(self._count):
            total += values[index * width + field].size
        cdef bytearray offsets = new_offsets(self._count, total)
        cdef int32_t *offset = <int32_t *>PyByteArray_AS_STRING(offsets)
        data = PyBytes_FromStringAndSize(NULL, total)
        cdef char *out = PyBytes_AS_STRING(data)
        cdef value_t *value
        for index in range(self._count):
            value = values + index * width + field
            memcpy(out + offset[0], value.at, value.size)
            offset[1] = offset[0] + <int32_t>value.size
            offset += 1
        return np.frombuffer(offsets, np.int32), data

    def part(self, indexes):
        cdef event_t *events = <event_t *>PyByteArray_AS_STRING(self._events)
        cdef list chosen = [index for index in indexes]
        cdef Py_ssize_t index, total = 5  # for the head
        for index in chosen:
            if not 0 <= index < self._count:
                raise IndexError(index)
            total += events[index].size
        data = bytearray(total)
        cdef uint8_t *begin = <uint8_t *>PyByteArray_AS_STRING(data)
        cdef uint8_t *out = put_array(begin, <uint32_t>len(chosen))
        for index in chosen:
            memcpy(out, events[index].at, events[index].size)
            out += events[index].size
        return bytes(memoryview(data)[: out - begin])

    def json(self):
        """As the fallback; msgspec encodes all floats at once, so that both results are equal."""
        cdef event_t *events = <event_t *>PyByteArray_AS_STRING(self._events)
        cdef Py_ssize_t index, total = 0
        cdef list floats = []
        for index in range(self._count):
            total += events[index].attributes_size
            gather_floats(&events[index], floats)
        cdef bytes texts = _encode_json(floats)
        cdef const char *text = PyBytes_AS_STRING(texts) + 1
        cdef bytearray offsets = new_offsets(self._count, JSON_GROWTH * <int64_t>total)
        cdef int32_t *offset = <int32_t *>PyByteArray_AS_STRING(offsets)
        cdef bytearray data = bytearray(2 * total + JSON_GROWTH)
        cdef char *begin = PyByteArray_AS_STRING(data)
        cdef char *out = begin
        cdef Py_ssize_t needed
        for index in range(self._count):
            needed = (out - begin) + JSON_GROWTH * <Py_ssize_t>events[index].attributes_size + 2
            if needed > len(data):
                offset[0] = <int32_t>(out - begin)
                PyByteArray_Resize(data, 2 * needed)
                begin = PyByteArray_AS_STRING(data)
                out = begin + offset[0]
            out = put_json(out, &events[index], &text)
            offset += 1
            offset[0] = <int32_t>(out - begin)
        PyByteArray_Resize(data, out - begin)
        return np.frombuffer(offsets, np.int32), data


cdef bytearray unwritten(Py_ssize_t size):
    """Return memory that is written before it is read: to clear it takes as long as to fill it."""
    return PyByteArray_FromStringAndSize(NULL, size)


cdef Py_ssize_t count_of(const uint8_t[::1] packed) except -1:
    """Return the number of publications in the head of packed events; never more than would fit."""
    cdef value_t token
    if (
        packed.shape[0] == 0
        or take(&packed[0], &packed[0] + packed.shape[0], &token) == NULL
        or token.kind != ARRAY
        or token.word * (PARTS + 1) > <uint64_t>packed.shape[0]
    ):
        raise msgspec.DecodeError("these are not packed events")
    return <Py_ssize_t>token.word


cdef bytearray new_offsets(Py_ssize_t count, int64_t total):
    if total > 0x7FFFFFFF:
        raise OverflowError(f"{total:,} bytes are too much for one column")
    return bytearray((count + 1) * sizeof(int32_t))


# --- reading ---------------------------------------------------------------------------------------


cdef const uint8_t *take_event(
    const uint8_t *at, const uint8_t *end, event_t *event, value_t *row, name_t *names, int count
) noexcept nogil:
    """Record one publication; return the start of the next one, or NULL if it is malformed."""
    cdef value_t token
    cdef uint64_t parts
    event.at = at
    at = take(at, end, &token)
    parts = token.word
    if at == NULL or token.kind != ARRAY or parts < PARTS:
        return NULL
    at = take(at, end, &row[TICK])
    if at == NULL or row[TICK].kind != INT:
        return NULL
    at = take(at, end, &row[PUBLISHER])
    if at == NULL or row[PUBLISHER].kind != TEXT:
        return NULL
    at = take(at, end, &row[SEQUENCE])
    if at == NULL or row[SEQUENCE].kind != INT:
        return NULL
    event.attributes = at
    at = take_attributes(at, end, row, names, count)
    if at == NULL:
        return NULL
    event.attributes_size = <uint32_t>(at - event.attributes)
    at = take(at, end, &row[PAYLOAD])
    if at == NULL or row[PAYLOAD].kind != BYTES:
        return NULL
    while at != NULL and parts > PARTS:  # fields that a later version added
        at = passed(at, end)
        parts -= 1
    if at != NULL:
        event.size = <uint32_t>(at - event.at)
    return at


cdef const uint8_t *take_attributes(
    const uint8_t *at, const uint8_t *end, value_t *row, name_t *names, int count
) noexcept nogil:
    cdef value_t token, value
    cdef uint64_t left
    cdef int index
    at = take(at, end, &token)
    if at == NULL or token.kind != MAP:
        return NULL
    memset(&row[NAMED], 0, count * sizeof(value_t))  # ABSENT
    left = token.word
    while left:
        left -= 1
        at = take(at, end, &token)
        if at == NULL or token.kind != TEXT:
            return NULL
        at = take(at, end, &value)
        if at == NULL or not FALSE <= value.kind <= TEXT:
            return NULL
        for index in range(count):
            if token.size == names[index].size and not memcmp(
                token.at, names[index].at, token.size
            ):
                row[NAMED + index] = value
                break
    return at


cdef const uint8_t *passed(const uint8_t *at, const uint8_t *end) noexcept nogil:
    """Return the address after a value of any kind."""
    cdef value_t token
    cdef uint64_t left = 1
    while left and at != NULL:
        left -= 1
        at = take(at, end, &token)
        if at != NULL and token.kind == ARRAY:
            left += token.word
        elif at != NULL and token.kind == MAP:
            left += 2 * token.word
    return at


cdef inline const uint8_t *take(
    const uint8_t *at, const uint8_t *end, value_t *found
) noexcept nogil:
    """Read a token of msgpack: a value, or the head of an array or a map. NULL if there is none."""
    cdef uint8_t head
    if at >= end:
        return NULL
    head = at[0]
    at += 1
    memset(found, 0, sizeof(value_t))
    if head < 0x80:
        found.kind, found.word = INT, head
        return at
    if head < 0x90:
        found.kind, found.word = MAP, head & 0x0F
        return at
    if head < 0xA0:
        found.kind, found.word = ARRAY, head & 0x0F
        return at
    if head < 0xC0:
        return take_bytes(at, end, found, TEXT, head & 0x1F)
    if head >= 0xE0:
        found.kind, found.word = INT, <uint64_t><int64_t><int8_t>head
        return at
    if head >= 0xD9:
        return take_sized(at, end, found, head)
    if 0xCA <= head <= 0xD3:
        return take_number(at, end, found, head)
    if 0xC4 <= head <= 0xC6:
        return take_sized(at, end, found, head)
    if head == 0xC0 or head == 0xC2 or head == 0xC3:
        found.kind = NIL if head == 0xC0 else FALSE if head == 0xC2 else TRUE
        return at
    return NULL  # an extension type, which brokers do not write


cdef inline uint64_t big_endian(const uint8_t *at, int size) noexcept nogil:
    cdef uint64_t found = 0
    cdef int index
    for index in range(size):
        found = found << 8 | at[index]
    return found


cdef inline const uint8_t *take_number(
    const uint8_t *at, const uint8_t *end, value_t *found, uint8_t head
) noexcept nogil:
    cdef int size = 1 << (head & 3)  # of ints; the heads of floats come before them
    cdef uint64_t word
    cdef uint32_t half
    cdef float single
    cdef double number
    if head <= 0xCB:
        size = 4 if head == 0xCA else 8
    if end - at < size:
        return NULL
    word = big_endian(at, size)
    found.kind = FLOAT if head <= 0xCB else INT
    if head == 0xCA:
        half = <uint32_t>word
        memcpy(&single, &half, sizeof(single))
        number = single
        memcpy(&word, &number, sizeof(word))
    elif head == 0xCF and word > <uint64_t>INT64_MAX:
        return NULL
    elif head == 0xD0:
        word = <uint64_t><int64_t><int8_t>word
    elif head == 0xD1:
        word = <uint64_t><int64_t><int16_t>word
    elif head == 0xD2:
        word = <uint64_t><int64_t><int32_t>word
    found.word = word
    return at + size


cdef inline const uint8_t *take_sized(
    const uint8_t *at, const uint8_t *end, value_t *found, uint8_t head
) noexcept nogil:
    """Read a token with a length field: a payload, or a long text, array or map."""
    cdef int size
    cdef uint64_t length
    if head <= 0xC6:
        size = 1 << (head - 0xC4)
    elif head <= 0xDB:
        size = 1 << (head - 0xD9)
    else:
        size = 2 << (head & 1)
    if end - at < size:
        return NULL
    length = big_endian(at, size)
    at += size
    if head >= 0xDC:
        found.kind, found.word = (ARRAY if head <= 0xDD else MAP), length
        return at
    return take_bytes(at, end, found, BYTES if head <= 0xC6 else TEXT, length)


cdef inline const uint8_t *take_bytes(
    const uint8_t *at, const uint8_t *end, value_t *found, int kind, uint64_t size
) noexcept nogil:
    cdef int prefix = <int>size if size < 8 else 8
    if <uint64_t>(end - at) < size:
        return NULL
    found.kind, found.at, found.size = kind, at, <uint32_t>size
    if kind == TEXT and size:
        found.word = big_endian(at, prefix) << (64 - 8 * prefix)
    return at + size


include "_scan_json.pxi"
