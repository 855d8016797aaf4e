#include "join/join.h"

#include "join/join_private.h"
#include "base/md_alloc.h"
#include "arrow/rows.h"

md_rc md_join_new(const md_join_config *config, md_join **out, md_error *err) {
    bool asof = config->how >= MD_JOIN_ASOF;
    if (config->n_keys < 1 || config->n_keys > MD_KEYS_COLUMNS_MAX)
        return md_fail(err, MD_BADARG, "a join has 1 to %d keys", MD_KEYS_COLUMNS_MAX);
    if (config->how < MD_JOIN_INNER || config->how > MD_JOIN_ASOF_LEFT)
        return md_fail(err, MD_BADARG, "there is no such join");
    if (config->within_us < (asof && !config->judged ? -1 : 0) || config->keys_spare < 0)
        return md_fail(err, MD_BADARG, "a join with a negative number");
    md_join *j = md_calloc(1, sizeof *j);
    if (j == NULL) return md_nomem(err);
    md_rc rc = md_keys_new(config->keys, config->n_keys, config->seed, &j->keys);
    if (rc != MD_OK) {
        md_free(j);
        return md_fail(err, rc, rc == MD_NOMEM ? "out of memory" : "a type that is no key");
    }
    for (int32_t k = 0; k < config->n_keys; k++) j->types[k] = config->keys[k];
    j->how = config->how;
    j->within_us = config->within_us;
    j->judged = config->judged;
    j->keys_spare = config->keys_spare;
    j->seed = config->seed;
    j->boundary = j->passed = INT64_MIN;
    for (int side = 0; side < 2; side++) j->sides[side].last_number = -1;
    *out = j;
    return MD_OK;
}

void md_join_free(md_join *j) {
    if (j == NULL) return;
    md_keys_free(j->keys);
    md_free(j->heads);
    for (int side = 0; side < 2; side++) {
        md_free(j->sides[side].block);
        join_track_free(&j->sides[side]);
    }
    md_free(j->pairs);
    md_free(j->dense.left);
    md_free(j->dense.right);
    md_free(j);
}

/* ---- rows in ---- */

static md_rc grow_heads(md_join *j, int64_t ids) {
    if (ids <= j->heads_capacity) return MD_OK;
    int64_t capacity = ids + ids / 2 + 64;
    int64_t *heads = md_realloc(j->heads, 2 * (size_t)capacity * sizeof *heads);
    if (heads == NULL) return MD_NOMEM;
    for (int64_t i = 2 * j->heads_capacity; i < 2 * capacity; i++) heads[i] = -1;
    j->heads = heads;
    j->heads_capacity = capacity;
    return MD_OK;
}

typedef struct coming {
    md_column columns[MD_KEYS_COLUMNS_MAX + 2];
    int64_t n;
    bool nulls; /* some key may be null */
    const md_column *matched;
} coming;

static md_rc view_rows(const md_join *j, const struct ArrowSchema *schema, const struct ArrowArray *array,
                       coming *c, md_error *err) {
    int64_t width = 1 + (int64_t)j->keys->n_columns;
    bool loaded = schema->release != NULL && schema->n_children == width + 1;
    md_rc rc = md_columns_view(schema, array, loaded ? width + 1 : width, c->columns, &c->n, err);
    if (rc != MD_OK) return rc;
    if (c->columns[0].type != MD_I64 || md_column_nulls(&c->columns[0]) != 0)
        return md_fail(err, MD_BADARG, "the first column must be times without nulls");
    c->nulls = false;
    for (int32_t k = 0; k < j->keys->n_columns; k++) {
        if (c->columns[1 + k].type != j->types[k])
            return md_fail(err, MD_BADARG, "key %d is of type '%c', expected '%c'", k, (char)c->columns[1 + k].type,
                           (char)j->types[k]);
        c->nulls |= c->columns[1 + k].validity != NULL;
    }
    c->matched = loaded ? &c->columns[width] : NULL;
    if (loaded && (c->matched->type != MD_BOOL || md_column_nulls(c->matched) != 0))
        return md_fail(err, MD_BADARG, "the last column must be bools without nulls");
    return MD_OK;
}

static bool has_null(const md_join *j, const coming *c, int64_t i) {
    for (int32_t k = 0; k < j->keys->n_columns; k++)
        if (md_column_null(&c->columns[1 + k], i)) return true;
    return false;
}

static md_rc check_numbers(const join_side *s, int64_t first, const int64_t *numbers, int64_t n, md_error *err) {
    int64_t before = s->last_number;
    if (numbers == NULL) {
        if (n > 0 && (first <= before || first > INT64_MAX - n))
            return md_fail(err, MD_BADARG, "numbers of rows must ascend");
        return MD_OK;
    }
    for (int64_t i = 0; i < n; i++) {
        if (numbers[i] <= before) return md_fail(err, MD_BADARG, "numbers of rows must ascend");
        before = numbers[i];
    }
    return MD_OK;
}

md_rc md_join_add(md_join *j, int side, const struct ArrowSchema *schema, const struct ArrowArray *array,
                  int64_t first, const int64_t *numbers, md_error *err) {
    join_side *s = &j->sides[side];
    coming c;
    md_rc rc = view_rows(j, schema, array, &c, err);
    if (rc == MD_OK) rc = check_numbers(s, first, numbers, c.n, err);
    if (rc != MD_OK || c.n == 0) return rc;
    int64_t least = INT64_MAX;
    for (int64_t i = 0; i < c.n; i++) {
        int64_t time = md_column_i64(&c.columns[0], i);
        if (time < least) least = time;
    }
    if (least < j->boundary) return md_fail(err, MD_BADARG, "a row below the boundary");
    int64_t last = numbers != NULL ? numbers[c.n - 1] : first + c.n - 1;
    if (join_forget_keys(j) != MD_OK || join_reserve(s, c.n) != MD_OK || join_track_reserve(s, last + 1) != MD_OK)
        return md_nomem(err);
    int32_t *ids = md_malloc((size_t)c.n * sizeof *ids);
    if (ids == NULL) return md_nomem(err);
    int64_t known = j->keys->count;
    rc = md_keys_map(j->keys, &c.columns[1], NULL, 0, c.n, j->taken, true, ids);
    if (rc == MD_OK && (rc = grow_heads(j, j->keys->count)) != MD_OK) md_keys_truncate(j->keys, known);
    if (rc != MD_OK) {
        md_free(ids);
        return md_fail(err, rc, "out of memory");
    }
    j->taken += c.n;
    join_row *to = join_at(s, join_end(s));
    for (int64_t i = 0; i < c.n; i++) {
        int32_t id = c.nulls && has_null(j, &c, i) ? -1 : ids[i];
        *to = (join_row){.time = md_column_i64(&c.columns[0], i), .row = numbers != NULL ? numbers[i] : first + i,
                         .prev = -1, .id = id,
                         .flags = c.matched != NULL && md_column_bool(c.matched, i) ? JOIN_MATCHED : 0};
        to += id >= 0 || join_keeps(j->how, side);
    }
    if (s->track != NULL) join_track_rows(s, join_at(s, join_end(s)), to - join_at(s, join_end(s)), c.matched != NULL);
    s->count = to - join_at(s, s->base);
    s->last_number = last;
    md_free(ids);
    return MD_OK;
}

md_rc md_join_advance(md_join *j, int64_t boundary, md_error *err) {
    if (boundary < j->boundary) return md_fail(err, MD_BADARG, "the boundary decreases");
    if (join_sort(&j->sides[0]) != MD_OK || join_sort(&j->sides[1]) != MD_OK) return md_nomem(err);
    j->boundary = boundary;
    return MD_OK;
}

/* ---- state ---- */

/* The rows that are still wanted, by row: pointers; *n is their number. */
static md_rc wanted(const join_side *s, const join_row ***out, int64_t *n) {
    const join_row *rows = join_at(s, s->base);
    size_t count = (size_t)s->count;
    const join_row **found = md_malloc(count * (sizeof *found + sizeof(uint32_t)));
    if (found == NULL) return MD_NOMEM;
    uint32_t *order = (uint32_t *)(void *)(found + count);
    if (s->count > 0 && join_order(rows, s->count, true, order) != MD_OK) {
        md_free(found);
        return MD_NOMEM;
    }
    int64_t kept = 0;
    for (int64_t i = 0; i < s->count; i++)
        if (!(rows[order[i]].flags & JOIN_SUPERSEDED)) found[kept++] = &rows[order[i]];
    *out = found;
    *n = kept;
    return MD_OK;
}

md_rc md_join_rows(const md_join *j, int side, struct ArrowSchema *schema, struct ArrowArray *array,
                   md_error *err) {
    const join_row **found = NULL;
    md_rows *rows = NULL;
    md_word *words = NULL;
    int64_t n = 0;
    if (j->dense.on) return md_fail(err, MD_BADARG, "pairs of a time are still to come");
    md_rc rc = wanted(&j->sides[side], &found, &n);
    if (rc == MD_OK) rc = md_rows_new(3, &rows);
    if (rc == MD_OK) {
        md_rows_define(rows, 0, "l", "row", false);
        md_rows_define(rows, 1, "tsu:UTC", "time", false);
        md_rows_define(rows, 2, "b", "matched", false);
        rc = md_rows_reserve(rows, n);
    }
    if (rc == MD_OK && (words = md_malloc((size_t)n * sizeof *words)) == NULL) rc = MD_NOMEM;
    if (rc == MD_OK) {
        for (int64_t i = 0; i < n; i++) words[i].i = found[i]->row;
        rc = md_rows_put(rows, 0, words, NULL, n);
        for (int64_t i = 0; i < n; i++) words[i].i = found[i]->time;
        if (rc == MD_OK) rc = md_rows_put(rows, 1, words, NULL, n);
        for (int64_t i = 0; i < n; i++) words[i].u = (found[i]->flags & JOIN_MATCHED) != 0;
        if (rc == MD_OK) rc = md_rows_put(rows, 2, words, NULL, n);
    }
    if (rc == MD_OK) {
        md_rows_commit(rows, n);
        rc = md_rows_finish(rows, schema, array);
    }
    md_rows_free(rows);
    md_free(words);
    md_free(found);
    return rc == MD_OK ? MD_OK : md_fail(err, rc, "out of memory");
}

md_rc md_join_renumber(md_join *j, int side, const int64_t *numbers, int64_t n_numbers, md_error *err) {
    join_side *s = &j->sides[side];
    const join_row **found;
    int64_t n;
    if (j->stepped || j->dense.on) return md_fail(err, MD_BADARG, "results of a step are still to be taken");
    if (wanted(s, &found, &n) != MD_OK) return md_nomem(err);
    join_row *rows = join_at(s, s->base);
    bool fit = numbers == NULL || n == n_numbers;
    for (int64_t i = 0; fit && numbers != NULL && i < n; i++) fit = numbers[i] > (i > 0 ? numbers[i - 1] : -1);
    bool tracked = s->track != NULL;
    if (fit) join_track_end(s);
    for (int64_t i = 0; fit && i < n; i++) rows[found[i] - rows].row = numbers != NULL ? numbers[i] : i;
    if (fit) s->last_number = n == 0 ? -1 : numbers != NULL ? numbers[n - 1] : n - 1;
    if (fit && tracked) (void)md_join_track(j, side); /* now that all rows are looked at; without memory, later */
    md_free(found);
    return fit ? MD_OK : md_fail(err, MD_BADARG, "one number for each row held, ascending");
}

/* Whether a row can have been held at that boundary. */
static bool could_be_held(const md_join *j, int side, const join_row *r, int64_t boundary) {
    if (r->time >= boundary) return !(r->flags & JOIN_MATCHED);
    if (!join_is_asof(j)) return join_later(r->time, j->within_us) >= boundary;
    if (side == MD_JOIN_LEFT_SIDE || (r->flags & JOIN_MATCHED)) return false;
    return j->within_us < 0 || join_later(r->time, j->within_us) >= boundary;
}

md_rc md_join_resume(md_join *j, int64_t boundary, md_error *err) {
    if (j->boundary != INT64_MIN) return md_fail(err, MD_BADARG, "the join has begun already");
    for (int side = 0; side < 2; side++) {
        const join_side *s = &j->sides[side];
        for (int64_t i = 0; i < s->count; i++)
            if (!could_be_held(j, side, join_at(s, s->base + i), boundary))
                return md_fail(err, MD_BADDATA, "a row of a join that can't be held at its boundary");
    }
    if (join_sort(&j->sides[0]) != MD_OK || join_sort(&j->sides[1]) != MD_OK) return md_nomem(err);
    for (int side = 0; side < 2; side++) {
        join_side *s = &j->sides[side];
        for (; s->done < join_end(s) && join_at(s, s->done)->time < boundary; s->done++) {
            join_row *r = join_at(s, s->done);
            if (join_is_asof(j) && !j->judged) join_supersede(j, s->done, r);
            else join_link(j, side, s->done, r);
        }
    }
    j->boundary = j->passed = boundary;
    return MD_OK;
}

/* ---- what is asked about it ---- */

int64_t md_join_held(const md_join *j, int side) { return j->sides[side].count - j->sides[side].superseded; }
int64_t md_join_waiting(const md_join *j, int side) { return join_end(&j->sides[side]) - j->sides[side].done; }

size_t md_join_nbytes(const md_join *j) {
    return sizeof *j + md_keys_nbytes(j->keys) + 2 * (size_t)j->heads_capacity * sizeof *j->heads +
           (size_t)(j->sides[0].capacity + j->sides[1].capacity) * sizeof(join_row) +
           join_track_nbytes(&j->sides[0]) + join_track_nbytes(&j->sides[1]) +
           (size_t)j->pairs_capacity * sizeof *j->pairs +
           (size_t)(j->dense.left_capacity + j->dense.right_capacity) * sizeof(join_found);
}
