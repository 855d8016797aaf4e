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
 *                 vn, mean, m2                        variance: Welford's rows, mean, squared deviations
 *
 * A fresh group holds identities, so that merging an absent group changes no bit: counts 0, sums 0.0,
 * min NaN (the greatest) or the type's maximum, max -infinity or the type's minimum.
 *
 * Floats are added one row after the other within a group, so batch cuts never change a bit: no loop
 * here may add two rows of one group before adding them to the group. */
#ifndef MD_ACCUMULATE_H
#define MD_ACCUMULATE_H

#include "column.h"
#include "md_base.h"

typedef union md_word {
    int64_t i;
    uint64_t u;
    double f;
} md_word;

typedef enum { MD_COUNT, MD_SUM, MD_MIN, MD_MAX, MD_AVG, MD_VARIANCE, MD_COUNT_DISTINCT } md_function;

typedef struct md_aggregate {
    md_function function;
    int32_t input; /* -1: rows are counted (MD_COUNT only) */
} md_aggregate;

/* Column numbers of one input; -1: not needed. `distinct`: number of its set (sketch.h). */
typedef struct md_plan_input {
    md_type type;
    int32_t n, sum, hi, min, max, vn, mean, m2, distinct;
} md_plan_input;

/* One column of state as the `partial` stage emits it. */
typedef struct md_state_column {
    const char *suffix; /* static: n lo hi sum value mean m2 set */
    md_type type;       /* of the Arrow column */
    int32_t aggregate;
    int32_t column;   /* in the table; -1: a set */
    int32_t input;    /* -1: rows */
    bool nullable;    /* null where the input's n is 0 (min, max) */
} md_state_column;

typedef struct md_plan {
    int32_t n_inputs, n_aggregates, n_columns, n_distinct, n_state;
    md_plan_input *inputs;
    md_aggregate *aggregates;
    md_word *identity;       /* per column */
    md_state_column *state;
} md_plan;

#define MD_AGGREGATES_MAX 1024
#define MD_INPUTS_MAX 1024

/* Make a plan; on MD_OK it is the caller's, ended by md_plan_free. MD_BADARG: an input out of range, or
 * an aggregate that its input's type doesn't have (text: count and count_distinct only). */
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

/* Set groups [from, to) to identities; to <= capacity. */
void md_table_clear(const md_plan *plan, md_table *table, int64_t from, int64_t to);

/* Give input i its own `n`, equal to `rows` for the first `count` groups and 0 for the others up to
 * capacity. Nothing to do when it has it. */
md_rc md_table_split(const md_plan *plan, md_table *table, int32_t input, int64_t count);

/* Add n <= MD_CHUNK rows: row i (i in [0, n)) is row start + i of the inputs' columns or, when rows is
 * not NULL, row rows[i], and belongs to group ids[i]. Every group has its room and identities; inputs
 * with nulls among these rows have been split. `one`: all ids are 0. Can't fail. */
#define MD_CHUNK 4096
typedef struct md_scratch {
    int32_t ids[MD_CHUNK];
    md_word words[MD_CHUNK];
} md_scratch;
void md_accumulate(const md_plan *plan, md_table *table, const int32_t *ids, const md_column *inputs,
                   const uint32_t *rows, int64_t start, int64_t n, bool one, md_scratch *scratch);

/* out[o[k]] = a[i[k]] merged with b[j[k]] for k = 0 .. n-1, in this order; a stands earlier in time.
 * An index list that is NULL means k itself. out may be a or b. `out` must have every n of its own that
 * a or b has. Group numbers may repeat in o when out is a and o is i. */
void md_merge(const md_plan *plan, md_table *out, const int32_t *o, const md_table *a, const int32_t *i,
              const md_table *b, const int32_t *j, int64_t n);

/* out[o[k]] = a[i[k]]. The same rules. */
void md_copy(const md_plan *plan, md_table *out, const int32_t *o, const md_table *a, const int32_t *i, int64_t n);

/* The non-null count of an input (-1: the rows): its n or, while not split, rows. */
MD_INLINE const md_word *md_table_n(const md_plan *plan, const md_table *table, int32_t input) {
    if (input < 0) return table->columns[0];
    const md_word *own = plan->inputs[input].n >= 0 ? table->columns[plan->inputs[input].n] : NULL;
    return own != NULL ? own : table->columns[0];
}

/* Final values of aggregate g (not count_distinct) of the groups order[k] (NULL: k): out[k], valid[k] = 1
 * where there is one. valid may be NULL when g is a count. out may be a column of the table itself when
 * order is NULL. The type of out is md_finish_type. For a sum of integers, *failed counts the groups
 * whose sum doesn't fit 64 bits signed, and their valid[k] is 2. */
void md_finish(const md_plan *plan, const md_table *table, int32_t g, const int32_t *order, int64_t n, md_word *out,
               uint8_t *valid, int64_t *failed);
md_type md_finish_type(const md_plan *plan, int32_t g);

size_t md_table_nbytes(const md_plan *plan, const md_table *table);

#endif
