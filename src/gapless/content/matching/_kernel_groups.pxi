# Groups of slots: their bit rows, and the bounds of the buckets.


cdef class Bounds:
    """The starts of the number buckets of a column; caches the bucket of the current event."""

    cdef double at[BOUNDS_PADDED]
    cdef uint64_t epoch
    cdef int remembered

    @staticmethod
    cdef Bounds of(list ends):
        cdef Bounds bounds = Bounds()
        cdef Py_ssize_t i
        distinct = sorted(set(ends))
        cdef Py_ssize_t size = len(distinct)
        if size > BOUNDS:
            # by rank in the sample, not by value: dense ranges get narrow buckets
            ends.sort()
            distinct = sorted({ends[(i + 1) * len(ends) // (BOUNDS + 1)] for i in range(BOUNDS)})
            size = len(distinct)
        for i in range(BOUNDS_PADDED):
            bounds.at[i] = distinct[i] if i < size else NAN
        return bounds

    cdef inline int row(self, double number) noexcept:
        return NUMBER_ROW + count_bounds(self.at, number)

    cdef inline int row_now(self, double number, uint64_t epoch) noexcept:
        if self.epoch != epoch:
            self.epoch = epoch
            self.remembered = self.row(number)
        return self.remembered


cdef uint64_t allowed_rows(const range_t *part, Bounds bounds) except? 0:
    """Return the buckets in which some value satisfies the condition, a bit each."""
    cdef uint64_t rows = 0
    cdef int low, high
    while True:
        if part.kind == NUMBER:
            low = bounds.row(part.low)
            high = bounds.row(part.high)
            rows |= ((<uint64_t>2 << (high - low)) - 1) << low
        elif part.kind == TEXT:
            rows |= TEXT_BITS
        elif part.kind == ONE_TEXT:
            rows |= <uint64_t>1 << text_row(part.text)
        else:
            rows |= <uint64_t>1 << part.kind
        if not part.more:
            return rows
        part += 1


cdef inline int text_row(PyObject *text) except -1:
    return TEXT_ROW + <int>(<size_t>PyObject_Hash(<object>text) % TEXT_ROWS)


# The bit rows of one attribute in one group. A plain struct: a search reads one for every
# attribute of every group that it scans, so they have to be adjacent in memory.
ctypedef struct column_t:
    uint64_t *rows
    PyObject *bounds  # owned
    uint64_t ever_allowed
    uint32_t attribute


cdef inline size_t stride_of(size_t words) noexcept:
    """Return the distance between rows of so many words.

    Words double. At a power of two, the words of one position in all rows would map to the same
    few lines of the processor's cache and evict each other; one more line spreads them.
    """
    return words if words < SPREAD else words + LINE


cdef int reserve_column(column_t *column, size_t words, size_t old_words) except -1:
    """Allocate rows for more positions."""
    cdef int row
    cdef size_t stride = stride_of(words), old_stride = stride_of(old_words)
    cdef uint64_t *rows = <uint64_t *>grown(NULL, ROWS_STORED * stride * sizeof(uint64_t))
    memset(rows, 0, ROWS_STORED * stride * sizeof(uint64_t))
    if column.rows != NULL:
        for row in range(ROWS_STORED):
            memcpy(rows + row * stride, column.rows + row * old_stride,
                   old_words * sizeof(uint64_t))
        PyMem_Free(column.rows)
    column.rows = rows
    return 0


cdef int mark_column(column_t *column, const range_t *part, uint32_t position, size_t stride,
                     bint on) except -1:
    """Set (or clear) the bit of a position in the buckets in which its condition cannot hold."""
    cdef uint64_t allowed = allowed_rows(part, <Bounds>column.bounds)
    cdef uint64_t excluded = ~allowed
    cdef uint64_t bit = <uint64_t>1 << (position & 63)
    cdef uint64_t *word = column.rows + (position >> 6)
    cdef int row
    if on:
        column.ever_allowed |= allowed
        word[CONSTRAINED_ROW * stride] |= bit
    else:
        word[CONSTRAINED_ROW * stride] &= ~bit
    while excluded:
        row = lowest_bit(excluded)
        excluded &= excluded - 1
        if on:
            word[row * stride] |= bit
        else:
            word[row * stride] &= ~bit
    return 0


cdef class Group:
    """The slots that events find by one key."""

    cdef int kind
    cdef uint32_t attribute
    cdef object key
    cdef uint32_t *slots
    cdef uint64_t *live
    cdef uint32_t count, top, capacity, sliced_at
    cdef size_t words, stride
    cdef size_t first_hole  # no word before this one has a free position below the top
    cdef column_t *columns
    cdef int column_count  # 0 while small
    cdef bint sliced

    def __dealloc__(self):
        self.drop_columns()
        PyMem_Free(self.slots)
        PyMem_Free(self.live)

    cdef int drop_columns(self) except -1:
        cdef int i
        for i in range(self.column_count):
            PyMem_Free(self.columns[i].rows)
            Py_XDECREF(self.columns[i].bounds)
        PyMem_Free(self.columns)
        self.columns = NULL
        self.column_count = 0
        return 0

    cdef column_t *add_column(self, uint32_t attribute, Bounds bounds) except NULL:
        self.columns = <column_t *>grown(
            self.columns, (self.column_count + 1) * sizeof(column_t))
        cdef column_t *column = &self.columns[self.column_count]
        column.rows = NULL
        column.attribute = attribute
        column.ever_allowed = 0
        column.bounds = <PyObject *>bounds
        Py_INCREF(bounds)
        self.column_count += 1
        reserve_column(column, self.words, 0)
        return column

    cdef uint32_t take_position(self) except? 0xFFFFFFFF:
        """Return a free position: one below the top if there is one, otherwise a new one."""
        cdef size_t word
        cdef uint32_t position = self.top
        if self.count < self.top:
            word = self.first_hole
            while not ~self.live[word]:
                word += 1
            self.first_hole = word
            position = <uint32_t>(word * 64 + lowest_bit(~self.live[word]))
        if position == self.capacity:
            self.double()
        if position == self.top:
            self.top += 1
        self.live[position >> 6] |= <uint64_t>1 << (position & 63)
        self.count += 1
        return position

    cdef int give_position(self, uint32_t position) except -1:
        """Free a position."""
        self.live[position >> 6] &= ~(<uint64_t>1 << (position & 63))
        self.count -= 1
        if position >> 6 < self.first_hole:
            self.first_hole = position >> 6
        return 0

    cdef int double(self) except -1:
        cdef uint32_t capacity = self.capacity * 2 if self.capacity else 2
        cdef size_t words = (capacity + 63) >> 6
        cdef int i
        self.slots = <uint32_t *>grown(self.slots, capacity * sizeof(uint32_t))
        if words != self.words:
            self.live = <uint64_t *>grown(self.live, words * sizeof(uint64_t))
            memset(self.live + self.words, 0, (words - self.words) * sizeof(uint64_t))
            for i in range(self.column_count):
                reserve_column(&self.columns[i], words, self.words)
            self.words = words
            self.stride = stride_of(words)
        self.capacity = capacity
        return 0

    cdef column_t *column(self, uint32_t attribute) noexcept:
        cdef int i
        for i in range(self.column_count):
            if self.columns[i].attribute == attribute:
                return &self.columns[i]
        return NULL


cdef class Attribute:
    """The groups of one attribute, and its shared bounds."""

    cdef uint32_t number, uses
    cdef str name
    cdef dict equal  # value -> Group; 1 and 1.0 are one key, bools are separate
    cdef dict prefixes
    cdef tuple lengths
    cdef dict length_counts  # of the prefixes
    cdef Group when_true, when_false, present
    cdef Bounds bounds
    cdef uint32_t bounds_from
    cdef dict users  # Group found by another attribute -> number of its slots that use this one

    def __cinit__(self, uint32_t number, str name):
        self.number = number
        self.name = name
        self.equal = {}
        self.prefixes = {}
        self.lengths = ()
        self.length_counts = {}
        self.users = {}
