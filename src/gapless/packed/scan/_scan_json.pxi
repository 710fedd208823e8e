# Writing of arrays and JSON by the column scan; a part of _scan.pyx.

# --- writing ---------------------------------------------------------------------------------------


cdef uint8_t *put_array(uint8_t *out, uint32_t count) noexcept nogil:
    """Write the head of an array, as short as msgspec does."""
    cdef int size = 0 if count < 16 else 2 if count < 0x10000 else 4
    out[0] = <uint8_t>(0x90 | count) if size == 0 else 0xDC if size == 2 else 0xDD
    out += 1
    while size:
        size -= 1
        out[0] = <uint8_t>(count >> 8 * size)
        out += 1
    return out


cdef int gather_floats(event_t *event, list found) except -1:
    """Add the floats of the attributes to a list. The scan has checked them."""
    cdef const uint8_t *at = event.attributes
    cdef const uint8_t *end = at + event.attributes_size
    cdef value_t token
    cdef double number
    while at < end:
        at = take(at, end, &token)
        if token.kind == FLOAT:
            memcpy(&number, &token.word, sizeof(number))
            found.append(number)
    return 0


cdef char *put_json(char *out, event_t *event, const char **floats) noexcept nogil:
    """Write attributes as JSON; there is enough space. Floats are copied from their JSON."""
    cdef const uint8_t *at = event.attributes
    cdef const uint8_t *end = at + event.attributes_size
    cdef value_t token
    at = take(at, end, &token)
    out[0] = b"{"
    out += 1
    while at < end:
        at = take(at, end, &token)
        out = put_text(out, token.at, token.size)
        out[0] = b":"
        out += 1
        at = take(at, end, &token)
        if token.kind == TEXT:
            out = put_text(out, token.at, token.size)
        elif token.kind == INT:
            out = put_int(out, <int64_t>token.word)
        elif token.kind == FLOAT:
            out = put_float(out, token.word, floats)
        else:
            out = put_word(out, b"true" if token.kind == TRUE else b"false")
        out[0] = b","
        out += 1
    if (out - 1)[0] == b",":
        out -= 1
    out[0] = b"}"
    return out + 1


cdef inline char *put_word(char *out, const char *word) noexcept nogil:
    while word[0]:
        out[0] = word[0]
        out += 1
        word += 1
    return out


cdef inline char *put_float(char *out, uint64_t word, const char **floats) noexcept nogil:
    """Copy the next float. One that is not finite is null there, and is written by its name."""
    cdef double number
    cdef const char *text = floats[0]
    memcpy(&number, &word, sizeof(number))
    if not isfinite(number):
        out = put_word(out, b"NaN" if isnan(number) else b"Infinity" if number > 0 else b"-Infinity")
    while text[0] != b"," and text[0] != b"]":
        if isfinite(number):
            out[0] = text[0]
            out += 1
        text += 1
    floats[0] = text + 1
    return out


cdef inline char *put_int(char *out, int64_t number) noexcept nogil:
    cdef char digits[20]
    cdef int count = 0
    cdef uint64_t left = <uint64_t>number
    if number < 0:
        out[0] = b"-"
        out += 1
        left = 0 - left
    while count == 0 or left:
        digits[count] = <char>(48 + left % 10)
        left //= 10
        count += 1
    while count:
        count -= 1
        out[0] = digits[count]
        out += 1
    return out


cdef inline char *put_text(char *out, const uint8_t *at, uint32_t size) noexcept nogil:
    """Write a text in quotes, escaped as by msgspec."""
    cdef const uint8_t *end = at + size
    out[0] = b'"'
    out += 1
    while at < end:
        if at[0] >= 0x20 and at[0] != b'"' and at[0] != b"\\":
            out[0] = <char>at[0]
            out += 1
        else:
            out = put_escaped(out, at[0])
        at += 1
    out[0] = b'"'
    return out + 1


cdef char *put_escaped(char *out, uint8_t byte) noexcept nogil:
    cdef const char *hexadecimal = b"0123456789abcdef"
    cdef char short_form = 0
    if byte == b'"' or byte == b"\\":
        short_form = <char>byte
    elif byte == 8:
        short_form = b"b"
    elif byte == 9:
        short_form = b"t"
    elif byte == 10:
        short_form = b"n"
    elif byte == 12:
        short_form = b"f"
    elif byte == 13:
        short_form = b"r"
    out[0] = b"\\"
    if short_form:
        out[1] = short_form
        return out + 2
    out = put_word(out + 1, b"u00")
    out[0] = hexadecimal[byte >> 4]
    out[1] = hexadecimal[byte & 15]
    return out + 2
