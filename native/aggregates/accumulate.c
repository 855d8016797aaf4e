#include "aggregates/accumulate.h"

#include "aggregates/accumulate_objects.h"
#include "keys/keys.h"
#include "base/md_alloc.h"

/* ---- table ---- */

md_rc md_table_init(const md_plan *plan, md_table *table) {
    table->capacity = 0;
    table->columns = md_calloc((size_t)plan->n_columns, sizeof *table->columns);
    return table->columns != NULL ? MD_OK : MD_NOMEM;
}

static void release_objects(md_word *column, int64_t from, int64_t to) {
    for (int64_t k = from; k < to; k++) {
        md_blob_release(column[k].blob);
        column[k].blob = NULL;
    }
}

void md_table_free(const md_plan *plan, md_table *table) {
    if (table->columns == NULL) return;
    for (int32_t c = 0; c < plan->n_columns; c++) {
        if (plan->cells[c] != MD_CELL_WORD && table->columns[c] != NULL)
            release_objects(table->columns[c], 0, table->capacity);
        md_free(table->columns[c]);
    }
    md_free(table->columns);
    *table = (md_table){0};
}

static bool is_n(const md_plan *plan, int32_t column) {
    for (int32_t i = 0; i < plan->n_inputs; i++)
        if (plan->inputs[i].n == column) return true;
    return false;
}

md_rc md_table_reserve(const md_plan *plan, md_table *table, int64_t capacity) {
    size_t size;
    if (capacity <= table->capacity) return MD_OK;
    if (!md_mul_size((size_t)capacity, sizeof(md_word), &size)) return MD_NOMEM;
    for (int32_t c = 0; c < plan->n_columns; c++) {
        if (table->columns[c] == NULL && is_n(plan, c)) continue; /* not split */
        md_word *column = md_realloc(table->columns[c], size);
        if (column == NULL) return MD_NOMEM;
        table->columns[c] = column;
        if (plan->cells[c] != MD_CELL_WORD)
            memset(column + table->capacity, 0, (size_t)(capacity - table->capacity) * sizeof *column);
    }
    table->capacity = capacity;
    return MD_OK;
}

void md_table_clear(const md_plan *plan, md_table *table, int64_t from, int64_t to) {
    for (int32_t c = 0; c < plan->n_columns; c++) {
        md_word *column = table->columns[c], identity = plan->identity[c];
        if (column == NULL) continue;
        if (plan->cells[c] != MD_CELL_WORD) {
            release_objects(column, from, to);
        } else if (identity.u == 0) {
            memset(column + from, 0, (size_t)(to - from) * sizeof *column);
        } else {
            for (int64_t k = from; k < to; k++) column[k] = identity;
        }
    }
}

md_rc md_table_split(const md_plan *plan, md_table *table, int32_t input, int64_t count) {
    int32_t c = plan->inputs[input].n;
    if (c < 0 || table->columns[c] != NULL) return MD_OK;
    md_word *n = md_calloc((size_t)table->capacity, sizeof *n);
    if (n == NULL) return MD_NOMEM;
    if (count > 0) memcpy(n, table->columns[0], (size_t)count * sizeof *n);
    table->columns[c] = n;
    return MD_OK;
}

size_t md_table_nbytes(const md_plan *plan, const md_table *table) {
    size_t n = (size_t)plan->n_columns * sizeof *table->columns;
    for (int32_t c = 0; c < plan->n_columns; c++)
        if (table->columns[c] != NULL) n += (size_t)table->capacity * sizeof(md_word);
    for (int32_t c = 0; plan->n_objects > 0 && c < plan->n_columns; c++)
        for (int64_t k = 0; plan->cells[c] != MD_CELL_WORD && table->columns[c] != NULL && k < table->capacity; k++)
            n += md_blob_nbytes(table->columns[c][k].blob);
    return n;
}

/* ---- merge ---- */

/* NaN is the greatest; of equal ones min takes the later and max the earlier, as the loops over rows do. */
MD_INLINE double min_f64(double m, double v) { return m < v || v != v ? m : v; }
MD_INLINE double max_f64(double m, double v) { return v > m || v != v ? v : m; }

typedef md_merge_lists merge_lists;

static void merge_add(md_word *out, const md_word *a, const md_word *b, merge_lists l) {
    for (int64_t k = 0; k < l.n; k++) out[MD_AT(l.o, k)].u = a[MD_AT(l.i, k)].u + b[MD_AT(l.j, k)].u;
}

static void merge_sum(md_word *out, const md_word *a, const md_word *b, merge_lists l) {
    for (int64_t k = 0; k < l.n; k++) out[MD_AT(l.o, k)].f = a[MD_AT(l.i, k)].f + b[MD_AT(l.j, k)].f;
}

static void merge_wide(const md_plan_input *in, md_table *out, const md_table *a, const md_table *b, merge_lists l) {
    md_word *lo = out->columns[in->sum], *hi = out->columns[in->hi];
    const md_word *alo = a->columns[in->sum], *ahi = a->columns[in->hi];
    const md_word *blo = b->columns[in->sum], *bhi = b->columns[in->hi];
    for (int64_t k = 0; k < l.n; k++) {
        int64_t i = MD_AT(l.i, k), j = MD_AT(l.j, k), o = MD_AT(l.o, k);
        uint64_t low = alo[i].u + blo[j].u;
        uint64_t high = ahi[i].u + bhi[j].u + (low < blo[j].u);
        lo[o].u = low;
        hi[o].u = high;
    }
}

static void merge_extreme(md_type type, bool max, md_word *out, const md_word *a, const md_word *b, merge_lists l) {
    for (int64_t k = 0; k < l.n; k++) {
        md_word x = a[MD_AT(l.i, k)], y = b[MD_AT(l.j, k)], z;
        if (type == MD_F64) z.f = max ? max_f64(x.f, y.f) : min_f64(x.f, y.f);
        else if (type == MD_I64) z = (x.i < y.i) != max ? x : y;
        else z = (x.u < y.u) != max ? x : y;
        out[MD_AT(l.o, k)] = z;
    }
}

static void merge_top(const md_plan_input *in, md_table *out, const md_table *a, const md_table *b, merge_lists l) {
    md_word *top = out->columns[in->top];
    for (int64_t k = 0; k < l.n; k++) {
        int64_t i = MD_AT(l.i, k), j = MD_AT(l.j, k), o = MD_AT(l.o, k);
        unsigned __int128 x = (unsigned __int128)a->columns[in->hi][i].u << 64 | a->columns[in->sum][i].u;
        unsigned __int128 y = (unsigned __int128)b->columns[in->hi][j].u << 64 | b->columns[in->sum][j].u, z = x + y;
        top[o].u = a->columns[in->top][i].u + b->columns[in->top][j].u + (z < y);
        out->columns[in->sum][o].u = (uint64_t)z;
        out->columns[in->hi][o].u = (uint64_t)(z >> 64);
    }
}

/* Equal places: first keeps the earlier operand's, last takes the later one's. */
static void merge_placed(int32_t value, int32_t at, bool last, md_table *out, const md_table *a, const md_table *b,
                         merge_lists l) {
    for (int64_t k = 0; k < l.n; k++) {
        int64_t i = MD_AT(l.i, k), j = MD_AT(l.j, k), o = MD_AT(l.o, k);
        md_word x = a->columns[at][i], y = b->columns[at][j], v = a->columns[value][i];
        if (last ? y.i >= x.i : y.i < x.i) {
            x = y;
            v = b->columns[value][j];
        }
        out->columns[at][o] = x;
        out->columns[value][o] = v;
    }
}

void md_merge_words(const md_plan *plan, md_table *out, const int32_t *o, const md_table *a, const int32_t *i,
              const md_table *b, const int32_t *j, int64_t n) {
    merge_lists l = {.o = o, .i = i, .j = j, .n = n};
    for (int32_t k = 0; k < plan->n_inputs; k++) { /* before rows, which stand in for n */
        const md_plan_input *in = &plan->inputs[k];
        if (in->n >= 0 && out->columns[in->n] != NULL)
            merge_add(out->columns[in->n], md_table_n(plan, a, k), md_table_n(plan, b, k), l);
        bool text = md_type_is_text(in->type);
        if (in->top >= 0) merge_top(in, out, a, b, l);
        else if (in->hi >= 0) merge_wide(in, out, a, b, l);
        else if (in->sum >= 0) merge_sum(out->columns[in->sum], a->columns[in->sum], b->columns[in->sum], l);
        if (in->min >= 0 && !text)
            merge_extreme(in->type, false, out->columns[in->min], a->columns[in->min], b->columns[in->min], l);
        if (in->max >= 0 && !text)
            merge_extreme(in->type, true, out->columns[in->max], a->columns[in->max], b->columns[in->max], l);
        for (int32_t p = 0; in->has_summaries && p < MD_N_SUMMARIES; p++) {
            int32_t c = in->summaries[p];
            if (c >= 0 && md_summary_kinds[p]->merge != NULL)
                md_summary_kinds[p]->merge(out->columns + c, a->columns + c, b->columns + c, l);
        }
        if (in->first >= 0 && !text) merge_placed(in->first, in->first_at, false, out, a, b, l);
        if (in->last >= 0 && !text) merge_placed(in->last, in->last_at, true, out, a, b, l);
    }
    merge_add(out->columns[0], a->columns[0], b->columns[0], l);
}

md_rc md_merge(const md_plan *plan, md_table *out, const int32_t *o, const md_table *a, const int32_t *i,
               const md_table *b, const int32_t *j, int64_t n) {
    md_rc rc = md_merge_objects(plan, out, a, b, (md_merge_lists){.o = o, .i = i, .j = j, .n = n}, true);
    if (rc == MD_OK) md_merge_words(plan, out, o, a, i, b, j, n);
    return rc;
}

md_rc md_merge_flat(const md_plan *plan, md_table *out, const int32_t *o, const md_table *a, const int32_t *i,
                    const md_table *b, const int32_t *j, int64_t n) {
    md_rc rc = md_merge_objects(plan, out, a, b, (md_merge_lists){.o = o, .i = i, .j = j, .n = n}, false);
    if (rc == MD_OK) md_merge_words(plan, out, o, a, i, b, j, n);
    return rc;
}

void md_copy_words(const md_plan *plan, md_table *out, const int32_t *o, const md_table *a, const int32_t *i,
                   int64_t n) {
    for (int32_t k = 0; k < plan->n_inputs; k++) {
        int32_t c = plan->inputs[k].n;
        if (c < 0 || out->columns[c] == NULL || a->columns[c] != NULL) continue;
        const md_word *from = a->columns[0];
        for (int64_t m = 0; m < n; m++) out->columns[c][MD_AT(o, m)] = from[MD_AT(i, m)];
    }
    for (int32_t c = 0; c < plan->n_columns; c++) {
        md_word *to = out->columns[c];
        const md_word *from = a->columns[c];
        if (to == NULL || from == NULL || plan->cells[c] != MD_CELL_WORD) continue;
        for (int64_t m = 0; m < n; m++) to[MD_AT(o, m)] = from[MD_AT(i, m)];
    }
}

void md_copy(const md_plan *plan, md_table *out, const int32_t *o, const md_table *a, const int32_t *i, int64_t n) {
    md_copy_words(plan, out, o, a, i, n);
    for (int32_t c = 0; plan->n_objects > 0 && c < plan->n_columns; c++) {
        if (plan->cells[c] == MD_CELL_WORD) continue;
        for (int64_t m = 0; m < n; m++) {
            md_word *to = &out->columns[c][MD_AT(o, m)];
            md_blob *shared = md_blob_share(a->columns[c][MD_AT(i, m)].blob);
            md_blob_release(to->blob);
            to->blob = shared;
        }
    }
}
