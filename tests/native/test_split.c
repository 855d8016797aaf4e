#include "batches.h"
#include "keys/keys.h"
#include "arrow/merge.h"
#include "keys/split.h"

static const char *const KEYS[] = {"l", "L", "g", "b", "u", "z", "lu", "gl", "bb"};

static md_split *split_of(const char *types, int32_t parts) {
    md_type keys[8];
    md_split *s = NULL;
    int32_t n = (int32_t)strlen(types);
    for (int32_t k = 0; k < n; k++) keys[k] = (md_type)types[k];
    return md_split_new(keys, n, parts, &s, NULL) == MD_OK ? s : NULL;
}

/* Every row is in one list, lists ascend, and rows of equal keys are in the same one. */
static int check_parts(const md_split *s, const batch *b, int32_t parts) {
    int64_t seen = 0;
    int32_t *part_of = calloc((size_t)b->array.length + 1, sizeof *part_of);
    for (int64_t chunk = 0; chunk < md_split_chunks(s); chunk++) {
        int64_t least, largest;
        md_split_extent(s, chunk, &least, &largest);
        for (int32_t p = 0; p < parts; p++) {
            int64_t n, before = -1;
            const uint32_t *rows = md_split_rows(s, p, chunk, &n);
            for (int64_t i = 0; i < n; i++) {
                const int64_t *times = b->array.children[0]->buffers[1];
                CHECK((int64_t)rows[i] > before && rows[i] / MD_SPLIT_CHUNK == chunk);
                CHECK(times[rows[i]] >= least && times[rows[i]] <= largest);
                before = rows[i];
                part_of[rows[i]] = p;
                seen++;
            }
        }
    }
    CHECK(seen == b->array.length);
    md_keys *keys;
    md_type types[8];
    md_column views[9];
    int32_t width = (int32_t)b->schema.n_children - 1, *ids = calloc((size_t)b->array.length + 1, sizeof *ids);
    int32_t *of_key = malloc(((size_t)b->array.length + 1) * sizeof *of_key);
    int64_t n;
    for (int32_t k = 0; k < width; k++) types[k] = (md_type)b->schema.children[1 + k]->format[0];
    CHECK(md_keys_new(types, width, 7, &keys) == MD_OK);
    CHECK(md_columns_view(&b->schema, &b->array, width + 1, views, &n, NULL) == MD_OK);
    CHECK(md_keys_map(keys, views + 1, NULL, 0, n, 0, true, ids) == MD_OK);
    memset(of_key, 0xff, ((size_t)n + 1) * sizeof *of_key);
    for (int64_t i = 0; i < n; i++) {
        if (of_key[ids[i]] < 0) of_key[ids[i]] = part_of[i];
        CHECK(of_key[ids[i]] == part_of[i]);
    }
    md_keys_free(keys);
    free(ids);
    free(of_key);
    free(part_of);
    return 0;
}

static int test_equal_keys_go_together(void) {
    for (size_t k = 0; k < sizeof KEYS / sizeof *KEYS; k++) {
        for (int32_t parts = 1; parts <= 5; parts++) {
            char types[10] = "l";
            strcat(types, KEYS[k]);
            md_split *s = split_of(KEYS[k], parts);
            for (int64_t n = 0; n <= 9001; n = 3 * n + 1 + (int64_t)check_below(7)) {
                batch b = batch_random(types, n, -5, 1000, n % 2 == 0);
                CHECK(s != NULL && md_split_begin(s, &b.schema, &b.array, 1, NULL) == MD_OK);
                int64_t chunks = md_split_chunks(s), middle = chunks / 2;
                CHECK(chunks == (n + MD_SPLIT_CHUNK - 1) / MD_SPLIT_CHUNK && md_split_length(s) == n);
                md_split_run(s, middle, chunks);
                md_split_run(s, 0, middle);
                CHECK_OK(check_parts(s, &b, parts));
                batch_free(&b);
            }
            md_split_free(s);
        }
    }
    return 0;
}

static int test_many_keys_are_shared_out(void) {
    md_split *s = split_of("l", 2);
    batch b = batch_random("ll", 40000, 0, 10, false);
    int64_t *keys = (int64_t *)(uintptr_t)b.array.children[1]->buffers[1], total = 0, n;
    for (int64_t stride = 1; stride <= INT64_C(1) << 40; stride <<= 8) {
        for (int64_t i = 0; i < 40000; i++) keys[i] = i * stride;
        CHECK(md_split_begin(s, &b.schema, &b.array, 1, NULL) == MD_OK);
        md_split_run(s, 0, md_split_chunks(s));
        total = 0;
        for (int64_t chunk = 0; chunk < md_split_chunks(s); chunk++) {
            (void)md_split_rows(s, 0, chunk, &n);
            total += n;
        }
        CHECK(total > 16000 && total < 24000);
    }
    batch_free(&b);
    md_split_free(s);
    return 0;
}

static int test_bad_arguments(void) {
    md_type bad = (md_type)'i', good = MD_I64;
    md_split *s = NULL;
    CHECK(md_split_new(&bad, 1, 2, &s, NULL) == MD_BADARG && md_split_new(&good, 0, 2, &s, NULL) == MD_BADARG);
    CHECK(md_split_new(&good, 1, 0, &s, NULL) == MD_BADARG && md_split_new(&good, 1, 65, &s, NULL) == MD_BADARG);
    CHECK(s == NULL);
    s = split_of("l", 2);
    batch text = batch_random("lu", 3, 0, 9, false), few = batch_random("l", 3, 0, 9, false);
    batch late = batch_random("gl", 3, 0, 9, false), fits = batch_random("ll", 3, 0, 9, false);
    CHECK(md_split_begin(s, &text.schema, &text.array, 1, NULL) == MD_BADARG);
    CHECK(md_split_begin(s, &few.schema, &few.array, 1, NULL) == MD_BADARG);
    CHECK(md_split_begin(s, &late.schema, &late.array, 1, NULL) == MD_BADARG);
    CHECK(md_split_begin(s, &fits.schema, &fits.array, 0, NULL) == MD_BADARG && md_split_chunks(s) == 0);
    batch_free(&text);
    batch_free(&few);
    batch_free(&late);
    batch_free(&fits);
    md_split_free(s);
    md_split_free(NULL);
    return 0;
}

/* ---- windows by parts, merged ---- */

enum { PARTS = 3 };

static md_window *window_of(bool positions) {
    static const md_type keys[] = {MD_I64, MD_UTF8}, inputs[] = {MD_F64};
    static const md_aggregate calls[] = {{MD_COUNT, -1, 0}, {MD_SUM, 0, 0}, {MD_COUNT_DISTINCT, 0, 0}};
    md_window_config c = {.size_us = 30, .advance_us = 10, .keys = keys, .n_keys = 2, .inputs = inputs, .n_inputs = 1,
                          .aggregates = calls, .n_aggregates = 3, .stage = MD_WHOLE, .positions = positions, .seed = 3};
    md_window *w = NULL;
    return md_window_new(&c, &w, NULL) == MD_OK ? w : NULL;
}

/* The rows of a part as they are added when they were kept aside. */
static md_rc add_aside(md_window *w, const batch *b, const md_split *s, int32_t part) {
    batch rows = {0};
    struct ArrowArray numbers = {0};
    md_rc rc = md_split_take(s, &b->schema, &b->array, part, 0, &rows.schema, &rows.array, &numbers, NULL);
    if (rc != MD_OK) return rc;
    md_column positions = {.type = MD_I64, .length = numbers.length, .values = numbers.buffers[1]};
    rc = md_window_add_at(w, &rows.schema, &rows.array, &positions, b->array.length, NULL);
    if (rc != MD_OK && md_window_taken(w) != 0) rc = MD_BADDATA;
    batch_free(&rows);
    md_array_release(&numbers);
    return rc;
}

/* What parts of a window give, merged, in the digest *h; everything is freed. `aside`: every other part gets its
 * rows later. */
static md_rc run_parts(const batch *b, bool aside, uint64_t *h) {
    md_window *w[PARTS] = {NULL};
    batch found[PARTS] = {{.schema = {.release = NULL}}}, merged = {0};
    md_split *s = split_of("lu", PARTS);
    md_rc rc = s == NULL ? MD_NOMEM : md_split_begin(s, &b->schema, &b->array, 1, NULL);
    if (rc == MD_OK) md_split_run(s, 0, md_split_chunks(s));
    int32_t n = 0;
    for (int32_t p = 0; rc == MD_OK && p < PARTS; p++) {
        w[p] = window_of(true);
        rc = w[p] == NULL          ? MD_NOMEM
             : aside && p % 2 == 0 ? add_aside(w[p], b, s, p)
                                   : md_window_add_part(w[p], &b->schema, &b->array, s, p, NULL);
        if (rc == MD_OK) rc = md_window_close(w[p], 1 << 20, NULL);
        if (rc != MD_OK || md_window_take(w[p], &found[n].schema, &found[n].array) != MD_OK) continue;
        n++;
    }
    if (rc == MD_OK && n > 0) {
        const struct ArrowArray *arrays[PARTS];
        const int32_t columns[] = {0, 1, 2, 3, 4, 5, 6};
        int64_t from[PARTS] = {0}, cut[PARTS], to[PARTS];
        for (int32_t p = 0; p < n; p++) arrays[p] = &found[p].array;
        for (int32_t p = 0; p < n; p++) to[p] = found[p].array.length;
        md_merging m = {.schema = &found[0].schema, .batches = arrays, .n_batches = n, .keys = {{1, false}, {7, false}},
                        .n_keys = 2};
        rc = md_merge_check(&m, NULL);
        md_merge_cut(&m, 0, to[0] / 2, cut);
        for (int32_t half = 0; rc == MD_OK && half < 2; half++) {
            rc = md_merge_rows(&m, half ? cut : from, half ? to : cut, columns, 7, &merged.schema, &merged.array, NULL);
            if (rc != MD_OK) break;
            *h = digest(*h, &merged);
            batch_free(&merged);
        }
    }
    for (int32_t p = 0; p < n; p++) batch_free(&found[p]);
    for (int32_t p = 0; p < PARTS; p++) md_window_free(w[p]);
    md_split_free(s);
    return rc;
}

static int test_parts_of_a_window_merge_to_the_whole(void) {
    for (int round = 0; round < 20; round++) {
        batch b = batch_random("llug", 1 + (int64_t)check_below(9000), -50, 200, round % 2), out = {0};
        md_window *w = window_of(false);
        uint64_t one = 1, parts = 1;
        CHECK(w != NULL && md_window_add(w, &b.schema, &b.array, NULL) == MD_OK);
        CHECK(md_window_close(w, 1 << 20, NULL) == MD_OK && md_window_take(w, &out.schema, &out.array) == MD_OK);
        one = digest(one, &out);
        batch_free(&out);
        CHECK(run_parts(&b, round % 3 == 0, &parts) == MD_OK);
        CHECK(parts == one);
        md_window_free(w);
        batch_free(&b);
    }
    return 0;
}

static int test_every_allocation_may_fail(void) {
    batch b = batch_random("llug", 300, -50, 200, true);
    uint64_t h = 1;
    CHECK_EVERY_ALLOC(run_parts(&b, false, &h), (void)0);
    CHECK_EVERY_ALLOC(run_parts(&b, true, &h), (void)0);
    batch_free(&b);
    return 0;
}

static int test_positions_are_looked_at(void) {
    static const int64_t numbers[] = {3, 5, 9, 4};
    static const uint8_t no_nulls[] = {0xff}, null[] = {0x02};
    batch b = batch_random("llug", 3, 0, 20, false);
    md_column at = {.type = MD_I64, .length = 3, .values = (const uint8_t *)numbers, .validity = no_nulls};
    md_column bad[] = {at, at, at, at};
    md_window *w = window_of(true);
    CHECK(w != NULL);
    bad[0].type = MD_F64;
    bad[1].length = 2;
    bad[2].values += 8; /* 5, 9, 4 */
    bad[3].validity = null;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK(md_window_add_at(w, &b.schema, &b.array, &bad[i], 10, NULL) == MD_BADARG);
    CHECK(md_window_add_at(w, &b.schema, &b.array, &at, 9, NULL) == MD_BADARG);
    CHECK(md_window_taken(w) == 0 && md_window_rows_open(w) == 0);
    CHECK(md_window_add_at(w, &b.schema, &b.array, &at, 12, NULL) == MD_OK && md_window_taken(w) == 12);
    CHECK(md_window_add_at(w, &b.schema, &b.array, &at, 20, NULL) == MD_BADARG); /* below 12 */
    md_window_free(w);
    batch_free(&b);
    return 0;
}

static md_rc take_part(const md_split *s, const batch *b, int64_t *rows) {
    batch out = {0};
    struct ArrowArray numbers = {0};
    md_rc rc = md_split_take(s, &b->schema, &b->array, 1, 100, &out.schema, &out.array, &numbers, NULL);
    if (rc != MD_OK) return rc;
    *rows = out.array.length;
    for (int64_t i = 0; i < out.array.length; i++) {
        const int64_t *number = numbers.buffers[1], *taken = out.array.children[0]->buffers[1];
        const int64_t *given = b->array.children[0]->buffers[1];
        if (taken[i] != given[number[i] - 100]) *rows = -1;
    }
    batch_free(&out);
    md_array_release(&numbers);
    return rc;
}

static int test_rows_of_a_part_are_taken_with_their_numbers(void) {
    md_split *s = split_of("l", 2);
    batch b = batch_random("llub", 5000, 0, 1000000, true), other = batch_random("llub", 5, 0, 10, true);
    int64_t rows = 0, n, total = 0;
    CHECK(md_split_begin(s, &b.schema, &b.array, 1, NULL) == MD_OK);
    md_split_run(s, 0, md_split_chunks(s));
    CHECK_EVERY_ALLOC(take_part(s, &b, &rows), (void)0);
    for (int64_t chunk = 0; chunk < md_split_chunks(s); chunk++) {
        (void)md_split_rows(s, 1, chunk, &n);
        total += n;
    }
    CHECK(rows == total && total > 0);
    CHECK(take_part(s, &other, &rows) == MD_BADARG);
    batch_free(&b);
    batch_free(&other);
    md_split_free(s);
    return 0;
}

static int test_merge_refuses(void) {
    batch b = batch_random("lgl", 4, 0, 9, true), nulls = batch_random("lgl", 400, 0, 9, true);
    const struct ArrowArray *arrays[] = {&b.array, &nulls.array};
    md_merging m = {.schema = &b.schema, .batches = arrays, .n_batches = 1, .keys = {{0, false}}, .n_keys = 1};
    int64_t from[] = {0}, to[] = {4}, beyond[] = {5};
    int32_t columns[] = {0, 3};
    batch out = {0};
    CHECK(md_merge_check(&m, NULL) == MD_OK);
    CHECK(md_merge_rows(&m, from, beyond, columns, 1, &out.schema, &out.array, NULL) == MD_BADARG);
    CHECK(md_merge_rows(&m, to, from, columns, 1, &out.schema, &out.array, NULL) == MD_BADARG);
    CHECK(md_merge_rows(&m, from, to, columns, 2, &out.schema, &out.array, NULL) == MD_BADARG);
    m.keys[0].column = 1;
    CHECK(md_merge_check(&m, NULL) == MD_BADARG); /* a float */
    m.keys[0].column = 3;
    CHECK(md_merge_check(&m, NULL) == MD_BADARG);
    m = (md_merging){.schema = &b.schema, .batches = arrays, .n_batches = 2, .keys = {{2, false}}, .n_keys = 1};
    CHECK(md_merge_check(&m, NULL) == MD_BADARG); /* nulls */
    m.n_batches = 0;
    CHECK(md_merge_check(&m, NULL) == MD_BADARG);
    batch_free(&b);
    batch_free(&nulls);
    return 0;
}

TEST_MAIN(TEST(test_equal_keys_go_together), TEST(test_many_keys_are_shared_out), TEST(test_bad_arguments),
          TEST(test_parts_of_a_window_merge_to_the_whole), TEST(test_positions_are_looked_at),
          TEST(test_every_allocation_may_fail),
          TEST(test_rows_of_a_part_are_taken_with_their_numbers), TEST(test_merge_refuses))
