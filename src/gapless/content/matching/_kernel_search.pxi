# The search: from an event to slots, and from slots to their owners and links.


cdef class Search(Store):
    """Slots found by events."""

    # --- events ------------------------------------------------------------------------------

    def match(self, attributes):
        """Return the keys whose filter the event matches."""
        self.begin(False)
        try:
            self.run(attributes)
            return self.keys()
        finally:
            self.busy = False

    def match_batch(self, events):
        """Return the keys for each event."""
        return [self.match(attributes) for attributes in events]

    def distribute(self, events, items):
        """Return for each key the items whose events it matches, in their order."""
        cdef dict found = {}
        cdef PyObject *owner
        for attributes, item in zip(events, items, strict=True):
            self.begin(False)
            try:
                self.run(attributes)
                if self.hit_count == 1:
                    owner = PyList_GET_ITEM(self.owners, self.hits[0])
                    if type(<object>owner) is not Owners:
                        give(found, <object>owner, item)
                        continue
                keys = self.keys()  # Cython takes `for key in x.keys()` for a loop over a dict
                for key in keys:
                    give(found, key, item)
            finally:
                self.busy = False
        return found

    def route(self, attributes):
        """Return the mask of the links for which the event matches, and the local keys."""
        self.begin(True)
        try:
            return self.mask(attributes), self.keys()
        finally:
            self.busy = False

    def links(self, events):
        """Return for each event the mask of the links for which it matches."""
        cdef list found = []
        for attributes in events:
            self.begin(True)
            try:
                found.append(self.mask(attributes))
            finally:
                self.busy = False
        return found

    cdef mask(self, attributes):
        """Search, and return the mask of the links that were hit."""
        if self.mask_words:
            memset(self.hit_mask, 0, self.mask_words * sizeof(uint64_t))
        self.run(attributes)
        if self.mask_words <= 1:
            return self.hit_mask[0] if self.mask_words else 0
        return int.from_bytes(
            (<char *>self.hit_mask)[: self.mask_words * sizeof(uint64_t)], "little")

    def find(self, attributes):
        """Return the slots that the event matches, in order."""
        self.begin(False)
        try:
            self.run(attributes)
            return sorted([self.hits[i] for i in range(self.hit_count)])
        finally:
            self.busy = False

    cdef int begin(self, bint routing) except -1:
        """Start a search, which has the arrays of the engine until it ends."""
        self.check_idle()
        self.busy = True
        self.routing = routing
        return 0

    cdef int run(self, attributes) except -1:
        """Put the event into the value array, scan the groups of its attributes, clean up.

        The fast path is for dicts of plain values. It holds a reference to each value it reads, so
        that nothing is freed during the search, and runs no code of the caller: an event with a
        subclass of `str` that has its own `__hash__`, for example, is searched as a plain copy.
        """
        cdef Py_ssize_t place = 0
        cdef PyObject *name
        cdef PyObject *value
        cdef PyObject *found
        cdef uint32_t touched = 0, i
        cdef dict event = attributes if type(attributes) is dict else plain_event(attributes)
        self.hit_count = 0
        self.complete = False
        self.epoch += 1
        try:
            while PyDict_Next(event, &place, &name, &value):
                if not is_plain(name, value):
                    break
                if value == <PyObject *>None:
                    continue
                found = PyDict_GetItemWithError(self.attributes, <object>name)
                if found != NULL:
                    self.touched[touched] = (<Attribute>found).number
                    touched += 1
                    Py_INCREF(<object>value)
                    self.take_value((<Attribute>found), <object>value)
            else:
                for i in range(touched):
                    self.visit(<Attribute>PyList_GET_ITEM(self.by_number, self.touched[i]), event)
                if self.always is not None:
                    self.scan(self.always, event)
                return 0
        finally:
            for i in range(touched):
                self.values[self.touched[i]].kind = MISSING
                Py_DECREF(<object>self.values[self.touched[i]].object)
        return self.run_copy(event)

    cdef int run_copy(self, dict event) except -1:
        """Search a plain copy of an event; values that are still not plain are invalid."""
        cdef dict plain = plain_event(event)
        for name, value in list(plain.items()):
            if not is_plain(<PyObject *>name, <PyObject *>value):
                if name in self.attributes:
                    check_value(name, value)
                del plain[name]
        return self.run(plain)

    cdef int take_value(self, Attribute attribute, value) except -1:
        cdef value_t *target = &self.values[attribute.number]
        cdef int overflow = 0
        cdef long long whole
        target.object = <PyObject *>value  # held by run() until the search is over
        target.step = 0
        if PyFloat_Check(value):
            target.number = PyFloat_AS_DOUBLE(value)
            target.kind = NUMBER if target.number == target.number else NAN_
        elif PyUnicode_Check(value):
            target.kind = TEXT
        elif PyBool_Check(value):
            target.kind = TRUE_ if value is True else FALSE_
        else:
            whole = PyLong_AsLongLongAndOverflow(value, &overflow)
            if overflow:
                check_value(attribute.name, value)
            target.kind = NUMBER
            target.number = <double>whole
            if whole > 9007199254740992 or whole < -9007199254740992:
                target.step = lost_in_rounding(whole)
        return 0

    cdef int visit(self, Attribute attribute, dict event) except -1:
        """Scan the groups of one attribute of the event."""
        cdef value_t *value = &self.values[attribute.number]
        cdef PyObject *found
        cdef Py_ssize_t length
        if value.kind == TRUE_ or value.kind == FALSE_:
            if value.kind == TRUE_ and attribute.when_true is not None:
                self.scan(attribute.when_true, event)
            elif value.kind == FALSE_ and attribute.when_false is not None:
                self.scan(attribute.when_false, event)
        elif attribute.equal:
            found = PyDict_GetItemWithError(attribute.equal, <object>value.object)
            if found != NULL:
                self.scan(<Group>found, event)
        if value.kind == TEXT:
            for length in attribute.lengths:
                if length > len(<str>value.object):
                    break
                found = PyDict_GetItemWithError(
                    attribute.prefixes, (<str>value.object)[:length])
                if found != NULL:
                    self.scan(<Group>found, event)
        if attribute.present is not None:
            self.scan(attribute.present, event)
        return 0

    cdef int scan(self, Group group, dict event) except -1:
        """Verify the slots of a group that its bit rows do not exclude."""
        cdef uint64_t left[BLOCK]
        cdef uint64_t bits
        cdef size_t at = 0, word, words
        cdef size_t top_words = min(group.words, ((<size_t>group.top + 255) >> 8) << 2)  # fours
        cdef int row_count = 0, pending = 0
        cdef uint32_t slot
        cdef column_t *column
        if group.top == 0:
            return 0
        if not group.sliced:
            self.consider_word(group.slots, group.live[0], event)
            return 0
        self.reserve_rows(group.column_count)
        for row_count in range(group.column_count):
            column = &group.columns[row_count]
            self.rows[row_count] = column.rows + group.stride * <size_t>self.row_of(column)
        row_count = group.column_count
        while at < top_words and not self.complete:
            words = min(<size_t>BLOCK, top_words - at)
            if any_left(left, self.rows, row_count, group.live, <int>at, <int>words):
                for word in range(words):
                    bits = left[word]
                    while bits:
                        slot = group.slots[(at + word) * 64 + lowest_bit(bits)]
                        self.pending[pending] = slot
                        expect(self.rules[slot], 3)
                        expect(PyList_GET_ITEM(self.owners, slot), 1)
                        bits &= bits - 1
                        pending += 1
                        if pending == PENDING:
                            pending = self.consider_pending(pending, event)
            at += BLOCK
        self.consider_pending(pending, event)
        return 0

    cdef int consider_word(self, uint32_t *slots, uint64_t bits, dict event) except -1:
        while bits:
            self.consider(slots[lowest_bit(bits)], event)
            bits &= bits - 1
        return 0

    cdef int consider_pending(self, int count, dict event) except -1:
        cdef int i
        for i in range(count):
            self.consider(self.pending[i], event)
        return 0

    cdef inline int row_of(self, const column_t *column) except -1:
        cdef value_t *value = &self.values[column.attribute]
        if value.kind == NUMBER:
            return (<Bounds>column.bounds).row_now(value.number, self.epoch)
        if value.kind == TEXT:
            return text_row(value.object)
        return value.kind

    cdef inline int consider(self, uint32_t slot, dict event) except -1:
        """Verify a slot that may match, and add it to the hits if it does."""
        cdef rule_t *rule = self.rules[slot]
        cdef range_t *ranges = ranges_of(rule)
        cdef bint local = True
        if self.routing:
            if self.complete:
                return 0
            local = PyList_GET_ITEM(self.owners, slot) != <PyObject *>None
            if not local and not self.adds_links(slot):
                return 0
        if not ranges_hold(ranges, ranges + rule.verified, self.values):
            return 0
        if rule.check != NULL and not (<object>rule.check).matches(event):
            return 0
        if self.routing:
            self.note_links(slot)
        if local:
            if self.hit_count == self.hit_capacity:
                self.hit_capacity = self.hit_capacity * 2 + 64
                self.hits = <uint32_t *>grown(self.hits, self.hit_capacity * sizeof(uint32_t))
            self.hits[self.hit_count] = slot
            self.hit_count += 1
        return 0

    cdef int reserve_rows(self, int count) except -1:
        if count > self.row_capacity:
            self.row_capacity = count * 2 + 64
            self.rows = <uint64_t **>grown(self.rows, self.row_capacity * sizeof(uint64_t *))
        return 0

    # --- owners and links --------------------------------------------------------------------

    def own(self, uint32_t slot, key):
        """Make `key` an owner of the slot."""
        self.check_slot(slot)
        held = self.owners[slot]
        if held is None:
            self.owners[slot] = key if type(key) is not Owners and key is not None else Owners(key)
        elif type(held) is Owners:
            held.add(key)
        else:
            self.owners[slot] = Owners(held, key)
        self.local_owners += 1
        self.memo.clear()

    def disown(self, uint32_t slot, key):
        """Remove `key` from the slot's owners."""
        self.check_slot(slot)
        held = self.owners[slot]
        if type(held) is Owners:
            held.discard(key)
            if not held.keys:
                self.owners[slot] = None
        else:
            self.owners[slot] = None
        self.local_owners -= 1
        self.memo.clear()

    cdef keys(self):
        """Return the owners of all hits."""
        cdef uint32_t i
        cdef Py_ssize_t shared = 0
        if self.hit_count == 0:
            return NO_KEYS
        if self.hit_count == 1:
            owner = self.owners[self.hits[0]]
            return owner.frozen() if type(owner) is Owners else frozenset((owner,))
        cdef list single = []
        cdef list several = []
        for i in range(self.hit_count):
            owner = <object>PyList_GET_ITEM(self.owners, self.hits[i])
            if type(owner) is Owners:
                several.append(owner)
                shared += len(owner.keys)
            else:
                single.append(owner)
        if shared > self.memo.WORTHWHILE:
            hits = (<char *>self.hits)[: self.hit_count * sizeof(uint32_t)]
            return self.memo.recall(hits, single, several)
        if several:
            single.extend([key for owner in several for key in owner.keys])
        return frozenset(single)

    def set_links(self, uint32_t slot, mask):
        """Set the links that own the slot (a bit a link)."""
        self.check_slot(slot)
        cdef size_t words = (mask.bit_length() + 63) >> 6
        cdef size_t word
        if words > self.mask_words:
            self.widen_masks(words)
        for word in range(self.mask_words):
            self.masks[slot * self.mask_words + word] = (mask >> (64 * word)) & 0xFFFFFFFFFFFFFFFF

    def set_all_links(self, mask):
        """Set the mask of all links: once all are hit, a search without local owners ends."""
        self.check_idle()
        cdef size_t words = (mask.bit_length() + 63) >> 6
        cdef size_t word
        if words > self.mask_words:
            self.widen_masks(words)
        for word in range(self.mask_words):
            self.all_links[word] = (mask >> (64 * word)) & 0xFFFFFFFFFFFFFFFF

    cdef int widen_masks(self, size_t words) except -1:
        cdef uint64_t *masks = <uint64_t *>grown(
            NULL, (self.slot_capacity * words + 1) * sizeof(uint64_t))
        cdef uint32_t slot
        memset(masks, 0, (self.slot_capacity * words + 1) * sizeof(uint64_t))
        for slot in range(self.slot_top if self.masks != NULL else 0):
            memcpy(masks + slot * words, self.masks + slot * self.mask_words,
                   self.mask_words * sizeof(uint64_t))
        PyMem_Free(self.masks)
        self.masks = masks
        self.hit_mask = <uint64_t *>grown(self.hit_mask, words * sizeof(uint64_t))
        self.all_links = <uint64_t *>grown(self.all_links, words * sizeof(uint64_t))
        memset(self.all_links + self.mask_words, 0,
               (words - self.mask_words) * sizeof(uint64_t))
        self.mask_words = words
        return 0

    cdef inline bint adds_links(self, uint32_t slot) noexcept:
        cdef size_t word
        for word in range(self.mask_words):
            if self.masks[slot * self.mask_words + word] & ~self.hit_mask[word]:
                return True
        return False

    cdef inline void note_links(self, uint32_t slot) noexcept:
        cdef size_t word
        cdef bint missing = self.local_owners != 0
        for word in range(self.mask_words):
            self.hit_mask[word] |= self.masks[slot * self.mask_words + word]
            if self.all_links[word] & ~self.hit_mask[word]:
                missing = True
        self.complete = not missing


cdef inline int give(dict found, key, item) except -1:
    """Append an item to those of a key."""
    cdef PyObject *items = PyDict_GetItemWithError(found, key)
    if items == NULL:
        found[key] = [item]
    else:
        (<list>items).append(item)
    return 0


cdef inline bint is_plain(PyObject *name, PyObject *value) noexcept:
    """Return whether a name is exactly a str and a value exactly of one of the value types."""
    return PyUnicode_CheckExact(<object>name) and (
        PyFloat_CheckExact(<object>value) or PyUnicode_CheckExact(<object>value)
        or PyLong_CheckExact(<object>value) or PyBool_Check(<object>value)
        or value == <PyObject *>None)


cdef int16_t lost_in_rounding(long long whole) noexcept:
    cdef double nearest = <double>whole
    if nearest >= 9223372036854775808.0:
        return <int16_t>(2 * (whole - 9223372036854775807 - 1))
    return <int16_t>(2 * (whole - <long long>nearest))
