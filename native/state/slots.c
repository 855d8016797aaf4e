#include "state/slots.h"

#include "base/md_alloc.h"

#define SLOTS_MAX (INT64_C(1) << 40)

typedef struct keeper { /* of rows that must be kept, while they are found */
    bool on;
    int64_t *slots, n, first;
} keeper;

struct md_slots {
    md_items items;
    keeper *keeper;
};

/* Asked for a row that changes, or by a copy for one that stands still. */
static void put(const void *owner, int64_t slot, int64_t *const *columns, int64_t at) {
    keeper *k = ((const md_slots *)owner)->keeper;
    columns[0][at] = slot;
    columns[1][at] = k->on ? k->first + k->n : -1;
    if (k->on) k->slots[k->n++] = slot;
}

static const char *const NAMES[] = {"slot", "kept"};
static const md_items_kind KIND = {.width = 2, .names = NAMES, .put = put};

md_rc md_slots_new(md_slots **out) {
    md_slots *s = md_calloc(1, sizeof *s);
    if (s == NULL) return MD_NOMEM;
    s->keeper = md_calloc(1, sizeof *s->keeper);
    if (s->keeper == NULL) {
        md_free(s);
        return MD_NOMEM;
    }
    md_items_init(&s->items, &KIND, s);
    *out = s;
    return MD_OK;
}

void md_slots_free(md_slots *s) {
    if (s == NULL) return;
    md_items_free(&s->items);
    md_free(s->keeper);
    md_free(s);
}

size_t md_slots_nbytes(const md_slots *s) { return sizeof *s + sizeof *s->keeper + md_items_nbytes(&s->items); }

bool md_slots_copying(const md_slots *s) { return s->items.copy != NULL; }

md_items *md_slots_items(md_slots *s) { return &s->items; }

static void change(md_items *m, md_slots_how how, int64_t slot) {
    bool there = slot < m->origin + 64 * m->words;
    if (how == MD_SLOTS_OPEN) md_items_open(m, slot);
    else if (there && how == MD_SLOTS_TOUCH) md_items_touch(m, slot);
    else if (there) md_items_close(m, slot);
}

md_rc md_slots_change(md_slots *s, md_slots_how how, const int64_t *slots, int64_t n, int64_t first, int64_t *kept,
                      int64_t *n_kept) {
    int64_t most = -1;
    *n_kept = 0;
    for (int64_t i = 0; i < n; i++) {
        if (slots[i] < 0 || slots[i] >= SLOTS_MAX) return MD_BADARG;
        if (slots[i] > most) most = slots[i];
    }
    if (how == MD_SLOTS_OPEN && md_items_reserve(&s->items, most + 1) != MD_OK) return MD_NOMEM;
    *s->keeper = (keeper){.on = kept != NULL, .slots = kept, .first = first};
    for (int64_t i = 0; i < n; i++) change(&s->items, how, slots[i]);
    *n_kept = s->keeper->n;
    *s->keeper = (keeper){0};
    return MD_OK;
}

md_rc md_slots_keep_all(md_slots *s, int64_t first, int64_t **kept, int64_t *n_kept) {
    int64_t *slots = md_malloc((size_t)md_slots_copying(s) * 64 * (size_t)s->items.words * sizeof *slots);
    if (slots == NULL) {
        md_items_give_up(&s->items);
        return MD_NOMEM;
    }
    *s->keeper = (keeper){.on = true, .slots = slots, .first = first};
    (void)md_items_keep_all(&s->items); /* else the copy has failed */
    *kept = slots;
    *n_kept = s->keeper->n;
    *s->keeper = (keeper){0};
    return MD_OK;
}

void md_slots_clear(md_slots *s) { md_items_clear(&s->items); }
