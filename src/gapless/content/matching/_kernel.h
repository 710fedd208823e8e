/* The innermost loops of the matching kernel, and the layout of their data.
 *
 * A range is one alternative of a condition on one attribute; the alternatives of an attribute
 * are adjacent, all but the last with `more` set. Numbers are (double, step) pairs, see plan.py.
 * Rows are bit sets over the positions of a group: a bit is set if the condition of that position
 * cannot hold for a value of this row's bucket.
 */
#ifndef GAPLESS_KERNEL_H
#define GAPLESS_KERNEL_H

#include <Python.h>
#include <stdint.h>
#include <string.h>

enum { MISSING, FALSE_, TRUE_, NAN_, NUMBER, TEXT, ONE_TEXT };

typedef struct {
    union { double low; PyObject *text; };
    double high;
    int16_t low_step, high_step;
    uint32_t attribute : 28, kind : 3, more : 1;
} range_t;

typedef struct {
    double number;
    PyObject *object; /* borrowed from the event */
    int16_t step;
    uint8_t kind;
} value_t;

/* Buckets of a column: one row each. */
enum {
    TEXT_ROW = 4, TEXT_ROWS = 12, NUMBER_ROW = 16, NUMBER_ROWS = 48,
    CONSTRAINED_ROW = 64, ROWS_STORED = 65, BOUNDS = NUMBER_ROWS - 1, BOUNDS_PADDED = 63
};

#define BLOCK 64 /* words of a group that are processed at a time: 4,096 positions, in cache */

#if defined(__x86_64__) && defined(__gnu_linux__) && defined(__GNUC__) && !defined(__clang__)
#define VECTOR_CLONES __attribute__((target_clones("avx2", "default")))
#else
#define VECTOR_CLONES
#endif

#if defined(__GNUC__)
static inline int lowest_bit(uint64_t word) { return __builtin_ctzll(word); }
static inline int highest_bit(uint64_t word) { return 63 - __builtin_clzll(word); }
#else
static inline int lowest_bit(uint64_t word) { int n = 0; while (!(word & 1)) { word >>= 1; n++; } return n; }
static inline int highest_bit(uint64_t word) { int n = 0; while (word >>= 1) n++; return n; }
#endif

/* Slots to verify are far apart in memory: prefetched some steps ahead, they load in parallel. */
static inline void expect(const void *memory, int lines) {
#if defined(__GNUC__)
    for (int i = 0; i < lines; i++) __builtin_prefetch((const char *)memory + 64 * i);
#else
    (void)memory, (void)lines;
#endif
}

static inline int same_text(PyObject *left, PyObject *right) {
    return left == right || (PyUnicode_GET_LENGTH(left) == PyUnicode_GET_LENGTH(right)
                             && PyUnicode_Compare(left, right) == 0);
}

/* The number of bounds that are not above the number. The entries after the last bound are NaN,
 * which compares false; so the search has six steps and no branch to mispredict. */
static inline int count_bounds(const double *at, double number) {
    int count = 0;
    for (int step = 32; step; step >>= 1)
        count += (at[count + step - 1] <= number) * step;
    return count;
}

/* Whether pair (a, i) comes before pair (b, j). */
static inline int before(double a, int i, double b, int j) {
    return a < b || (a == b && i < j);
}

static inline int alternative_holds(const range_t *range, const value_t *value) {
    if (range->kind == NUMBER)
        return value->kind == NUMBER
            && !before(value->number, value->step, range->low, range->low_step)
            && !before(range->high, range->high_step, value->number, value->step);
    if (range->kind == ONE_TEXT)
        return value->kind == TEXT && same_text(range->text, value->object);
    return range->kind == value->kind;
}

/* Whether one alternative of every attribute holds. */
static inline int ranges_hold(const range_t *range, const range_t *end, const value_t *values) {
    while (range < end) {
        const value_t *value = &values[range->attribute];
        int holds = alternative_holds(range, value);
        while (range->more) {
            range++;
            holds = holds || alternative_holds(range, value);
        }
        if (!holds) return 0;
        range++;
    }
    return 1;
}

static inline const range_t *next_attribute(const range_t *range) {
    while (range->more) range++;
    return range + 1;
}

static inline int is_inside(const range_t *inner, const range_t *outer) {
    if (outer->kind == NUMBER)
        return inner->kind == NUMBER
            && !before(inner->low, inner->low_step, outer->low, outer->low_step)
            && !before(outer->high, outer->high_step, inner->high, inner->high_step);
    if (outer->kind == ONE_TEXT)
        return inner->kind == ONE_TEXT && same_text(inner->text, outer->text);
    return inner->kind == outer->kind || (outer->kind == TEXT && inner->kind == ONE_TEXT);
}

/* Whether every alternative of `inner` lies inside one alternative of `outer`. */
static inline int attribute_inside(const range_t *inner, const range_t *outer) {
    for (;; inner++) {
        const range_t *candidate = outer;
        while (!is_inside(inner, candidate)) {
            if (!candidate->more) return 0;
            candidate++;
        }
        if (!inner->more) return 1;
    }
}

/* Whether `wide` allows everything that `narrow` allows, by their ranges. */
static inline int ranges_cover(const range_t *wide, const range_t *wide_end,
                               const range_t *narrow, const range_t *narrow_end) {
    for (; wide < wide_end; wide = next_attribute(wide)) {
        const range_t *same = narrow;
        while (same < narrow_end && same->attribute != wide->attribute)
            same = next_attribute(same);
        if (same >= narrow_end || !attribute_inside(same, wide)) return 0;
    }
    return 1;
}

/* The positions that no row excludes, so many fours of words at a time: they stay in registers
 * during the loop over the rows. A plain loop over words would write each result back to memory. */
#if defined(__GNUC__)
typedef uint64_t four_t __attribute__((vector_size(32), aligned(8), may_alias));

#define JOIN_FOURS(count)                                                           \
    for (; at + 4 * (count) <= end; at += 4 * (count), left += 4 * (count)) {       \
        four_t joined[count] = {{0}};                                               \
        for (int r = 0; r < row_count; r++) {                                       \
            const four_t *row = (const four_t *)(rows[r] + at);                     \
            for (int i = 0; i < (count); i++) joined[i] |= row[i];                  \
        }                                                                           \
        for (int i = 0; i < (count); i++) {                                         \
            joined[i] = ((const four_t *)(keep + at))[i] & ~joined[i];              \
            ((four_t *)left)[i] = joined[i];                                        \
            found |= joined[i];                                                     \
        }                                                                           \
    }
#endif

/* left = keep without all rows, over a block; whether anything is left. */
VECTOR_CLONES static int any_left(uint64_t *left, uint64_t *const *rows, int row_count,
                                  const uint64_t *keep, int at, int words) {
    const int end = at + words;
    uint64_t any = 0;
#if defined(__GNUC__)
    four_t found = {0};
    JOIN_FOURS(8)
    JOIN_FOURS(1)
    any = found[0] | found[1] | found[2] | found[3];
#endif
    for (; at < end; at++, left++) {
        uint64_t joined = 0;
        for (int r = 0; r < row_count; r++) joined |= rows[r][at];
        *left = keep[at] & ~joined;
        any |= *left;
    }
    return any != 0;
}

/* left[w] = keep & all rows over a block; ends as soon as nothing is left. */
VECTOR_CLONES static int all_common(uint64_t *left, uint64_t *const *rows, int row_count,
                                    const uint64_t *keep, int at, int words) {
    uint64_t any = 1;
    memcpy(left, keep + at, sizeof(uint64_t) * (size_t)words);
    for (int r = 0; r < row_count && any; r++) {
        const uint64_t *row = rows[r] + at;
        any = 0;
        for (int w = 0; w < words; w++) {
            left[w] &= row[w];
            any |= left[w];
        }
    }
    return any != 0;
}

#endif
