#include "order/order.h"

#include "base/md_alloc.h"

/* One row: `at` is its position, with the top bit set unless the key is null. A null has the least key,
 * so comparing (key, at) puts it first, also among rows whose key is the least int64. */
typedef struct entry {
    int64_t key;
    uint64_t at;
} entry;

#define IS_VALUE (1ull << 63)

typedef struct group {
    entry *heap;
    int64_t count, capacity;
    int64_t coming; /* rows of the call at work; 0 between calls */
} group;

struct md_bsort {
    int64_t slack;
    group *groups;
    int64_t n_groups, capacity;
    int64_t held;
    size_t heap_bytes;
};

MD_INLINE bool before(entry a, entry b) { return a.key < b.key || (a.key == b.key && a.at < b.at); }

static void rise(entry *heap, int64_t i) {
    entry moving = heap[i];
    while (i > 0) {
        int64_t parent = (i - 1) / 2;
        if (!before(moving, heap[parent])) break;
        heap[i] = heap[parent];
        i = parent;
    }
    heap[i] = moving;
}

/* Put `moving` into the heap in place of what stands at i, which leaves; all below i is a heap. */
static void sink(entry *heap, int64_t count, int64_t i, entry moving) {
    for (;;) {
        int64_t child = 2 * i + 1;
        if (child >= count) break;
        child += child + 1 < count && before(heap[child + 1], heap[child]);
        if (!before(heap[child], moving)) break;
        heap[i] = heap[child];
        i = child;
    }
    heap[i] = moving;
}

md_rc md_bsort_new(int64_t slack, md_bsort **out, md_error *err) {
    if (slack < 0) return md_fail(err, MD_BADARG, "slack must not be negative");
    md_bsort *sort = md_calloc(1, sizeof *sort);
    if (sort == NULL) return md_nomem(err);
    sort->slack = slack;
    *out = sort;
    return MD_OK;
}

void md_bsort_free(md_bsort *sort) {
    if (sort == NULL) return;
    for (int64_t i = 0; i < sort->n_groups; i++) md_free(sort->groups[i].heap);
    md_free(sort->groups);
    md_free(sort);
}

static md_rc grow_groups(md_bsort *sort, int64_t wanted) {
    if (wanted > sort->capacity) {
        int64_t capacity = wanted > 2 * sort->capacity ? wanted : 2 * sort->capacity;
        size_t bytes;
        if (!md_mul_size((size_t)capacity, sizeof(group), &bytes)) return MD_NOMEM;
        group *groups = md_realloc(sort->groups, bytes);
        if (groups == NULL) return MD_NOMEM;
        sort->groups = groups;
        sort->capacity = capacity;
    }
    for (; sort->n_groups < wanted; sort->n_groups++) sort->groups[sort->n_groups] = (group){0};
    return MD_OK;
}

static md_rc reserve(md_bsort *sort, group *g) {
    int64_t room = sort->slack - g->count, wanted = g->count + (g->coming < room ? g->coming : room);
    if (wanted <= g->capacity) return MD_OK;
    int64_t capacity = wanted > 2 * g->capacity ? wanted : 2 * g->capacity;
    if (capacity > sort->slack) capacity = sort->slack;
    size_t bytes;
    if (!md_mul_size((size_t)capacity, sizeof(entry), &bytes)) return MD_NOMEM;
    entry *heap = md_realloc(g->heap, bytes);
    if (heap == NULL) return MD_NOMEM;
    sort->heap_bytes += (size_t)(capacity - g->capacity) * sizeof(entry);
    g->heap = heap;
    g->capacity = capacity;
    return MD_OK;
}

MD_INLINE int64_t group_of(const md_column *groups, int64_t i) {
    return groups == NULL ? 0 : md_load_i32(groups->values + 4 * i);
}

/* Room for everything that comes, so that taking it can't fail. */
static md_rc prepare(md_bsort *sort, const md_column *groups, int64_t n) {
    int64_t last = 0;
    for (int64_t i = 0; i < n; i++) last = group_of(groups, i) > last ? group_of(groups, i) : last;
    if (grow_groups(sort, last + 1) != MD_OK) return MD_NOMEM;
    if (groups == NULL) {
        sort->groups[0].coming = n;
        md_rc rc = reserve(sort, &sort->groups[0]);
        sort->groups[0].coming = 0;
        return rc;
    }
    md_rc rc = MD_OK;
    for (int64_t i = 0; i < n; i++) sort->groups[group_of(groups, i)].coming++;
    for (int64_t i = 0; i < n; i++) {
        group *g = &sort->groups[group_of(groups, i)];
        if (g->coming > 0 && rc == MD_OK) rc = reserve(sort, g);
        g->coming = 0;
    }
    return rc;
}

static md_rc check_columns(const md_column *keys, const md_column *groups, md_error *err) {
    if (keys->type != MD_I64) return md_fail(err, MD_BADARG, "keys must be int64");
    if (groups == NULL) return MD_OK;
    if (groups->type != MD_I32 || groups->length != keys->length || md_column_nulls(groups) != 0)
        return md_fail(err, MD_BADARG, "groups must be int32 without nulls, one a row");
    for (int64_t i = 0; i < groups->length; i++)
        if (group_of(groups, i) < 0) return md_fail(err, MD_BADARG, "a group is negative");
    return MD_OK;
}

md_rc md_bsort_add(md_bsort *sort, const md_column *keys, const md_column *groups, int64_t position,
                   int64_t *leave, int64_t *n, md_error *err) {
    md_rc rc = check_columns(keys, groups, err);
    if (rc != MD_OK) return rc;
    if (position < 0) return md_fail(err, MD_BADARG, "a position is negative");
    int64_t rows = keys->length, left = 0;
    if (rows > 0 && prepare(sort, groups, rows) != MD_OK) return md_nomem(err);
    bool nulls = keys->validity != NULL;
    for (int64_t i = 0; i < rows; i++) {
        bool null = nulls && md_column_null(keys, i);
        entry row = {null ? INT64_MIN : md_column_i64(keys, i),
                     (uint64_t)(position + i) | (null ? 0 : IS_VALUE)};
        group *g = &sort->groups[group_of(groups, i)];
        if (g->count < sort->slack) {
            g->heap[g->count++] = row;
            rise(g->heap, g->count - 1);
            sort->held++;
        } else if (g->count > 0 && before(g->heap[0], row)) {
            leave[left++] = (int64_t)(g->heap[0].at & ~IS_VALUE);
            sink(g->heap, g->count, 0, row);
        } else {
            leave[left++] = position + i;
        }
    }
    *n = left;
    return MD_OK;
}

int64_t md_bsort_held(const md_bsort *sort) { return sort->held; }

/* Put the rows of all groups into one heap, that of group 0. */
static md_rc unite(md_bsort *sort) {
    group *first = &sort->groups[0];
    if (first->count == sort->held) return MD_OK;
    size_t bytes;
    if (!md_mul_size((size_t)sort->held, sizeof(entry), &bytes)) return MD_NOMEM;
    entry *heap = md_realloc(first->heap, bytes);
    if (heap == NULL) return MD_NOMEM;
    first->heap = heap;
    for (int64_t i = 1; i < sort->n_groups; i++) {
        group *g = &sort->groups[i];
        if (g->count > 0) memcpy(heap + first->count, g->heap, (size_t)g->count * sizeof *heap);
        first->count += g->count;
        md_free(g->heap);
        *g = (group){0};
    }
    first->capacity = first->count;
    sort->heap_bytes = bytes;
    for (int64_t i = first->count / 2; i-- > 0;) sink(heap, first->count, i, heap[i]);
    return MD_OK;
}

md_rc md_bsort_drain(md_bsort *sort, int64_t most, int64_t *leave, int64_t *n, md_error *err) {
    if (most < 0) return md_fail(err, MD_BADARG, "the number of rows that leave is negative");
    *n = most < sort->held ? most : sort->held;
    if (*n == 0) return MD_OK;
    if (unite(sort) != MD_OK) return md_nomem(err);
    group *all = &sort->groups[0];
    for (int64_t i = 0; i < *n; i++) {
        leave[i] = (int64_t)(all->heap[0].at & ~IS_VALUE);
        all->count--;
        sink(all->heap, all->count, 0, all->heap[all->count]);
    }
    sort->held = all->count;
    if (sort->held > 0) return MD_OK;
    md_free(all->heap);
    md_free(sort->groups);
    sort->groups = NULL;
    sort->n_groups = sort->capacity = 0;
    sort->heap_bytes = 0;
    return MD_OK;
}

size_t md_bsort_nbytes(const md_bsort *sort) {
    return sizeof *sort + (size_t)sort->capacity * sizeof(group) + sort->heap_bytes;
}
