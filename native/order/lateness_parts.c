#include "order/lateness_parts.h"

#include "base/md_alloc.h"

static inline int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

int64_t md_parts_limit(const md_parts *l, int64_t part) {
    const md_part *p = &l->parts[part];
    int64_t limit = INT64_MIN;
    if (p->max_us != INT64_MIN && __builtin_sub_overflow(p->max_us, l->slack_us, &limit)) limit = INT64_MIN;
    return larger(larger(limit, p->floor_us), l->promised_us);
}

/* ---- the heap ---- */

static void sift_down(md_parts *l, int64_t at) {
    md_parts_entry moved = l->heap[at];
    for (;;) {
        int64_t child = 2 * at + 1;
        if (child >= l->count) break;
        if (child + 1 < l->count && l->heap[child + 1].limit_us < l->heap[child].limit_us) child++;
        if (l->heap[child].limit_us >= moved.limit_us) break;
        l->heap[at] = l->heap[child];
        at = child;
    }
    l->heap[at] = moved;
}

static void sift_up(md_parts *l, int64_t at) {
    md_parts_entry moved = l->heap[at];
    while (at > 0 && l->heap[(at - 1) / 2].limit_us > moved.limit_us) {
        l->heap[at] = l->heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    l->heap[at] = moved;
}

/* Room is there. */
static void append(md_parts *l, int64_t max_us, int64_t floor_us) {
    l->parts[l->count] = (md_part){.max_us = max_us, .floor_us = floor_us};
    l->heap[l->count] = (md_parts_entry){.limit_us = md_parts_limit(l, l->count), .part = l->count};
    l->count++;
    sift_up(l, l->count - 1);
}

int64_t md_parts_boundary(md_parts *l, int64_t *holder) {
    *holder = -1;
    if (l->count == 0) return l->promised_us;
    for (;;) {
        int64_t limit = md_parts_limit(l, l->heap[0].part);
        if (limit == l->heap[0].limit_us) break;
        l->heap[0].limit_us = limit;
        sift_down(l, 0);
    }
    *holder = l->heap[0].part;
    return l->heap[0].limit_us;
}

/* ---- making ---- */

md_rc md_parts_init(md_parts *l, int64_t slack_us, md_error *err) {
    if (slack_us < 0) return md_fail(err, MD_BADARG, "slack_us must not be negative");
    *l = (md_parts){.slack_us = slack_us, .promised_us = INT64_MIN};
    return MD_OK;
}

void md_parts_free(md_parts *l) {
    md_free(l->parts);
    md_free(l->heap);
    l->parts = NULL;
    l->heap = NULL;
    l->count = l->capacity = 0;
}

md_rc md_parts_reserve(md_parts *l, int64_t count) {
    if (count <= l->capacity) return MD_OK;
    int64_t capacity = count + count / 2 + 16;
    size_t size;
    if (!md_mul_size((size_t)capacity, sizeof(md_part), &size)) return MD_NOMEM;
    md_part *parts = md_realloc(l->parts, size);
    if (parts == NULL) return MD_NOMEM;
    l->parts = parts;
    md_parts_entry *heap = md_realloc(l->heap, (size_t)capacity * sizeof *heap);
    if (heap == NULL) return MD_NOMEM;
    l->heap = heap;
    l->capacity = capacity;
    return MD_OK;
}

md_rc md_parts_append(md_parts *l, int64_t max_us, int64_t floor_us) {
    md_rc rc = md_parts_reserve(l, l->count + 1);
    if (rc == MD_OK) append(l, max_us, floor_us);
    return rc;
}

/* ---- judging ---- */

/* How many partitions there are after these ids; -1: one is skipped. */
static int64_t count_after(const md_parts *l, const int32_t *ids, int64_t n) {
    int64_t count = l->count;
    for (int64_t i = 0; i < n; i++) {
        if (ids[i] < 0 || ids[i] > count) return -1;
        count += ids[i] == count;
    }
    return count;
}

md_rc md_parts_judge(md_parts *l, const md_column *times, const int32_t *ids, md_late_rows *out, md_error *err) {
    if (times->type != MD_I64) return md_fail(err, MD_BADARG, "times must be int64 or timestamp[us]");
    if (md_column_nulls(times) != 0) return md_fail(err, MD_BADARG, "a time is null");
    int64_t n = times->length, count = count_after(l, ids, n);
    if (count < 0) return md_fail(err, MD_BADARG, "partitions are numbered as they come");
    size_t words_size = (size_t)(n / 64 + 1);
    uint64_t *words = md_calloc(words_size, 8);
    if (words == NULL || md_parts_reserve(l, count) != MD_OK) {
        md_free(words);
        return md_nomem(err);
    }
    md_late_rows found = {0};
    for (int64_t i = 0; i < n; i++) {
        int64_t t = md_load_i64(times->values + 8 * i), holder;
        if (ids[i] == l->count) append(l, INT64_MIN, md_parts_boundary(l, &holder));
        md_part *p = &l->parts[ids[i]];
        int64_t limit = md_parts_limit(l, ids[i]);
        if (t < limit) {
            uint64_t by = (uint64_t)limit - (uint64_t)t;
            found.worst_us = by > found.worst_us ? by : found.worst_us;
            found.count++;
            uint64_t bit = UINT64_C(1) << (i % 64);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
            bit = __builtin_bswap64(bit);
#endif
            words[i / 64] |= bit;
        }
        p->max_us = larger(p->max_us, t);
    }
    if (found.count > 0) found.mask = (uint8_t *)words;
    else md_free(words);
    *out = found;
    return MD_OK;
}

md_rc md_parts_promise(md_parts *l, int64_t boundary_us, md_error *err) {
    if (boundary_us < l->promised_us) return md_fail(err, MD_BADARG, "an explicit boundary must not decrease");
    l->promised_us = boundary_us;
    return MD_OK;
}

md_rc md_parts_lift(md_parts *l, int64_t part, int64_t floor_us, md_error *err) {
    if (part < 0 || part >= l->count) return md_fail(err, MD_BADARG, "no such partition");
    l->parts[part].floor_us = larger(l->parts[part].floor_us, floor_us);
    return MD_OK;
}

bool md_parts_rest(md_parts *l, const int64_t *active_us, int64_t since_us) {
    int64_t least = INT64_MAX, idle = 0;
    for (int64_t p = 0; p < l->count; p++) {
        if (active_us[p] <= since_us) {
            idle++;
            continue;
        }
        int64_t limit = md_parts_limit(l, p);
        least = limit < least ? limit : least;
    }
    if (idle == l->count) return true;
    for (int64_t p = 0; p < l->count && idle > 0; p++)
        if (active_us[p] <= since_us) l->parts[p].floor_us = larger(l->parts[p].floor_us, least);
    return false;
}

size_t md_parts_nbytes(const md_parts *l) {
    return sizeof *l + (size_t)l->capacity * (sizeof(md_part) + sizeof(md_parts_entry));
}
