/* The aggregates, and the summaries of values that they share. An aggregate is a row of MD_AGGREGATE_KINDS and its
 * md_aggregate_kind, in one of the files kind_*.c; all else here and in Python asks these two.
 *
 * An input keeps its count, sums, extremes and first and last values in columns that have loops of their own
 * (accumulate_rows.c). Whatever else an aggregate keeps is a summary: a row of MD_SUMMARIES, and its md_summary
 * beside the aggregate. Functions of both get a chunk of rows or all groups at a time, never one row. */
#ifndef MD_KINDS_H
#define MD_KINDS_H

#include "arrow/column.h"
#include "base/md_base.h"

/* Its number, its name in Python, its md_aggregate_kind. */
#define MD_AGGREGATE_KINDS(X)                                               \
    X(MD_COUNT, "count", md_kind_count)                                     \
    X(MD_SUM, "sum", md_kind_sum)                                           \
    X(MD_MIN, "min", md_kind_min)                                           \
    X(MD_MAX, "max", md_kind_max)                                           \
    X(MD_AVG, "avg", md_kind_avg)                                           \
    X(MD_VARIANCE, "variance", md_kind_variance)                            \
    X(MD_COUNT_DISTINCT, "count_distinct", md_kind_count_distinct)          \
    X(MD_STDDEV, "stddev", md_kind_stddev)                                  \
    X(MD_FIRST, "first", md_kind_first)                                     \
    X(MD_LAST, "last", md_kind_last)                                        \
    X(MD_APPROX_DISTINCT, "approx_count_distinct", md_kind_approx_distinct) \
    X(MD_QUANTILE, "quantile", md_kind_quantile)                            \
    X(MD_APPROX_QUANTILE, "approx_quantile", md_kind_approx_quantile)

/* Its number, its md_summary. */
#define MD_SUMMARIES(X)                  \
    X(MD_MOMENTS, md_summary_moments)   \
    X(MD_HLL, md_summary_hll)           \
    X(MD_VALUES, md_summary_values)     \
    X(MD_BUCKETS, md_summary_buckets)

#define MD_ID(id, ...) id,
typedef enum { MD_AGGREGATE_KINDS(MD_ID) MD_N_FUNCTIONS } md_function;
enum { MD_SUMMARIES(MD_ID) MD_N_SUMMARIES };
#undef MD_ID

struct md_blob;
typedef union md_word {
    int64_t i;
    uint64_t u;
    double f;
    struct md_blob *blob;
} md_word;

/* What the words of a column are. */
typedef enum { MD_CELL_WORD, MD_CELL_TEXT, MD_CELL_HLL, MD_CELL_VALUES, MD_CELL_BUCKETS } md_cell;

/* Index lists; NULL means k itself. */
#define MD_AT(list, k) ((list) != NULL ? (int64_t)(list)[k] : (k))
typedef struct md_merge_lists {
    const int32_t *o, *i, *j;
    int64_t n;
} md_merge_lists;

#define MD_SUMMARY_COLUMNS 3 /* most of one summary */

/* `columns` are those of the summary in the table. One of objects (`cell`) has one column, merged by sketch_kinds.h;
 * room for one more value was made in each group. */
typedef struct md_summary {
    int32_t columns;
    md_cell cell;
    md_word identity[MD_SUMMARY_COLUMNS];
    /* Values (words) that aren't null, side by side with their groups. */
    void (*add)(md_type type, const int32_t *ids, const uint8_t *values, int64_t n, md_word *const *columns);
    /* Rows of text, nulls among them, as md_accumulate has them; NULL: there is none of text. */
    void (*add_text)(const md_column *c, const int32_t *ids, const uint32_t *rows, int64_t start, int64_t n,
                     md_word *const *columns);
    /* out[o] = a[i] merged with b[j], a earlier in time; NULL: objects. */
    void (*merge)(md_word *const *out, md_word *const *a, md_word *const *b, md_merge_lists lists);
} md_summary;

struct md_plan;
struct md_plan_input;
struct md_table;

/* Groups to finish: as md_finish has them. */
typedef struct md_finishing {
    const struct md_plan_input *in; /* NULL: of rows */
    const struct md_table *table;
    const md_word *counts; /* values of each group that aren't null */
    double parameter;
    const int32_t *order;
    int64_t n;
    md_word *out;
    uint8_t *valid;
    int64_t *failed;
} md_finishing;

typedef struct md_aggregate_kind {
    const char *takes; /* native types of inputs */
    bool of_rows;      /* may have no input: plan and finish get NULL for it */
    bool never_null;
    bool fraction;     /* its parameter is from 0 to 1 */
    /* Ask for the columns that it needs, and name those of its state: at most MD_STATE_COLUMNS. */
    void (*plan)(struct md_plan *plan, int32_t g, struct md_plan_input *in);
    md_type (*type)(md_type input);
    md_rc (*finish)(md_finishing f); /* NULL: a set is counted (sketch.h) */
    /* The value of a group where `type` is text and it is valid; NULL: it never is text. */
    const uint8_t *(*bytes)(const struct md_plan_input *in, const struct md_table *table, int64_t id,
                            uint8_t buffer[16], size_t *size);
    /* The column that is the values as they stand where no value is null; NULL: there is none. */
    int32_t (*as_is)(const struct md_plan_input *in);
    bool (*may_fail)(const struct md_plan_input *in); /* whether finish may count failed groups; NULL: never */
} md_aggregate_kind;

#define MD_STATE_COLUMNS 4

extern const md_aggregate_kind *const md_aggregate_kinds[MD_N_FUNCTIONS];
extern const char *const md_aggregate_names[MD_N_FUNCTIONS];
extern const md_summary *const md_summary_kinds[MD_N_SUMMARIES];

/* For `plan`. A column of words; of objects; the number of the first column of a summary, made when first asked for. */
int32_t md_plan_column(struct md_plan *plan, md_word identity);
int32_t md_plan_objects(struct md_plan *plan, md_cell kind);
int32_t md_plan_summary(struct md_plan *plan, struct md_plan_input *in, int32_t summary);
/* The input's own count. */
int32_t md_plan_n(struct md_plan *plan, struct md_plan_input *in);
/* One more column of state; one that is null where there is no value, which `at` tells (as in md_state_column) or,
 * where it is -1, the input's own count. */
void md_plan_state(struct md_plan *plan, int32_t g, const char *suffix, md_type type, int32_t column);
void md_plan_nullable(struct md_plan *plan, int32_t g, const char *suffix, md_type type, int32_t column, int32_t at);

/* For `type`. */
md_type md_type_float(md_type input);
md_type md_type_integer(md_type input);
md_type md_type_same(md_type input);

MD_INLINE double md_as_double(md_type type, md_word w) {
    return type == MD_F64 ? w.f : type == MD_I64 ? (double)w.i : (double)w.u;
}

MD_INLINE md_word md_load_word(const uint8_t *values, int64_t i) {
    md_word w;
    memcpy(&w, values + 8 * i, sizeof w);
    return w;
}

#endif
