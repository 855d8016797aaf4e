#include "join/join_private.h"
#include "base/md_alloc.h"

#define ROWS_MAX (INT64_C(1) << 31)
#define FEW 48 /* rows that are sorted by insertion */
#define SPARE 8 /* a block with so many times the room that its rows need, of those above, is given back */
#define SPARE_FROM (INT64_C(1) << 14)

md_rc join_reserve(join_side *s, int64_t n) {
    if (n > ROWS_MAX - s->count) return MD_NOMEM;
    if (s->start + s->count + n <= s->capacity) return MD_OK;
    /* What was dropped makes room before the block grows, unless little was: each row moves rarely. */
    if (s->start >= s->count && s->count + n <= s->capacity) {
        memmove(s->block, s->block + s->start, (size_t)s->count * sizeof *s->block);
        s->start = 0;
        return MD_OK;
    }
    int64_t capacity = s->count + n;
    if (capacity < s->count + s->count / 2) capacity = s->count + s->count / 2;
    if (capacity < 64) capacity = 64;
    join_row *block = md_malloc((size_t)capacity * sizeof *block);
    if (block == NULL) return MD_NOMEM;
    if (s->count > 0) memcpy(block, s->block + s->start, (size_t)s->count * sizeof *block);
    md_free(s->block);
    s->block = block;
    s->capacity = capacity;
    s->start = 0;
    return MD_OK;
}

/* What came up while the other side stood still is gone: its room goes too. Without memory it stays. */
static void join_shrink(join_side *s) {
    const int64_t capacity = 2 * s->count + 64;
    join_row *block = md_malloc((size_t)capacity * sizeof *block);
    if (block == NULL) return;
    if (s->count > 0) memcpy(block, s->block + s->start, (size_t)s->count * sizeof *block);
    md_free(s->block);
    s->block = block;
    s->capacity = capacity;
    s->start = 0;
}

void join_drop(join_side *s, int64_t n) {
    s->start += n;
    s->base += n;
    s->count -= n;
    if (s->settled < s->base) s->settled = s->base;
    if (s->count == 0) s->start = 0;
    if (s->capacity >= SPARE_FROM && s->count < s->capacity / SPARE) join_shrink(s);
}

/* ---- sorting ---- */

typedef struct item {
    uint64_t key;
    uint32_t index;
} item;

/* One pass of a radix sort by `bits` bits from `shift` on; counts has room for 1 << bits. */
static void radix_pass(const item *from, item *to, int64_t n, uint32_t shift, uint32_t bits, uint32_t *counts) {
    const uint64_t mask = (UINT64_C(1) << bits) - 1;
    memset(counts, 0, sizeof *counts << bits);
    for (int64_t i = 0; i < n; i++) counts[(from[i].key >> shift) & mask]++;
    uint32_t at = 0;
    for (uint64_t d = 0; d <= mask; d++) {
        uint32_t here = counts[d];
        counts[d] = at;
        at += here;
    }
    for (int64_t i = 0; i < n; i++) to[counts[(from[i].key >> shift) & mask]++] = from[i];
}

static void insertion_sort(item *items, int64_t n) {
    for (int64_t i = 1; i < n; i++) {
        item moved = items[i];
        int64_t k = i;
        for (; k > 0 && items[k - 1].key > moved.key; k--) items[k] = items[k - 1];
        items[k] = moved;
    }
}

md_rc join_order(const join_row *rows, int64_t n, bool by_row, uint32_t *order) {
    int64_t low = INT64_MAX, high = INT64_MIN, before = INT64_MIN;
    bool ascending = true;
    for (int64_t i = 0; i < n; i++) {
        int64_t key = by_row ? rows[i].row : rows[i].time;
        if (key < low) low = key;
        if (key > high) high = key;
        ascending &= key >= before;
        before = key;
    }
    if (ascending) {
        for (int64_t i = 0; i < n; i++) order[i] = (uint32_t)i;
        return MD_OK;
    }
    item *items = md_malloc(2 * (size_t)n * sizeof *items + (sizeof(uint32_t) << 11));
    if (items == NULL) return MD_NOMEM;
    item *other = items + n;
    uint32_t *counts = (uint32_t *)(void *)(items + 2 * n);
    for (int64_t i = 0; i < n; i++) {
        items[i].key = (uint64_t)(by_row ? rows[i].row : rows[i].time) - (uint64_t)low;
        items[i].index = (uint32_t)i;
    }
    const item *sorted = items;
    if (n <= FEW) {
        insertion_sort(items, n);
    } else {
        uint64_t span = (uint64_t)high - (uint64_t)low;
        uint32_t bits = n > 4096 ? 11 : 8;
        item *from = items, *to = other;
        for (uint32_t shift = 0; shift < 64 && (span >> shift) != 0; shift += bits) {
            radix_pass(from, to, n, shift, bits, counts);
            item *swap = from;
            from = to;
            to = swap;
        }
        sorted = from;
    }
    for (int64_t i = 0; i < n; i++) order[i] = sorted[i].index;
    md_free(items);
    return MD_OK;
}

/* Most rows come in order of time: only those behind an earlier one are sorted, and merged with the others. */
md_rc join_sort(join_side *s) {
    int64_t n = join_end(s) - s->sorted, n_late = 0, at = 0;
    join_row *tail = join_at(s, s->sorted), *first = join_at(s, s->done);
    const int64_t before = s->sorted > s->done ? tail[-1].time : INT64_MIN;
    int64_t high = before;
    for (int64_t i = 0; i < n; i++) {
        n_late += tail[i].time < high;
        high = tail[i].time > high ? tail[i].time : high;
    }
    if (n_late > 0) {
        join_row *late = md_malloc((size_t)n_late * (sizeof *late + sizeof(uint32_t)));
        if (late == NULL) return MD_NOMEM;
        uint32_t *order = (uint32_t *)(void *)(late + n_late);
        high = before;
        for (int64_t i = 0; i < n; i++) {
            if (tail[i].time < high) late[at++] = tail[i];
            else high = tail[i].time;
        }
        if (join_order(late, n_late, false, order) != MD_OK) {
            md_free(late);
            return MD_NOMEM;
        }
        high = before;
        join_row *kept = tail;
        for (int64_t i = 0; i < n; i++) {
            if (tail[i].time < high) continue;
            high = tail[i].time;
            *kept++ = tail[i];
        }
        /* Merge from the end. Rows of the time of a late one came before it, and stay before it. */
        join_row *old = kept - 1, *to = tail + n - 1;
        for (int64_t k = n_late - 1; k >= 0;) {
            if (old >= first && old->time > late[order[k]].time) *to-- = *old--;
            else *to-- = late[order[k--]];
        }
        md_free(late);
    }
    s->sorted = join_end(s);
    return MD_OK;
}

/* ---- forgetting ---- */

void join_compact(md_join *j, int side) {
    join_side *s = &j->sides[side];
    /* New seqs lie above all old ones, so what a head or link said before means none. */
    int64_t base = join_end(s), done = s->done - s->base, sorted = s->sorted - s->base, kept = 0;
    join_row *rows = join_at(s, s->base);
    int64_t new_done = 0, new_sorted = 0;
    for (int64_t i = 0; i < s->count; i++) {
        if (i == done) new_done = kept;
        if (i == sorted) new_sorted = kept;
        if (rows[i].flags & JOIN_SUPERSEDED) continue;
        rows[kept] = rows[i];
        rows[kept].prev = -1;
        if (i < done && rows[i].id >= 0) j->heads[2 * (int64_t)rows[kept].id + side] = base + kept;
        kept++;
    }
    if (done == s->count) new_done = kept;
    if (sorted == s->count) new_sorted = kept;
    s->base = base;
    s->count = kept;
    s->settled = s->done = base + new_done;
    s->sorted = base + new_sorted;
    s->superseded = 0;
}

/* The id of a key in another index, made there when it is new; -1 without memory. */
static int32_t moved_id(const md_keys *from, md_keys *to, int32_t id, int32_t *known) {
    if (known[id] < 0 && md_keys_map_keys(to, from, id, 1, &known[id]) != MD_OK) return -1;
    return known[id];
}

md_rc join_forget_keys(md_join *j) {
    int64_t held = j->sides[0].count + j->sides[1].count;
    if (j->keys->count <= 2 * held + j->keys_spare) return MD_OK;
    md_keys *keys = NULL;
    size_t old_count = (size_t)j->keys->count;
    int64_t capacity = 2 * held + j->keys_spare + 64;
    if (capacity > j->heads_capacity) capacity = j->heads_capacity;
    int32_t *known = md_malloc(old_count * sizeof *known);
    int64_t *heads = md_malloc(2 * (size_t)capacity * sizeof *heads);
    md_rc rc = known != NULL && heads != NULL ? md_keys_new(j->types, j->keys->n_columns, j->seed, &keys) : MD_NOMEM;
    if (rc == MD_OK) memset(known, 0xff, old_count * sizeof *known);
    /* All ids are found before any row changes. */
    for (int side = 0; rc == MD_OK && side < 2; side++) {
        const join_side *s = &j->sides[side];
        for (int64_t i = 0; rc == MD_OK && i < s->count; i++) {
            int32_t id = join_at(s, s->base + i)->id;
            if (id >= 0 && moved_id(j->keys, keys, id, known) < 0) rc = MD_NOMEM;
        }
    }
    if (rc == MD_OK) {
        for (int64_t i = 0; i < 2 * capacity; i++) heads[i] = -1;
        for (size_t id = 0; id < old_count; id++)
            for (int side = 0; known[id] >= 0 && side < 2; side++)
                heads[2 * (int64_t)known[id] + side] = j->heads[2 * (int64_t)id + side];
        for (int side = 0; side < 2; side++) {
            const join_side *s = &j->sides[side];
            for (int64_t i = 0; i < s->count; i++) {
                join_row *r = join_at(s, s->base + i);
                if (r->id >= 0) r->id = known[r->id];
            }
        }
        md_keys_free(j->keys);
        md_free(j->heads);
        j->keys = keys;
        j->heads = heads;
        j->heads_capacity = capacity;
        heads = NULL;
        keys = NULL;
    }
    md_keys_free(keys);
    md_free(heads);
    md_free(known);
    return rc;
}
