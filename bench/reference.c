/* Plain loops that do one thing and check nothing: how fast the machine would let us be. Compiled by
 * bench/reference.py; no part of Medusa. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static uint64_t mix(uint64_t x) { /* splitmix64 */
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* Keys to ids in order of first appearance; slots is a power of two above 2 x the distinct keys.
 * Returns how many, -1 without memory. */
int64_t ref_keys(const int64_t *key, int64_t n, int64_t slots, int32_t *ids) {
    int64_t *held = malloc((size_t)slots * sizeof *held);
    int32_t *id = malloc((size_t)slots * sizeof *id);
    int32_t count = 0;
    if (!held || !id) {
        free(held);
        free(id);
        return -1;
    }
    memset(id, 0xff, (size_t)slots * sizeof *id);
    for (int64_t i = 0; i < n; i++) {
        uint64_t at = mix((uint64_t)key[i]) & (uint64_t)(slots - 1);
        while (id[at] >= 0 && held[at] != key[i]) at = (at + 1) & (uint64_t)(slots - 1);
        if (id[at] < 0) {
            id[at] = count++;
            held[at] = key[i];
        }
        ids[i] = id[at];
    }
    free(held);
    free(id);
    return count;
}

struct cell {
    int64_t n;
    double sum, min, max;
};

static void take(struct cell *cell, double value) {
    if (!cell->n++ || value < cell->min) cell->min = value;
    if (cell->n == 1 || value > cell->max) cell->max = value;
    cell->sum += value;
}

/* count, sum, min, max per id; cells: one zeroed cell of 32 bytes per id. */
void ref_accumulate(const int32_t *id, const double *value, int64_t n, struct cell *cells) {
    for (int64_t i = 0; i < n; i++) take(&cells[id[i]], value[i]);
}

/* W1 with keys 0..keys-1: a ring of open windows, closed at the watermark. out: 7 columns of int64 or
 * double, row-wise {start, key, n, sum, min, max, avg}; returns the rows, -1 without memory. */
struct out_row {
    int64_t start, key, n;
    double sum, min, max, avg;
};

static int64_t emit(struct cell *cells, int64_t keys, int64_t start, struct out_row *out) {
    int64_t rows = 0;
    for (int64_t k = 0; k < keys; k++) {
        struct cell *c = &cells[k];
        if (!c->n) continue;
        out[rows++] = (struct out_row){start, k, c->n, c->sum, c->min, c->max, c->sum / (double)c->n};
    }
    memset(cells, 0, (size_t)keys * sizeof *cells);
    return rows;
}

int64_t ref_ring(const int64_t *ts, const int64_t *key, const double *value, int64_t n, int64_t keys,
                 int64_t size, int64_t slack, struct out_row *out) {
    enum { RING = 4 };
    struct cell *ring = calloc((size_t)(RING * keys), sizeof *ring);
    int64_t rows = 0, largest = ts[0], open = ts[0] / size - 1;
    if (!ring) return -1;
    for (int64_t i = 0; i < n; i++) {
        int64_t window = ts[i] / size;
        if (ts[i] > largest) {
            largest = ts[i];
            for (; (open + 1) * size <= largest - slack; open++)
                rows += emit(ring + (open % RING) * keys, keys, open * size, out + rows);
        }
        take(&ring[(window % RING) * keys + key[i]], value[i]);
    }
    for (int64_t w = open; w <= largest / size; w++)
        rows += emit(ring + (w % RING) * keys, keys, w * size, out + rows);
    free(ring);
    return rows;
}

void ref_hash(const int64_t *key, int64_t n, uint64_t *out) {
    for (int64_t i = 0; i < n; i++) out[i] = mix((uint64_t)key[i]);
}
