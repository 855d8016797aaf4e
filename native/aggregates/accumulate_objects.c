#include "aggregates/accumulate_objects.h"

#include "keys/keys.h"

/* ---- text ---- */

static int compare(const uint8_t *a, size_t n_a, const uint8_t *b, size_t n_b) {
    size_t n = n_a < n_b ? n_a : n_b;
    int c = n > 0 ? memcmp(a, b, n) : 0;
    return c != 0 ? c : (n_a > n_b) - (n_a < n_b);
}

bool md_text_wins(bool max, const md_blob *held, const uint8_t *bytes, size_t size) {
    if (held == NULL) return true;
    int c = compare(bytes, size, held->bytes, held->size);
    return max ? c > 0 : c < 0;
}

/* A block made for a value to come holds nothing yet: promised says so until it is set. */
bool md_text_holds(const md_blob *blob) { return blob != NULL && blob->promised == 0; }

md_rc md_text_room(md_word *cell, size_t size) {
    bool held = md_text_holds(cell->blob);
    md_rc rc = md_blob_room(&cell->blob, size);
    if (rc == MD_OK && !held) cell->blob->promised = 1;
    return rc;
}

void md_text_set(md_word *cell, const uint8_t *bytes, size_t size) {
    if (size > 0) memcpy(cell->blob->bytes, bytes, size);
    cell->blob->size = size;
    cell->blob->promised = 0;
}

const uint8_t *md_text_bytes(const md_blob *blob, size_t *size) {
    *size = blob->size;
    return blob->bytes;
}

typedef struct text_row {
    uint32_t g;
    const uint8_t *bytes;
    size_t size;
    int64_t at;
} text_row;

/* Columns that the value of one row would go into now; at most four. */
static int targets_of(const md_table *t, const md_plan_input *in, text_row r, int32_t out[4]) {
    int n = 0;
    if (in->min >= 0) {
        const md_blob *held = t->columns[in->min][r.g].blob;
        if (md_text_wins(false, md_text_holds(held) ? held : NULL, r.bytes, r.size)) out[n++] = in->min;
    }
    if (in->max >= 0) {
        const md_blob *held = t->columns[in->max][r.g].blob;
        if (md_text_wins(true, md_text_holds(held) ? held : NULL, r.bytes, r.size)) out[n++] = in->max;
    }
    if (in->first >= 0 && r.at < t->columns[in->first_at][r.g].i) out[n++] = in->first;
    if (in->last >= 0 && r.at >= t->columns[in->last_at][r.g].i) out[n++] = in->last;
    return n;
}

static bool wants_text(const md_plan_input *in) {
    return md_type_is_text(in->type) && (in->min >= 0 || in->max >= 0 || in->first >= 0 || in->last >= 0);
}

static bool wants_order(const md_plan_input *in) { return in->first >= 0 || in->last >= 0; }

/* 128 bits of a decimal as its text compares. */
__int128 md_decimal_of(const uint8_t *bytes) {
    unsigned __int128 high = __builtin_bswap64(md_load_u64(bytes)) ^ UINT64_C(1) << 63;
    return (__int128)(high << 64 | __builtin_bswap64(md_load_u64(bytes + 8)));
}

static void add_decimal(md_table *t, const md_plan_input *in, uint32_t g, const uint8_t *bytes) {
    unsigned __int128 v = (unsigned __int128)md_decimal_of(bytes);
    md_word *lo = &t->columns[in->sum][g], *hi = &t->columns[in->hi][g], *top = &t->columns[in->top][g];
    unsigned __int128 before = (unsigned __int128)hi->u << 64 | lo->u, after = before + v;
    top->u += (uint64_t)((__int128)v < 0 ? -1 : 0) + (after < v);
    lo->u = (uint64_t)after;
    hi->u = (uint64_t)(after >> 64);
}

void md_accumulate_text(const md_plan *plan, md_table *table, const md_plan_input *in, const md_column *c,
                        const md_column *order, const int32_t *ids, const uint32_t *rows, int64_t start, int64_t n) {
    (void)plan;
    for (int32_t p = 0; in->has_summaries && p < MD_N_SUMMARIES; p++)
        if (in->summaries[p] >= 0)
            md_summary_kinds[p]->add_text(c, ids, rows, start, n, table->columns + in->summaries[p]);
    bool text = wants_text(in);
    if (!text && in->sum < 0) return;
    for (int64_t i = 0; i < n; i++) {
        int64_t row = rows != NULL ? (int64_t)rows[i] : start + i;
        if (md_column_null(c, row)) continue;
        uint32_t size;
        text_row r = {.g = (uint32_t)ids[i], .bytes = md_column_bytes(c, row, &size)};
        r.size = size;
        if (text) {
            int32_t to[4];
            if (wants_order(in)) r.at = md_column_i64(order, row);
            int m = targets_of(table, in, r, to);
            for (int k = 0; k < m; k++) {
                md_text_set(&table->columns[to[k]][r.g], r.bytes, r.size);
                if (to[k] == in->first) table->columns[in->first_at][r.g].i = r.at;
                if (to[k] == in->last) table->columns[in->last_at][r.g].i = r.at;
            }
        }
        if (in->sum >= 0) add_decimal(table, in, r.g, r.bytes);
    }
}

/* ---- room ---- */

/* The text of one row. */
static md_rc room_text(md_table *t, const md_plan_input *in, const md_column *c, const md_column *order, int64_t row,
                       uint32_t g) {
    uint32_t size;
    text_row r = {.g = g, .bytes = md_column_bytes(c, row, &size)};
    r.size = size;
    if (in->sum >= 0 && size != 16) return MD_BADARG;
    if (!wants_text(in)) return MD_OK;
    int32_t to[4];
    if (wants_order(in)) r.at = md_column_i64(order, row);
    int m = targets_of(t, in, r, to);
    md_rc rc = MD_OK;
    for (int k = 0; rc == MD_OK && k < m; k++) rc = md_text_room(&t->columns[to[k]][g], size);
    return rc;
}

static md_rc room_sketch(md_cell kind, md_word *cells, const int32_t *ids, const md_column *c, const uint32_t *rows,
                         int64_t start, int64_t n) {
    md_rc rc = MD_OK;
    for (int64_t i = 0; rc == MD_OK && i < n; i++) {
        int64_t row = rows != NULL ? (int64_t)rows[i] : start + i;
        if (!md_column_null(c, row)) rc = md_sketch_room(kind, &cells[(uint32_t)ids[i]].blob);
    }
    return rc;
}

md_rc md_table_room(const md_plan *plan, md_table *table, const int32_t *ids, const md_column *inputs,
                    const md_column *order, const uint32_t *rows, int64_t start, int64_t n) {
    md_rc rc = MD_OK;
    for (int32_t k = 0; k < plan->n_inputs; k++) {
        const md_plan_input *in = &plan->inputs[k];
        bool text = wants_text(in) || (md_type_is_text(in->type) && in->sum >= 0);
        for (int64_t i = 0; text && rc == MD_OK && i < n; i++) {
            int64_t row = rows != NULL ? (int64_t)rows[i] : start + i;
            if (!md_column_null(&inputs[k], row)) rc = room_text(table, in, &inputs[k], order, row, (uint32_t)ids[i]);
        }
        for (int32_t p = 0; in->has_summaries && rc == MD_OK && p < MD_N_SUMMARIES; p++)
            if (in->summaries[p] >= 0 && md_summary_kinds[p]->cell != MD_CELL_WORD)
                rc = room_sketch(md_summary_kinds[p]->cell, table->columns[in->summaries[p]], ids, &inputs[k], rows, start, n);
        if (rc != MD_OK) return rc;
    }
    return MD_OK;
}

/* ---- merge ---- */

/* out = a, or b where it wins; both by reference. */
static void choose(md_word *out, const md_word *a, const md_word *b, bool takes_b) {
    md_blob *chosen = md_blob_share(takes_b ? b->blob : a->blob);
    md_blob_release(out->blob);
    out->blob = chosen;
}

static void merge_extreme_text(bool max, md_word *out, const md_word *a, const md_word *b, md_merge_lists l) {
    for (int64_t k = 0; k < l.n; k++) {
        const md_word *x = &a[MD_AT(l.i, k)], *y = &b[MD_AT(l.j, k)];
        bool has = md_text_holds(y->blob);
        choose(&out[MD_AT(l.o, k)], x, y, has && md_text_wins(max, md_text_holds(x->blob) ? x->blob : NULL, y->blob->bytes, y->blob->size));
    }
}

/* With the places, since a group may come again. */
static void merge_placed_text(bool last, int32_t column, int32_t at, const md_table *out, const md_table *a,
                              const md_table *b, md_merge_lists l) {
    for (int64_t k = 0; k < l.n; k++) {
        int64_t i = MD_AT(l.i, k), j = MD_AT(l.j, k), o = MD_AT(l.o, k);
        md_word x = a->columns[at][i], y = b->columns[at][j];
        bool takes_b = last ? y.i >= x.i && y.i != INT64_MIN : y.i < x.i;
        choose(&out->columns[column][o], &a->columns[column][i], &b->columns[column][j], takes_b);
        out->columns[at][o] = takes_b ? y : x;
    }
}

static md_rc merge_sketch(md_cell kind, md_word *out, const md_word *a, const md_word *b) {
    if (b->blob == NULL || b->blob->size == 0 || a->blob == NULL) {
        choose(out, a, b, a->blob == NULL);
        return MD_OK;
    }
    md_blob *made = md_blob_share(a->blob), *other = b->blob;
    if (out == a) md_blob_release(out->blob); /* not shared with itself: may grow in place */
    md_rc rc = md_sketch_room_merge(kind, &made, other->size);
    if (rc != MD_OK) {
        if (out != a) md_blob_release(made);
        return rc;
    }
    md_sketch_merge(kind, made, other->bytes, other->size);
    if (out != a) md_blob_release(out->blob);
    out->blob = made;
    return MD_OK;
}

static md_rc room_in_place(md_cell kind, md_word *out, const md_word *b, md_merge_lists l) {
    md_rc rc = MD_OK;
    for (int64_t k = 0; rc == MD_OK && k < l.n; k++) {
        const md_blob *other = b[MD_AT(l.j, k)].blob;
        if (other != NULL && other->size > 0) rc = md_sketch_room_merge(kind, &out[MD_AT(l.o, k)].blob, other->size);
    }
    return rc;
}

static void merge_in_place(md_cell kind, md_word *out, const md_word *b, md_merge_lists l) {
    for (int64_t k = 0; k < l.n; k++) {
        const md_blob *other = b[MD_AT(l.j, k)].blob;
        if (other != NULL && other->size > 0) md_sketch_merge(kind, out[MD_AT(l.o, k)].blob, other->bytes, other->size);
    }
}

static bool is_sketch(md_cell kind, bool values) {
    return kind > MD_CELL_TEXT && (values || kind != MD_CELL_VALUES);
}

static md_rc merge_sketches(const md_plan *plan, md_table *out, const md_table *a, const md_table *b, md_merge_lists l,
                            bool values) {
    bool in_place = out == a && l.o == l.i && out != b;
    for (int32_t c = 0; c < plan->n_columns; c++) { /* room for all first, so that a failure has changed no value */
        if (!in_place || !is_sketch(plan->cells[c], values)) continue;
        md_rc rc = room_in_place(plan->cells[c], out->columns[c], b->columns[c], l);
        if (rc != MD_OK) return rc;
    }
    for (int32_t c = 0; c < plan->n_columns; c++) {
        if (!is_sketch(plan->cells[c], values)) continue;
        if (in_place) merge_in_place(plan->cells[c], out->columns[c], b->columns[c], l);
        for (int64_t k = 0; !in_place && k < l.n; k++) {
            md_rc rc = merge_sketch(plan->cells[c], &out->columns[c][MD_AT(l.o, k)], &a->columns[c][MD_AT(l.i, k)],
                                    &b->columns[c][MD_AT(l.j, k)]);
            if (rc != MD_OK) return rc;
        }
    }
    return MD_OK;
}

md_rc md_merge_objects(const md_plan *plan, md_table *out, const md_table *a, const md_table *b, md_merge_lists l,
                       bool values) {
    if (plan->n_objects == 0) return MD_OK;
    md_rc rc = merge_sketches(plan, out, a, b, l, values);
    for (int32_t k = 0; rc == MD_OK && k < plan->n_inputs; k++) {
        const md_plan_input *in = &plan->inputs[k];
        if (!wants_text(in)) continue;
        if (in->min >= 0) merge_extreme_text(false, out->columns[in->min], a->columns[in->min], b->columns[in->min], l);
        if (in->max >= 0) merge_extreme_text(true, out->columns[in->max], a->columns[in->max], b->columns[in->max], l);
        if (in->first >= 0) merge_placed_text(false, in->first, in->first_at, out, a, b, l);
        if (in->last >= 0) merge_placed_text(true, in->last, in->last_at, out, a, b, l);
    }
    return rc;
}

md_rc md_merge_values(const md_plan *plan, md_table *out, const int32_t *o, const md_table *b, const int32_t *j,
                      int64_t n) {
    md_merge_lists l = {.o = o, .i = o, .j = j, .n = n};
    for (int32_t c = 0; plan->n_objects > 0 && c < plan->n_columns; c++) {
        if (plan->cells[c] != MD_CELL_VALUES) continue;
        md_rc rc = room_in_place(MD_CELL_VALUES, out->columns[c], b->columns[c], l);
        if (rc != MD_OK) return rc;
        merge_in_place(MD_CELL_VALUES, out->columns[c], b->columns[c], l);
    }
    return MD_OK;
}
