#include "batches.h"
#include "window/window_running.h"

enum { KEYS = 500, LIMIT = 50, MOST = 80 };

typedef struct table {
    int64_t rows[KEYS][3], n;
} table;

static table now, got;
static bool told[1 << 20]; /* slots that were left, once each */

static void table_of(const md_expiry *e, table *t) {
    int64_t latest[KEYS], slots[KEYS];
    t->n = md_expiry_keys(e);
    md_expiry_read(e, latest, slots);
    for (int64_t k = 0; k < t->n; k++) {
        t->rows[k][0] = k;
        t->rows[k][1] = latest[k];
        t->rows[k][2] = slots[k];
    }
}

/* Some rows; and the slots of keys before and after say which have been left. */
static int some_rows(md_expiry *e, int64_t *clock) {
    int32_t ids[MOST];
    int64_t times[MOST], slots[MOST], n = (int64_t)check_below(MOST), n_left = 0, latest[KEYS], held[KEYS];
    int64_t before = md_expiry_next_slot(e);
    *clock += (int64_t)check_below(30);
    for (int64_t i = 0; i < n; i++) {
        ids[i] = (int32_t)check_below(KEYS);
        times[i] = *clock + (int64_t)check_below(LIMIT * 2) - LIMIT;
    }
    md_column id = {.type = MD_I32, .length = n, .values = (const uint8_t *)ids};
    md_column time = {.type = MD_I64, .length = n, .values = (const uint8_t *)times};
    CHECK(md_expiry_assign(e, &id, &time, n, slots, NULL) == MD_OK);
    const int64_t *left = md_expiry_left(e, &n_left);
    for (int64_t i = 0; i < n_left; i++) {
        CHECK(left[i] >= 0 && left[i] < md_expiry_next_slot(e) && !told[left[i]]);
        told[left[i]] = true;
    }
    md_expiry_forget_left(e);
    CHECK(md_expiry_left(e, &n_left) == NULL);
    md_expiry_read(e, latest, held);
    for (int64_t i = 0; i < n; i++) CHECK(slots[i] >= 0 && (slots[i] == held[ids[i]] || told[slots[i]]));
    for (int64_t k = 0; k < md_expiry_keys(e); k++) CHECK(held[k] < 0 || !told[held[k]]);
    /* Whatever was given is held by a key or was left. */
    int64_t given = md_expiry_next_slot(e) - before, found = 0;
    for (int64_t slot = before; slot < md_expiry_next_slot(e); slot++) found += told[slot];
    for (int64_t k = 0; k < md_expiry_keys(e); k++) found += held[k] >= before;
    CHECK(found == given);
    return 0;
}

static int test_a_copy_has_the_keys_of_its_beginning_and_slots_are_left_once(void) {
    for (int round = 0; round < 30; round++) {
        md_expiry *e = NULL;
        int64_t clock = 0;
        memset(told, 0, sizeof told);
        CHECK(md_expiry_new(LIMIT, &e, NULL) == MD_OK);
        for (int64_t number = 1; number <= 20; number++) {
            md_items_copy *c = NULL;
            CHECK_OK(some_rows(e, &clock));
            table_of(e, &now);
            CHECK(md_items_copy_begin(md_expiry_items(e), number, 0, &c, NULL) == MD_OK);
            CHECK(md_items_copy_left(c) == now.n);
            for (got.n = 0; md_items_copy_left(c) > 0;) {
                batch b;
                CHECK_OK(some_rows(e, &clock));
                if (check_below(25) == 0) { /* as when keys are forgotten */
                    int64_t latest[] = {clock, clock}, slots[] = {md_expiry_next_slot(e), md_expiry_next_slot(e) + 1};
                    CHECK(md_expiry_load(e, latest, slots, 2, slots[1] + 1) == MD_OK && md_expiry_keys(e) == 2);
                }
                CHECK(md_items_copy_next(c, 1 + (int64_t)check_below(90), &b.schema, &b.array, NULL) == MD_OK);
                for (int64_t i = 0; i < b.array.length; i++, got.n++)
                    for (int k = 0; k < 3; k++)
                        got.rows[got.n][k] = ((const int64_t *)b.array.children[k]->buffers[1])[i];
                batch_free(&b);
            }
            CHECK(got.n == now.n && memcmp(got.rows, now.rows, (size_t)now.n * sizeof *now.rows) == 0);
            md_items_copy_free(c);
        }
        CHECK(md_expiry_nbytes(e) > 0);
        md_expiry_free(e);
    }
    CHECK(md_alloc_live == 0);
    return 0;
}

TEST_MAIN(TEST(test_a_copy_has_the_keys_of_its_beginning_and_slots_are_left_once))
