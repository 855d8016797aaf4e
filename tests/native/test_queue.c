#include "check.h"
#include "base/queue.h"

static md_queue *make(uint64_t bytes_max, uint64_t trains_max) {
    md_queue *q = NULL;
    return md_queue_new(bytes_max, trains_max, &q, NULL) == MD_OK ? q : NULL;
}

static int test_bounds_out_of_range_are_refused(void) {
    md_queue *q = NULL;
    md_error err;
    CHECK(md_queue_new(0, 1, &q, &err) == MD_BADARG && q == NULL);
    CHECK(strstr(err.text, "bytes_max") != NULL);
    CHECK(md_queue_new(1, 0, &q, NULL) == MD_BADARG);
    CHECK(md_queue_new(1, ((uint64_t)1 << 32) + 1, &q, NULL) == MD_BADARG && q == NULL);
    md_queue_free(NULL);
    return 0;
}

static int test_a_full_queue_takes_nothing(void) {
    md_queue *q = make(100, 2);
    uint64_t id;
    CHECK(md_queue_push(q, 1, 60, NULL) == MD_OK);
    CHECK(md_queue_push(q, 2, 41, NULL) == MD_FULL);
    CHECK(md_queue_bytes(q) == 60 && md_queue_trains(q) == 1);
    CHECK(md_queue_push(q, 3, 40, NULL) == MD_OK);
    CHECK(md_queue_push(q, 4, 0, NULL) == MD_FULL); /* trains_max */
    CHECK(md_queue_trim(q, 1, &id, NULL) == MD_OK && id == 1);
    CHECK(md_queue_push(q, 5, 60, NULL) == MD_OK);
    md_queue_free(q);
    return 0;
}

static int test_a_train_larger_than_the_bound_enters_an_empty_queue(void) {
    md_queue *q = make(10, 8);
    uint64_t id;
    CHECK(md_queue_push(q, 1, UINT64_MAX, NULL) == MD_OK);
    CHECK(md_queue_push(q, 2, 0, NULL) == MD_FULL);
    CHECK(md_queue_trim(q, 1, &id, NULL) == MD_OK);
    CHECK(md_queue_bytes(q) == 0);
    CHECK(md_queue_push(q, 2, 10, NULL) == MD_OK);
    md_queue_free(q);
    return 0;
}

static int test_readers_hold_back_what_they_have_not_read(void) {
    md_queue *q = make(1000, 1000);
    uint32_t slow, fast, late;
    uint64_t id, ids[4];
    CHECK(md_queue_reader(q, &slow, NULL) == MD_OK && md_queue_reader(q, &fast, NULL) == MD_OK);
    for (uint64_t i = 0; i < 4; i++) CHECK(md_queue_push(q, 10 + i, 1, NULL) == MD_OK);
    for (uint64_t i = 0; i < 4; i++) CHECK(md_queue_next(q, fast, &id, NULL) == MD_OK && id == 10 + i);
    id = 99;
    CHECK(md_queue_next(q, fast, &id, NULL) == MD_EMPTY && id == 99);
    CHECK(md_queue_passed(q) == 0);
    CHECK(md_queue_next(q, slow, &id, NULL) == MD_OK && id == 10);
    CHECK(md_queue_passed(q) == 1);
    CHECK(md_queue_trim(q, 2, ids, NULL) == MD_BADARG && md_queue_trains(q) == 4);
    CHECK(md_queue_trim(q, 1, ids, NULL) == MD_OK && ids[0] == 10);
    CHECK(md_queue_reader(q, &late, NULL) == MD_OK);
    CHECK(md_queue_next(q, late, &id, NULL) == MD_OK && id == 11);
    CHECK(md_queue_close(q, slow, NULL) == MD_OK);
    CHECK(md_queue_next(q, slow, &id, NULL) == MD_BADARG && md_queue_close(q, slow, NULL) == MD_BADARG);
    CHECK(md_queue_passed(q) == 1);
    CHECK(md_queue_close(q, late, NULL) == MD_OK && md_queue_close(q, fast, NULL) == MD_OK);
    CHECK(md_queue_passed(q) == 3);
    CHECK(md_queue_trim(q, 3, ids, NULL) == MD_OK && ids[0] == 11 && ids[2] == 13);
    md_queue_free(q);
    return 0;
}

/* Against an array that keeps every train ever pushed. */
enum { STEPS = 20000, READERS = 5 };
static int test_random_steps_equal_a_plain_array(void) {
    static uint64_t all[STEPS], size[STEPS], out[STEPS];
    uint64_t head = 0, tail = 0, bytes = 0, position[READERS];
    uint32_t number[READERS];
    bool open[READERS] = {0};
    md_queue *q = make(500, 40);
    for (int step = 0; step < STEPS; step++) {
        size_t r = check_below(READERS);
        uint64_t id = 0, draw = check_below(10), least = tail;
        md_rc rc;
        for (size_t i = 0; i < READERS; i++)
            if (open[i] && position[i] < least) least = position[i];
        if (draw < 4) {
            uint64_t n = check_below(20) == 0 ? check_below(2000) : check_below(30);
            bool fits = tail - head < 40 && (tail == head || bytes + n <= 500);
            rc = md_queue_push(q, (uint64_t)step, n, NULL);
            CHECK(rc == (fits ? MD_OK : MD_FULL));
            if (fits) {
                all[tail] = (uint64_t)step;
                size[tail++] = n;
                bytes += n;
            }
        } else if (draw < 8) {
            rc = open[r] ? md_queue_next(q, number[r], &id, NULL) : MD_EMPTY;
            CHECK(rc == (open[r] && position[r] < tail ? MD_OK : MD_EMPTY));
            if (rc == MD_OK) CHECK(id == all[position[r]++]);
        } else if (draw == 8 && open[r] && check_below(4) == 0) {
            CHECK(md_queue_close(q, number[r], NULL) == MD_OK);
            open[r] = false;
        } else if (draw == 8 && !open[r]) {
            CHECK(md_queue_reader(q, &number[r], NULL) == MD_OK);
            open[r] = true;
            position[r] = head;
        } else if (draw == 9) {
            CHECK(md_queue_passed(q) == least - head);
            CHECK(md_queue_trim(q, least - head, out, NULL) == MD_OK);
            for (uint64_t i = 0; head < least; i++, head++) {
                CHECK(out[i] == all[head]);
                bytes -= size[head];
            }
        }
        CHECK(md_queue_bytes(q) == bytes && md_queue_trains(q) == tail - head);
    }
    CHECK(tail > 1000);
    md_queue_free(q);
    return 0;
}

static md_rc fill(md_queue **q) {
    uint32_t reader;
    md_rc rc = md_queue_new(1000, 1000, q, NULL);
    for (uint64_t i = 0; i < 40 && rc == MD_OK; i++) {
        uint64_t before = md_queue_trains(*q);
        rc = md_queue_push(*q, i, 1, NULL);
        if (rc != MD_OK && md_queue_trains(*q) != before) return MD_BADDATA; /* it must be unchanged */
    }
    for (int i = 0; i < 10 && rc == MD_OK; i++) rc = md_queue_reader(*q, &reader, NULL);
    for (uint32_t i = 0; i < 10 && rc == MD_OK; i++) {
        uint64_t id;
        rc = md_queue_next(*q, i, &id, NULL);
        if (rc == MD_OK && id != 0) return MD_BADDATA;
    }
    return rc;
}

static int test_every_allocation_can_fail(void) {
    md_queue *q = NULL;
    CHECK_EVERY_ALLOC(fill(&q), (md_queue_free(q), q = NULL));
    return 0;
}

TEST_MAIN(TEST(test_bounds_out_of_range_are_refused), TEST(test_a_full_queue_takes_nothing),
          TEST(test_a_train_larger_than_the_bound_enters_an_empty_queue),
          TEST(test_readers_hold_back_what_they_have_not_read), TEST(test_random_steps_equal_a_plain_array),
          TEST(test_every_allocation_can_fail))
