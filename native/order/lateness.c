#include "order/lateness.h"

#include "base/md_alloc.h"

static inline int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

/* The limit after rows up to max_us. */
static inline int64_t limit_of(const md_lateness *l, int64_t max_us) {
    int64_t floor_us = __builtin_sub_overflow(max_us, l->slack_us, &floor_us) ? INT64_MIN : floor_us;
    return larger(floor_us, l->promised_us);
}

/* A whole call's state; copied into md_lateness and md_late_rows only when everything went well. */
typedef struct judging {
    const md_lateness *rule;
    int64_t max_us;
    int64_t count;
    uint64_t worst_us;
    uint64_t *words; /* the mask; NULL until a row is late */
    size_t words_size;
} judging;

/* Judge up to 64 rows one by one; bit i of the result: row i is late. */
static uint64_t judge_word(judging *j, const uint8_t *times, int64_t n) {
    int64_t max_us = j->max_us, promised_us = j->rule->promised_us;
    /* max_us - slack without a check in the loop: below this no slack is taken off any more. */
    int64_t slack_us = j->rule->slack_us, least_max = INT64_MIN + slack_us;
    uint64_t worst_us = j->worst_us, late = 0;
    for (int64_t i = 0; i < n; i++) {
        int64_t t = md_load_i64(times + 8 * i);
        int64_t limit = larger(larger(max_us, least_max) - slack_us, promised_us);
        uint64_t by = t < limit ? (uint64_t)limit - (uint64_t)t : 0;
        worst_us = by > worst_us ? by : worst_us;
        late |= (uint64_t)(by != 0) << i;
        max_us = larger(max_us, t);
    }
    j->max_us = max_us;
    j->worst_us = worst_us;
    return late;
}

/* Judge block `b`, whose least time is below the limit at its end. */
static md_rc judge_block(judging *j, const md_times *times, int64_t b) {
    int64_t start = b * MD_TIMES_BLOCK, rows = times->length - start;
    uint64_t late = judge_word(j, times->values + 8 * start, rows < MD_TIMES_BLOCK ? rows : MD_TIMES_BLOCK);
    if (late == 0) return MD_OK;
    if (j->words == NULL) {
        j->words = md_calloc(j->words_size, 8);
        if (j->words == NULL) return MD_NOMEM;
    }
    j->count += __builtin_popcountll(late);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    late = __builtin_bswap64(late);
#endif
    j->words[b] = late;
    return MD_OK;
}

md_rc md_lateness_init(md_lateness *l, int64_t slack_us, md_error *err) {
    if (slack_us < 0) return md_fail(err, MD_BADARG, "slack_us must not be negative");
    *l = (md_lateness){.slack_us = slack_us, .max_us = INT64_MIN, .promised_us = INT64_MIN};
    return MD_OK;
}

md_rc md_lateness_judge(md_lateness *l, const md_times *times, md_late_rows *out, md_error *err) {
    int64_t blocks = (times->length + MD_TIMES_BLOCK - 1) / MD_TIMES_BLOCK;
    /* Before the first row max_us is the least int64, from which nothing is taken off. */
    judging j = {.rule = l, .max_us = l->max_us, .words_size = (size_t)blocks};
    for (int64_t b = 0; b < blocks; b++) {
        const md_times_block *block = &times->blocks[b];
        int64_t max_us = larger(j.max_us, block->largest);
        if (block->least >= limit_of(l, max_us) || (block->sorted && block->least >= limit_of(l, j.max_us))) {
            j.max_us = max_us;
        } else if (judge_block(&j, times, b) != MD_OK) {
            md_free(j.words);
            return md_nomem(err);
        }
    }
    l->max_us = j.max_us;
    l->seen = l->seen || blocks > 0;
    *out = (md_late_rows){.count = j.count, .worst_us = j.worst_us, .mask = (uint8_t *)j.words};
    return MD_OK;
}

md_rc md_lateness_promise(md_lateness *l, int64_t boundary_us, md_error *err) {
    if (boundary_us < l->promised_us) return md_fail(err, MD_BADARG, "an explicit boundary must not decrease");
    l->promised_us = boundary_us;
    return MD_OK;
}

int64_t md_lateness_boundary(const md_lateness *l) { return limit_of(l, l->max_us); }
