/* Batches for the tests of keys, windows and state, and a digest to compare what comes out. */
#ifndef MD_BATCHES_H
#define MD_BATCHES_H

#include "check.h"
#include "arrow/rows.h"
#include "state/state.h"
#include "window/window.h"

typedef struct batch {
    struct ArrowSchema schema;
    struct ArrowArray array;
} batch;

static inline void batch_free(batch *b) {
    md_schema_release(&b->schema);
    md_array_release(&b->array);
}

/* n rows of columns of the given types, from check_random: the first is a time in [low, low + span), the
 * others have few values; a tenth of them is null when nulls is true. Allocations must not be failing. */
static inline batch batch_random(const char *types, int64_t n, int64_t low, int64_t span, bool nulls) {
    batch b = {0};
    md_rows *rows = NULL;
    int32_t width = (int32_t)strlen(types);
    if (md_rows_new(width, &rows) != MD_OK) abort();
    for (int32_t c = 0; c < width; c++) {
        char format[2] = {types[c], 0};
        md_rows_define(rows, c, format, "c", true);
    }
    if (md_rows_reserve(rows, n) != MD_OK) abort();
    md_word *words = calloc((size_t)n + 1, sizeof *words);
    uint8_t *valid = calloc((size_t)n + 1, 1);
    for (int32_t c = 0; c < width; c++) {
        for (int64_t i = 0; i < n; i++) {
            valid[i] = c == 0 || !nulls || check_below(10) != 0;
            if (c == 0) words[i].i = low + (int64_t)check_below((uint64_t)span);
            else if (types[c] == 'g') words[i].f = (double)check_below(40) / 7.0 - 2.0;
            else words[i].u = check_below(types[c] == 'b' ? 2 : 12);
        }
        if (types[c] == 'u' || types[c] == 'z') {
            for (int64_t i = 0; i < n; i++) {
                static const uint8_t text[] = "abcdefghijklmnopqrstuvwxyz";
                if (md_rows_put_bytes(rows, c, i, text, valid[i] ? 2 * words[i].u : 0) != MD_OK) abort();
            }
            if (md_rows_nullable(rows, c) != MD_OK) abort();
            for (int64_t i = 0; i < n; i++) md_rows_set_valid(rows, c, i, valid[i] != 0);
        } else if (md_rows_put(rows, c, words, valid, n) != MD_OK) {
            abort();
        }
    }
    md_rows_commit(rows, n);
    if (md_rows_finish(rows, &b.schema, &b.array) != MD_OK) abort();
    md_rows_free(rows);
    free(words);
    free(valid);
    return b;
}

static inline uint64_t digest_bytes(uint64_t h, const void *p, size_t size) {
    const uint8_t *bytes = p;
    for (size_t i = 0; i < size; i++) h = (h ^ bytes[i]) * 0x100000001b3u; /* FNV-1a */
    return h;
}

/* Of the contents of a batch, row after row, not of how it is cut. */
static inline uint64_t digest(uint64_t h, const batch *b) {
    for (int64_t i = 0; i < b->array.length; i++) {
        for (int64_t c = 0; c < b->array.n_children; c++) {
            const struct ArrowArray *a = b->array.children[c];
            const uint8_t *validity = a->buffers[0];
            char type = b->schema.children[c]->format[0];
            uint8_t valid = validity == NULL || md_bit(validity, i);
            h = digest_bytes(h, &valid, 1);
            if (!valid) continue;
            if (type == 'u' || type == 'z') {
                const int32_t *offsets = a->buffers[1];
                h = digest_bytes(h, (const uint8_t *)a->buffers[2] + offsets[i], (size_t)(offsets[i + 1] - offsets[i]));
                h = digest_bytes(h, "|", 1);
            } else if (type == 'b') {
                uint8_t bit = md_bit(a->buffers[1], i);
                h = digest_bytes(h, &bit, 1);
            } else {
                h = digest_bytes(h, (const uint8_t *)a->buffers[1] + 8 * i, 8);
            }
        }
    }
    return h;
}

/* Take all that is ready into the digest. */
static inline uint64_t digest_ready(uint64_t h, md_window *w) {
    batch b;
    while (md_window_take(w, &b.schema, &b.array) == MD_OK) {
        h = digest(h, &b);
        batch_free(&b);
    }
    return h;
}

#endif
