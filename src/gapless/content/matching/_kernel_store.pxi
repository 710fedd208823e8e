# The slots: the layout of a plan in memory, and how it is added to and removed from its groups.


cdef class Store:
    """Slots in groups: insert, delete, and the rows of groups that have grown."""

    cdef dict attributes
    cdef list by_number
    cdef list free_numbers
    cdef Group always
    cdef rule_t **rules
    cdef uint32_t slot_capacity, slot_top
    cdef list free_slots
    cdef list owners  # slot -> None, the only key, or Owners
    cdef object memo
    cdef uint64_t *masks
    cdef size_t mask_words
    cdef uint64_t *hit_mask
    cdef uint64_t *all_links
    cdef Py_ssize_t local_owners
    cdef bint covering
    cdef value_t *values
    cdef uint32_t value_capacity
    cdef uint32_t *touched
    cdef uint32_t *hits
    cdef uint32_t hit_count, hit_capacity
    cdef uint64_t **rows
    cdef int row_capacity
    cdef uint32_t pending[PENDING]
    cdef uint64_t epoch
    cdef bint routing, complete, busy

    def __cinit__(self, bint covering=False):
        self.attributes = {}
        self.by_number = []
        self.free_numbers = []
        self.free_slots = []
        self.owners = []
        self.memo = Memo()
        self.covering = covering

    def __dealloc__(self):
        cdef uint32_t slot
        for slot in range(self.slot_top):
            if self.rules[slot] != NULL:
                free_rule(self.rules[slot])
        PyMem_Free(self.rules)
        PyMem_Free(self.masks)
        PyMem_Free(self.hit_mask)
        PyMem_Free(self.all_links)
        PyMem_Free(self.values)
        PyMem_Free(self.touched)
        PyMem_Free(self.hits)
        PyMem_Free(self.rows)

    # --- slots -------------------------------------------------------------------------------

    def insert(self, plan):
        """Store a plan and return its slot."""
        self.check_idle()
        self.busy = True
        try:
            return self.insert_alone(plan)
        finally:
            self.busy = False

    cdef uint32_t insert_alone(self, plan) except? 0xFFFFFFFF:
        access = plan.access
        cdef int kind = access.kind
        name, keys = access.attribute, access.values
        cdef Attribute attribute = self.attribute(name) if kind != ALWAYS else None
        cdef list groups = [self.group(kind, attribute, key, True) for key in keys or (None,)]
        cdef rule_t *rule = self.new_rule(plan, len(groups), attribute)
        cdef uint32_t slot = self.take_slot()
        cdef location_t *location = locations_of(rule)
        cdef Group group
        self.rules[slot] = rule
        for group in groups:
            location.group = <PyObject *>group
            location.position = group.take_position()
            group.slots[location.position] = slot
            self.place(group, rule, location.position)
            location += 1
        return slot

    def delete(self, uint32_t slot):
        """Remove a slot; return the attributes that no slot constrains any more."""
        self.check_slot(slot)
        self.busy = True
        try:
            return self.delete_alone(slot)
        finally:
            self.busy = False

    cdef list delete_alone(self, uint32_t slot):
        cdef rule_t *rule = self.rules[slot]
        cdef location_t *location = locations_of(rule)
        cdef Group group = <Group>location[0].group
        cdef uint32_t i
        for i in range(rule.location_count):
            self.displace(<Group>location[i].group, rule, location[i].position)
        cdef list unused = self.forget_attributes(rule, group)
        free_rule(rule)
        self.rules[slot] = NULL
        self.owners[slot] = None
        if self.masks != NULL:
            memset(self.masks + slot * self.mask_words, 0, self.mask_words * sizeof(uint64_t))
        self.free_slots.append(slot)
        self.memo.clear()
        return unused

    cdef int check_idle(self) except -1:
        """Refuse use inside a search, which uses the arrays."""
        if self.busy:
            raise IndexBusyError()
        return 0

    cdef int check_slot(self, uint32_t slot) except -1:
        self.check_idle()
        if slot >= self.slot_top or self.rules[slot] == NULL:
            raise AssertionError(f"slot {slot} is free")
        return 0

    cdef list forget_attributes(self, rule_t *rule, Group group):
        """Uncount a rule's uses of its attributes; return the names of those without any use."""
        cdef const range_t *part = ranges_of(rule)
        cdef const range_t *end = part + rule.range_count
        cdef list unused = []
        while part < end:
            self.take_use(part.attribute, unused)
            part = next_attribute(part)
        if group.kind != ALWAYS:
            self.take_use(group.attribute, unused)
        return unused

    cdef int take_use(self, uint32_t number, list unused) except -1:
        """Uncount one use of an attribute; without any use its number is free."""
        cdef Attribute attribute = self.by_number[number]
        attribute.uses -= 1
        if not attribute.uses:
            del self.attributes[attribute.name]
            self.free_numbers.append(attribute.number)
            unused.append(attribute.name)
        return 0

    cdef uint32_t take_slot(self) except? 0xFFFFFFFF:
        cdef uint32_t capacity
        if self.free_slots:
            return self.free_slots.pop()
        if self.slot_top == self.slot_capacity:
            capacity = self.slot_capacity + self.slot_capacity // 2 + 64
            self.rules = <rule_t **>grown(self.rules, capacity * sizeof(rule_t *))
            if self.masks != NULL:
                self.masks = <uint64_t *>grown(
                    self.masks, capacity * self.mask_words * sizeof(uint64_t))
                memset(self.masks + self.slot_capacity * self.mask_words, 0,
                       (capacity - self.slot_capacity) * self.mask_words * sizeof(uint64_t))
            self.slot_capacity = capacity
        self.owners.append(None)
        self.rules[self.slot_top] = NULL
        self.slot_top += 1
        return self.slot_top - 1

    cdef rule_t *new_rule(self, plan, uint32_t location_count, Attribute access) except NULL:
        """Lay a plan out in memory. Ranges that the access implies come last, and only if slots
        are compared with each other."""
        cdef tuple ranges = plan.ranges
        cdef tuple pair, alternatives
        cdef list named = [], implied = []
        cdef uint32_t verified = 0, count = 0
        cdef bint is_implied = access is not None and plan.implied
        for pair in ranges:
            name, alternatives = pair
            if not is_implied or name != access.name:
                named.append(pair)
                verified += <uint32_t>len(alternatives)
            elif self.covering:
                implied.append(pair)
                count += <uint32_t>len(alternatives)
        count += verified
        named += implied
        cdef rule_t *rule = <rule_t *>grown(
            NULL, sizeof(rule_t) + location_count * sizeof(location_t) + count * sizeof(range_t))
        rule.check = NULL
        rule.location_count = location_count
        rule.range_count = count
        rule.verified = verified
        self.fill(ranges_of(rule), named)
        self.add_uses(ranges_of(rule), count)
        if access is not None:
            access.uses += 1
        check = plan.check
        if check is not None:
            rule.check = <PyObject *>check
            Py_INCREF(check)
        return rule

    cdef int fill(self, range_t *part, list named) except -1:
        cdef Attribute attribute
        cdef tuple pair, alternatives
        cdef Py_ssize_t i, last
        for pair in named:
            name, alternatives = pair
            attribute = self.attribute(name)
            last = len(alternatives) - 1
            for i in range(last + 1):
                kind, low, low_step, high, high_step, text = alternatives[i]
                part.attribute = attribute.number
                part.kind = kind
                part.more = i < last
                part.high = high
                part.low_step = low_step
                part.high_step = high_step
                if text is None:
                    part.low = low
                else:
                    Py_INCREF(text)
                    part.text = <PyObject *>text
                part += 1
        return 0

    cdef int add_uses(self, const range_t *part, uint32_t count) except -1:
        cdef const range_t *end = part + count
        while part < end:
            (<Attribute>PyList_GET_ITEM(self.by_number, part.attribute)).uses += 1
            part = next_attribute(part)
        return 0

    cdef Attribute attribute(self, str name):
        cdef Attribute attribute = self.attributes.get(name)
        cdef uint32_t capacity
        if attribute is None and self.free_numbers:
            attribute = Attribute(self.free_numbers.pop(), name)
            self.attributes[name] = attribute
            self.by_number[attribute.number] = attribute
        elif attribute is None:
            attribute = Attribute(len(self.by_number), name)
            if attribute.number == self.value_capacity:
                capacity = self.value_capacity * 2 + 8
                self.values = <value_t *>grown(self.values, capacity * sizeof(value_t))
                memset(self.values + self.value_capacity, 0,
                       (capacity - self.value_capacity) * sizeof(value_t))
                self.touched = <uint32_t *>grown(self.touched, capacity * sizeof(uint32_t))
                self.value_capacity = capacity
            self.attributes[name] = attribute
            self.by_number.append(attribute)
        return attribute

    cdef Group group(self, int kind, Attribute attribute, key, bint make):
        """Return the group of a key; if there is none, make it or return None."""
        cdef Group group
        if kind == ALWAYS:
            group = self.always
        elif kind == PRESENT:
            group = attribute.present
        elif kind == PREFIX:
            group = attribute.prefixes.get(key)
        elif PyBool_Check(key):
            group = attribute.when_true if key else attribute.when_false
        else:
            group = attribute.equal.get(key)
        if group is None and make:
            group = Group()
            group.kind = kind
            group.attribute = attribute.number if attribute is not None else 0
            group.key = key
            self.hang(group, attribute, group)
        return group

    cdef int hang(self, Group group, Attribute attribute, Group there) except -1:
        """Store `there` (the group, or None to remove it) under the group's key."""
        if group.kind == ALWAYS:
            self.always = there
        elif group.kind == PRESENT:
            attribute.present = there
        elif group.kind == EQUAL and PyBool_Check(group.key):
            if group.key:
                attribute.when_true = there
            else:
                attribute.when_false = there
        else:
            keyed = attribute.prefixes if group.kind == PREFIX else attribute.equal
            if there is None:
                del keyed[group.key]
            else:
                keyed[group.key] = there
            if group.kind == PREFIX:
                count_length(attribute.length_counts, len(group.key), 1 if there is not None else -1)
                if len(attribute.length_counts) != len(attribute.lengths):
                    attribute.lengths = tuple(sorted(attribute.length_counts))
        return 0

    # --- groups and their rows ---------------------------------------------------------------

    cdef int place(self, Group group, rule_t *rule, uint32_t position) except -1:
        if self.covering:
            self.count_users(group, rule, 1)
        if group.sliced:
            self.mark(group, rule, position, True)
        if group.count > SMALL and group.count > RESLICE_FACTOR * group.sliced_at:
            self.slice(group)
        return 0

    cdef int displace(self, Group group, rule_t *rule, uint32_t position) except -1:
        if self.covering:
            self.count_users(group, rule, -1)
        if group.sliced:
            self.mark(group, rule, position, False)
        group.give_position(position)
        if group.count == 0:
            self.hang(group, self.by_number[group.attribute] if group.kind != ALWAYS else None,
                      None)
        return 0

    cdef int count_users(self, Group group, rule_t *rule, int change) except -1:
        cdef const range_t *part = ranges_of(rule)
        cdef const range_t *end = part + rule.range_count
        cdef Attribute attribute
        while part < end:
            if group.kind == ALWAYS or part.attribute != group.attribute:
                attribute = self.by_number[part.attribute]
                left = attribute.users.get(group, 0) + change
                if left:
                    attribute.users[group] = left
                else:
                    del attribute.users[group]
            part = next_attribute(part)
        return 0

    cdef int mark(self, Group group, rule_t *rule, uint32_t position, bint on) except -1:
        cdef const range_t *part = ranges_of(rule)
        cdef const range_t *end = part + rule.verified
        cdef column_t *column
        while part < end:
            column = group.column(part.attribute)
            if column != NULL:  # without rows, verification decides
                mark_column(column, part, position, group.stride, on)
            part = next_attribute(part)
        return 0

    cdef column_t *new_column(self, Group group, uint32_t number, list ends) except NULL:
        """Add a column. Groups found by presence share bounds, so that an event's value is put
        into a bucket once; groups found by equality have their own, as prices differ by symbol."""
        cdef Attribute attribute
        cdef Bounds bounds
        if group.kind == EQUAL or group.kind == PREFIX:
            bounds = Bounds.of(ends)
        else:
            attribute = self.by_number[number]
            if attribute.bounds is None or group.count > 4 * attribute.bounds_from:
                attribute.bounds = Bounds.of(ends)
                attribute.bounds_from = group.count
            bounds = attribute.bounds
        return group.add_column(number, bounds)

    cdef list ends(self, const range_t *part, list into):
        while True:
            if part.kind == NUMBER:
                if part.low - part.low == 0:  # finite
                    into.append(part.low)
                if part.high - part.high == 0:
                    into.append(part.high)
            if not part.more:
                return into
            part += 1

    cdef int slice(self, Group group) except -1:
        """Give a group bit rows, with bounds computed from its current slots.

        Only attributes that a fair share of the slots constrains get rows: each takes 65 bits a
        slot of the group, so rows for rare ones would cost more than they exclude.
        """
        cdef dict ends = {}, uses = {}
        cdef uint32_t position, stride = 1 + group.count // SAMPLE
        cdef rule_t *rule
        cdef const range_t *part
        cdef const range_t *end
        group.sliced_at = group.count
        for position in range(group.top):
            if not (group.live[position >> 6] >> (position & 63)) & 1:
                continue
            rule = self.rules[group.slots[position]]
            part = ranges_of(rule)
            end = part + rule.verified
            while part < end:
                uses[part.attribute] = uses.get(part.attribute, 0) + 1
                if position % stride == 0:
                    self.ends(part, ends.setdefault(part.attribute, []))
                part = next_attribute(part)
        group.drop_columns()
        group.sliced = True
        for number in sorted(uses):
            if uses[number] * COLUMN_SHARE >= group.count:
                self.new_column(group, number, ends.get(number, []))
        for position in range(group.top):
            if (group.live[position >> 6] >> (position & 63)) & 1:
                self.mark(group, self.rules[group.slots[position]], position, True)
        return 0

    # --- introspection -----------------------------------------------------------------------

    cdef list all_groups(self):
        cdef Attribute attribute
        groups = [self.always]
        for attribute in self.by_number:
            groups += [*attribute.equal.values(), *attribute.prefixes.values(), attribute.present,
                       attribute.when_true, attribute.when_false]
        return [group for group in groups if group is not None]

    def statistics(self):
        """Return counts for people: slots, attributes, groups by access, groups with rows."""
        cdef Group group
        groups = self.all_groups()
        kinds = [group.kind for group in groups]
        return {
            "slots": int(self.slot_top) - len(self.free_slots),
            "attributes": len(self.attributes),
            "equal": kinds.count(EQUAL),
            "prefix": kinds.count(PREFIX),
            "present": kinds.count(PRESENT),
            "always": kinds.count(ALWAYS),
            "sliced": sum([group.sliced for group in groups]),
            "largest": max([int(group.count) for group in groups], default=0),
        }


cdef int count_length(dict counts, Py_ssize_t length, int change) except -1:
    left = counts.get(length, 0) + change
    if left:
        counts[length] = left
    else:
        del counts[length]
    return 0


cdef int drop_texts(range_t *part, uint32_t count) except -1:
    cdef uint32_t i
    for i in range(count):
        if part[i].kind == ONE_TEXT:
            Py_DECREF(<object>part[i].text)
    return 0


cdef int free_rule(rule_t *rule) except -1:
    drop_texts(ranges_of(rule), rule.range_count)
    Py_XDECREF(rule.check)
    PyMem_Free(rule)
    return 0
