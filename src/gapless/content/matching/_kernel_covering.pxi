# Covering: which slots may cover a conjunction, and which it may cover.


cdef class Engine(Search):
    """The whole engine; the fallback (`fallback.py`) is the same in plain Python."""

    def coverers(self, plan):
        """Return, in order, the slots that may cover the plan's conjunction."""
        return self.related(plan, True)

    def covered(self, plan):
        """Return, in order, the slots that the plan's conjunction may cover."""
        return self.related(plan, False)

    cdef list related(self, plan, bint wider):
        self.check_idle()
        known = [(name, alternatives) for name, alternatives in plan.ranges
                 if name in self.attributes]
        if not wider and len(known) < len(plan.ranges):
            return []  # a covered slot constrains every attribute that its coverer constrains
        cdef uint32_t count = sum([len(pair[1]) for pair in known])
        cdef range_t *ranges = <range_t *>grown(NULL, (count + 1) * sizeof(range_t))
        cdef list result = []
        cdef list groups = None
        try:
            self.fill(ranges, known)
            groups = (self.leading_here(ranges, ranges + count, dict(plan.stems)) if wider
                      else self.holding_all(ranges, ranges + count))
            for group in groups:
                self.compare(group, ranges, ranges + count, wider, result)
        finally:
            drop_texts(ranges, count)
            PyMem_Free(ranges)
        return sorted(set(result))  # an IN list is in several groups

    cdef list leading_here(self, const range_t *part, const range_t *end, dict stems):
        """Return the groups whose slots can cover: their key holds whenever the ranges do."""
        cdef list groups = [] if self.always is None else [self.always]
        cdef Attribute attribute
        while part < end:
            attribute = self.by_number[part.attribute]
            if not allows_missing(part):
                if attribute.present is not None:
                    groups.append(attribute.present)
                values = self.points(part)
                if values:
                    groups.append(self.group(EQUAL, attribute, values[0], False))
                text = stems.get(attribute.name)
                if values and type(values[0]) is str:
                    text = values[0]
                if text is not None:
                    groups += [attribute.prefixes.get(text[:length])
                               for length in attribute.lengths if length <= len(text)]
            part = next_attribute(part)
        return [group for group in groups if group is not None]

    cdef list holding_all(self, const range_t *part, const range_t *end):
        """Return groups that contain every slot with conditions on all attributes of the ranges.

        One attribute is enough; the one with the fewest groups is used.
        """
        cdef Attribute attribute, best = None
        cdef list values, best_values
        cdef Py_ssize_t count, least = 0
        if part == end:
            return self.all_groups()
        while part < end:
            attribute = self.by_number[part.attribute]
            values = self.points(part)
            count = (len(attribute.users) + len(attribute.prefixes)
                     + (len(values) or len(attribute.equal)))
            if best is None or count < least:
                best, best_values, least = attribute, values, count
            part = next_attribute(part)
        groups = [*best.users, *best.prefixes.values(), best.present]
        if best_values:
            groups += [self.group(EQUAL, best, value, False) for value in best_values]
        else:
            groups += [*best.equal.values(), best.when_true, best.when_false]
        return [group for group in groups if group is not None]

    cdef list points(self, const range_t *part):
        """Return the values of a condition that allows single values only, otherwise nothing."""
        cdef list values = []
        while True:
            if part.kind == ONE_TEXT:
                values.append(<object>part.text)
            elif part.kind == TRUE_ or part.kind == FALSE_:
                values.append(part.kind == TRUE_)
            elif (part.kind == NUMBER and part.low == part.high
                  and part.low_step == part.high_step and not part.low_step & 1):
                values.append(int(part.low) + part.low_step // 2 if part.low_step
                              else part.low)
            else:
                return []
            if not part.more:
                return values
            part += 1

    cdef int compare(self, Group group, const range_t *ranges, const range_t *end, bint wider,
                     list result) except -1:
        """Add the slots of a group whose ranges cover (are covered by) the given ones."""
        cdef uint64_t left[BLOCK]
        cdef uint64_t bits
        cdef size_t at = 0, word, words, top_words = (group.top + 63) >> 6
        cdef int row_count = 0
        cdef bint any_here
        if group.sliced:
            row_count = (self.rows_against(group, ranges, end) if wider
                         else self.rows_for(group, ranges, end))
            if row_count < 0:
                return 0
        while at < top_words:
            words = min(<size_t>BLOCK, top_words - at)
            if wider:
                any_here = any_left(left, self.rows, row_count, group.live, <int>at, <int>words)
            else:
                any_here = all_common(left, self.rows, row_count, group.live, <int>at, <int>words)
            if any_here:
                for word in range(words):
                    bits = left[word]
                    while bits:
                        self.compare_slot(group.slots[(at + word) * 64 + lowest_bit(bits)],
                                          ranges, end, wider, result)
                        bits &= bits - 1
            at += BLOCK
        return 0

    cdef int compare_slot(self, uint32_t slot, const range_t *ranges, const range_t *end,
                          bint wider, list result) except -1:
        cdef rule_t *rule = self.rules[slot]
        cdef range_t *own = ranges_of(rule)
        cdef range_t *own_end = own + rule.range_count
        if (ranges_cover(own, own_end, ranges, end) if wider
                else ranges_cover(ranges, end, own, own_end)):
            result.append(slot)
        return 0

    cdef int rows_against(self, Group group, const range_t *ranges, const range_t *end) except -2:
        """Collect rows that exclude a coverer: it is excluded at an end of the ranges, or it
        constrains an attribute that the ranges do not."""
        cdef column_t *column
        cdef const range_t *part
        cdef uint64_t rows
        cdef int count = 0, i
        for i in range(group.column_count):
            column = &group.columns[i]
            part = ranges
            while part < end and part.attribute != column.attribute:
                part = next_attribute(part)
            if part >= end:
                rows = 0
            else:
                rows = allowed_rows(part, <Bounds>column.bounds)
                if rows & NUMBER_BITS:  # a condition that holds at both ends holds inside, or
                    rows = (rows & ~NUMBER_BITS  # has a gap, which the comparison of ranges finds
                            | <uint64_t>1 << lowest_bit(rows & NUMBER_BITS)
                            | <uint64_t>1 << highest_bit(rows & NUMBER_BITS))
            count = self.gather(column, group.stride, rows, rows == 0, count)
        return count

    cdef int rows_for(self, Group group, const range_t *ranges, const range_t *end) except -2:
        """Collect rows that contain all covered slots: constrained, and excluded outside."""
        cdef column_t *column
        cdef uint64_t rows
        cdef int count = 0
        while ranges < end:
            if group.attribute != ranges.attribute or group.kind not in (EQUAL, PREFIX):
                column = group.column(ranges.attribute)
                if column != NULL:
                    rows = ~allowed_rows(ranges, <Bounds>column.bounds) & column.ever_allowed
                    count = self.gather(column, group.stride, rows, True, count)
                elif (group.attribute != ranges.attribute or group.kind == ALWAYS) and (
                        group not in (<Attribute>self.by_number[ranges.attribute]).users):
                    return -1  # no slot here constrains it
            # otherwise the key implies the condition, which has no rows
            ranges = next_attribute(ranges)
        return count

    cdef int gather(self, const column_t *column, size_t stride, uint64_t rows, bint constrained,
                    int count) except -1:
        cdef int needed = count + ROWS_STORED
        cdef uint64_t **old = self.rows
        if needed > self.row_capacity:
            self.row_capacity = needed * 2
            self.rows = <uint64_t **>grown(old, self.row_capacity * sizeof(uint64_t *))
        if constrained:
            self.rows[count] = column.rows + stride * CONSTRAINED_ROW
            count += 1
        while rows:
            self.rows[count] = column.rows + stride * <size_t>lowest_bit(rows)
            count += 1
            rows &= rows - 1
        return count


cdef bint allows_missing(const range_t *part) noexcept:
    while True:
        if part.kind == MISSING:
            return True
        if not part.more:
            return False
        part += 1
