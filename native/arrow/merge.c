#include "arrow/merge.h"

#include "arrow/column.h"
#include "base/md_alloc.h"

#define SIGN (UINT64_C(1) << 63)

typedef struct cursor {
    const uint8_t *keys[MD_MERGE_KEYS_MAX];
} cursor;

md_rc md_merge_check(const md_merging *m, md_error *err) {
    if (m->n_batches < 1 || m->n_batches > MD_MERGE_BATCHES_MAX || m->n_keys < 1 || m->n_keys > MD_MERGE_KEYS_MAX)
        return md_fail(err, MD_BADARG, "%d batches by %d keys: 1 to %d by 1 to %d", m->n_batches, m->n_keys,
                       MD_MERGE_BATCHES_MAX, MD_MERGE_KEYS_MAX);
    for (int32_t k = 0; k < m->n_keys; k++) {
        if (m->keys[k].column < 0 || m->keys[k].column >= m->schema->n_children)
            return md_fail(err, MD_BADARG, "there is no column %d", m->keys[k].column);
        for (int32_t b = 0; b < m->n_batches; b++) {
            const struct ArrowArray *batch = m->batches[b];
            md_column view;
            md_rc rc = batch->n_children != m->schema->n_children
                           ? md_fail(err, MD_BADARG, "a batch with other columns")
                           : md_column_view(m->schema->children[m->keys[k].column],
                                            batch->children[m->keys[k].column], &view, err);
            if (rc != MD_OK) return rc;
            if (view.type != MD_I64 || md_column_nulls(&view) != 0)
                return md_fail(err, MD_BADARG, "a key is not int64 without nulls");
            if (batch->length > INT32_MAX) return md_fail(err, MD_BADARG, "more than 2^31 rows");
        }
    }
    return MD_OK;
}

static cursor cursor_of(const md_merging *m, int32_t b) {
    cursor c;
    const struct ArrowArray *batch = m->batches[b];
    for (int32_t k = 0; k < m->n_keys; k++) {
        const struct ArrowArray *column = batch->children[m->keys[k].column];
        c.keys[k] = column->buffers[1];
        if (c.keys[k] != NULL) c.keys[k] += 8 * (batch->offset + column->offset);
    }
    return c;
}

/* Words whose unsigned order is that of the key. */
MD_INLINE uint64_t word(const md_merging *m, const cursor *c, int32_t k, int64_t row) {
    return md_load_u64(c->keys[k] + 8 * row) ^ (m->keys[k].is_unsigned ? 0 : SIGN);
}

/* -1, 0, 1 by the keys from k on. */
MD_INLINE int compare(const md_merging *m, int32_t k, const cursor *a, int64_t i, const cursor *b, int64_t j) {
    for (; k < m->n_keys; k++) {
        uint64_t x = word(m, a, k, i), y = word(m, b, k, j);
        if (x != y) return x < y ? -1 : 1;
    }
    return 0;
}

void md_merge_cut(const md_merging *m, int32_t batch, int64_t row, int64_t *at) {
    cursor pivot = cursor_of(m, batch);
    for (int32_t b = 0; b < m->n_batches; b++) {
        cursor c = cursor_of(m, b);
        int64_t low = 0, high = m->batches[b]->length;
        while (low < high) {
            int64_t middle = low + (high - low) / 2;
            int order = compare(m, 0, &c, middle, &pivot, row);
            bool before = b == batch ? middle < row : order < 0 || (order == 0 && b < batch);
            if (before) low = middle + 1;
            else high = middle;
        }
        at[b] = low;
    }
}

/* The number of leading keys that are the same in all these rows: first and last row tell, as rows are in order. */
static int32_t constant_keys(const md_merging *m, const cursor *c, const int64_t *from, const int64_t *to) {
    for (int32_t k = 0; k < m->n_keys; k++) {
        bool seen = false;
        uint64_t value = 0;
        for (int32_t b = 0; b < m->n_batches; b++) {
            if (from[b] == to[b]) continue;
            if (!seen) value = word(m, &c[b], k, from[b]);
            seen = true;
            if (word(m, &c[b], k, from[b]) != value || word(m, &c[b], k, to[b] - 1) != value) return k;
        }
    }
    return m->n_keys - 1;
}

/* Two batches by one key: no branch on what is compared. */
static int64_t merge_two(const md_merging *m, int32_t k, const cursor *c, int64_t *at, const int64_t *to, uint32_t *places,
                         uint32_t *rows) {
    const uint8_t *a = c[0].keys[k], *b = c[1].keys[k];
    uint64_t sign = m->keys[k].is_unsigned ? 0 : SIGN;
    int64_t i = at[0], j = at[1], n = 0;
    while (i < to[0] && j < to[1]) {
        uint32_t second = (md_load_u64(b + 8 * j) ^ sign) < (md_load_u64(a + 8 * i) ^ sign);
        places[n] = second;
        rows[n++] = (uint32_t)(second ? j : i);
        i += 1 - second;
        j += second;
    }
    at[0] = i;
    at[1] = j;
    return n;
}

static int64_t merge_many(const md_merging *m, int32_t k, const cursor *c, int64_t *at, const int64_t *to, uint32_t *places,
                          uint32_t *rows) {
    int32_t open[MD_MERGE_BATCHES_MAX], n_open = 0;
    int64_t n = 0;
    for (int32_t b = 0; b < m->n_batches; b++)
        if (at[b] < to[b]) open[n_open++] = b;
    while (n_open > 1) {
        int32_t best = 0;
        for (int32_t o = 1; o < n_open; o++)
            if (compare(m, k, &c[open[o]], at[open[o]], &c[open[best]], at[open[best]]) < 0) best = o;
        int32_t b = open[best];
        places[n] = (uint32_t)b;
        rows[n++] = (uint32_t)at[b]++;
        if (at[b] < to[b]) continue;
        n_open--;
        memmove(open + best, open + best + 1, (size_t)(n_open - best) * sizeof *open); /* equal ones: earlier first */
    }
    return n;
}

md_rc md_merge_rows(const md_merging *m, const int64_t *from, const int64_t *to, const int32_t *columns,
                    int32_t n_columns, struct ArrowSchema *out_schema, struct ArrowArray *out, md_error *err) {
    cursor cursors[MD_MERGE_BATCHES_MAX];
    md_chunk chunks[MD_MERGE_BATCHES_MAX];
    int64_t at[MD_MERGE_BATCHES_MAX], total = 0;
    for (int32_t b = 0; b < m->n_batches; b++) {
        if (from[b] < 0 || from[b] > to[b] || to[b] > m->batches[b]->length)
            return md_fail(err, MD_BADARG, "rows %lld to %lld of batch %d", (long long)from[b], (long long)to[b], b);
        cursors[b] = cursor_of(m, b);
        chunks[b] = (md_chunk){.array = m->batches[b]};
        at[b] = from[b];
        total += to[b] - from[b];
    }
    uint32_t *places = md_malloc(2 * (size_t)total * sizeof *places);
    if (places == NULL) return md_nomem(err);
    uint32_t *rows = places + total;
    int32_t k = constant_keys(m, cursors, from, to);
    int64_t n = m->n_batches == 2 && k == m->n_keys - 1 ? merge_two(m, k, cursors, at, to, places, rows)
                                                        : merge_many(m, k, cursors, at, to, places, rows);
    for (int32_t b = 0; b < m->n_batches; b++) /* what one batch has left */
        for (; at[b] < to[b]; n++) {
            places[n] = (uint32_t)b;
            rows[n] = (uint32_t)at[b]++;
        }
    md_rc rc = md_take_places(m->schema, chunks, m->n_batches, columns, n_columns, places, rows, total, out_schema, out,
                              err);
    md_free(places);
    return rc;
}
