/* Accumulators: init, add, merge, finish, for all groups of a pane at once.
 *
 * A plan lists the columns that a set of aggregates needs, each once: avg and sum of one input share
 * theirs. A table holds them, one word per group, so that they leave as Arrow buffers:
 *
 *   column 0      rows    [ c0 | c1 | c2 | ... ]     rows of each group
 *   per input     n       [ .. ]                     its non-null rows; NULL while equal to `rows`
 *                 sum                                 float64: one word
 *                 lo, hi                              integers: 128 bits, two's complement
 *                 min, max                            only meaningful where n > 0
 *                 first_at, first, last_at, last      the row's place and value
 *                 summaries                           what kinds.h lists
 *
 * Decimals are binary values of 16 bytes that compare as bytes (big-endian, sign bit flipped); their sum is
 * exact in 192 bits: lo, hi, top.
 *
 * The moments, for one, are Welford's rows, mean and squared deviations.
 *
 * What doesn't fit a word is an object: the word is a pointer to a counted block (blob.h), NULL where the
 * group has none. Objects are text (min, max, first, last of utf8 and binary) and the sketches
 * (sketch_kinds.h). Every word below the capacity of such a column is NULL or a reference that the table owns.
 *
 * A fresh group holds identities, so that merging an absent group changes no bit: counts 0, sums 0.0,
 * min NaN (the greatest) or the type's maximum, max -infinity or the type's minimum, objects NULL.
 *
 * A table by itself, for whoever keeps groups of his own:
 *   init      md_table_reserve, md_table_clear for the groups that are new
 *   add       md_table_split (inputs with nulls), md_table_room, then md_accumulate
 *   merge     md_merge; md_copy
 *   finish    md_finish, md_finish_bytes
 *   state     md_state_* (accumulate_state.h)
 *   forget    md_table_clear gives back the memory of objects; md_table_free all of it
 *
 * Floats are added one row after the other within a group, so batch cuts never change a bit: no loop
 * here may add two rows of one group before adding them to the group. */
#ifndef MD_ACCUMULATE_H
#define MD_ACCUMULATE_H

#include "aggregates/kinds.h"
#include "arrow/column.h"
#include "base/md_base.h"

typedef struct md_aggregate {
    md_function function;
    int32_t input;    /* -1: of rows (MD_COUNT only) */
    double parameter; /* quantiles: the fraction, in [0, 1]; avg of decimals: 10^scale (0: 1); else 0 */
} md_aggregate;

/* Column numbers of one input, of a summary its first; -1: not needed. `distinct`: number of its set (sketch.h). */
typedef struct md_plan_input {
    md_type type;
    bool has_summaries;
    int32_t n, sum, hi, top, min, max, first, first_at, last, last_at, distinct;
    int32_t summaries[MD_N_SUMMARIES];
} md_plan_input;

#define MD_COLUMNS_PER_INPUT (10 + MD_SUMMARY_COLUMNS * MD_N_SUMMARIES)

/* One column of state as the `partial` stage emits it. */
typedef struct md_state_column {
    const char *suffix; /* static; n: a count, never negative */
    md_type type;       /* of the Arrow column */
    int32_t aggregate;
    int32_t column;   /* in the table; -1: a set */
    int32_t input;    /* -1: rows */
    int32_t at;       /* first, last: the column that tells whether there is a value; else -1 */
    bool nullable;    /* null where there is no value (min, max, first, last) */
} md_state_column;

typedef struct md_plan {
    int32_t n_inputs, n_aggregates, n_columns, n_distinct, n_state, n_objects;
    bool ordered;            /* first or last: md_accumulate reads the order of the rows */
    md_plan_input *inputs;
    md_aggregate *aggregates;
    md_word *identity;       /* per column */
    md_cell *cells;          /* per column */
    md_state_column *state;
} md_plan;

#define MD_AGGREGATES_MAX 1024
#define MD_INPUTS_MAX 1024

/* Make a plan; on MD_OK it is the caller's, ended by md_plan_free. MD_BADARG: an input out of range, or
 * an aggregate that its input's type doesn't have (sums of binary are those of decimals), or a fraction outside
 * [0, 1]. */
md_rc md_plan_new(const md_type *inputs, int32_t n_inputs, const md_aggregate *aggregates, int32_t n_aggregates,
                  md_plan **out, md_error *err);
void md_plan_free(md_plan *plan);

typedef struct md_table {
    int64_t capacity; /* groups that every column has room for */
    md_word **columns;
} md_table;

/* An empty table. On failure *table is all zero. md_table_free frees its columns; zero is allowed. */
md_rc md_table_init(const md_plan *plan, md_table *table);
void md_table_free(const md_plan *plan, md_table *table);

/* Room for that many groups. On failure contents and capacity are as before. */
md_rc md_table_reserve(const md_plan *plan, md_table *table, int64_t capacity);

/* Set groups [from, to) to identities; to <= capacity. Objects are given back. */
void md_table_clear(const md_plan *plan, md_table *table, int64_t from, int64_t to);

/* Give input i its own `n`, equal to `rows` for the first `count` groups and 0 for the others up to
 * capacity. Nothing to do when it has it. */
md_rc md_table_split(const md_plan *plan, md_table *table, int32_t input, int64_t count);

/* Make room for the objects of n <= MD_CHUNK rows that md_accumulate, with the same arguments, will add;
 * nothing to do without objects. Several calls may come before the additions. On failure no value has changed.
 * MD_BADARG: a binary value that is to be summed is not of 16 bytes. */
md_rc md_table_room(const md_plan *plan, md_table *table, const int32_t *ids, const md_column *inputs,
                    const md_column *order, const uint32_t *rows, int64_t start, int64_t n);

/* Add n <= MD_CHUNK rows: row i (i in [0, n)) is row start + i of the inputs' columns or, when rows is
 * not NULL, row rows[i], and belongs to group ids[i]. Every group has its room and identities; inputs
 * with nulls among these rows have been split; md_table_room has been called. `one`: all ids are 0.
 * `order`: int64 without nulls, within +-2^61, read when plan->ordered (else it may be NULL): first takes the
 * value of the row with the least, last with the greatest, of equal ones the first or last added. Can't fail. */
#define MD_CHUNK 4096
typedef struct md_scratch {
    int32_t ids[MD_CHUNK];
    md_word words[MD_CHUNK], order[MD_CHUNK];
} md_scratch;
void md_accumulate(const md_plan *plan, md_table *table, const int32_t *ids, const md_column *inputs,
                   const md_column *order, const uint32_t *rows, int64_t start, int64_t n, bool one,
                   md_scratch *scratch);

/* out[o[k]] = a[i[k]] merged with b[j[k]] for k = 0 .. n-1, in this order; a stands earlier in time.
 * An index list that is NULL means k itself. out may be a or b. `out` must have every n of its own that
 * a or b has. Group numbers may repeat in o when out is a and o is i. MD_NOMEM (only with objects): out is as
 * before when it is a and o is i; else its objects may be any of both, and it is good for nothing but
 * md_table_clear and md_table_free. */
md_rc md_merge(const md_plan *plan, md_table *out, const int32_t *o, const md_table *a, const int32_t *i,
               const md_table *b, const int32_t *j, int64_t n);

/* The same without the values of exact quantiles, and the rest of it: append those of b[j[k]] to out[o[k]]. */
md_rc md_merge_flat(const md_plan *plan, md_table *out, const int32_t *o, const md_table *a, const int32_t *i,
                    const md_table *b, const int32_t *j, int64_t n);
md_rc md_merge_values(const md_plan *plan, md_table *out, const int32_t *o, const md_table *b, const int32_t *j,
                      int64_t n);

/* out[o[k]] = a[i[k]]; objects are shared, not copied. Can't fail. */
void md_copy(const md_plan *plan, md_table *out, const int32_t *o, const md_table *a, const int32_t *i, int64_t n);

/* The non-null count of an input (-1: the rows): its n or, while not split, rows. */
MD_INLINE const md_word *md_table_n(const md_plan *plan, const md_table *table, int32_t input) {
    if (input < 0) return table->columns[0];
    const md_word *own = plan->inputs[input].n >= 0 ? table->columns[plan->inputs[input].n] : NULL;
    return own != NULL ? own : table->columns[0];
}

/* Final values of aggregate g (not count_distinct) of the groups order[k] (NULL: k): out[k], valid[k] = 1
 * where there is one. valid may be NULL when g is a count. out may be a column of the table itself when
 * order is NULL. The type of out is md_finish_type; of text only valid is set. For a sum of integers or
 * decimals, *failed counts the groups whose sum doesn't fit 64 bits signed or 38 digits, and their valid[k] is 2.
 * MD_NOMEM: a quantile has no memory to select in. */
md_rc md_finish(const md_plan *plan, const md_table *table, int32_t g, const int32_t *order, int64_t n, md_word *out,
                uint8_t *valid, int64_t *failed);

/* The bytes of group id, where md_finish_type is text and md_finish says valid. `buffer` may be used. */
const uint8_t *md_finish_bytes(const md_plan *plan, const md_table *table, int32_t g, int64_t id, uint8_t buffer[16],
                               size_t *size);
md_type md_finish_type(const md_plan *plan, int32_t g);

/* The column that is the values of aggregate g where no value is null; -1: there is none. */
int32_t md_finish_as_is(const md_plan *plan, int32_t g);
/* Whether md_finish may count failed groups. */
bool md_finish_may_fail(const md_plan *plan, int32_t g);
const md_aggregate_kind *md_kind_of(const md_plan *plan, int32_t g);

size_t md_table_nbytes(const md_plan *plan, const md_table *table);

#endif
