#include "aggregates/accumulate_state.h"

#include "aggregates/accumulate_objects.h"
#include "keys/keys.h"

#define PLACE_LIMIT (INT64_C(1) << 61)

void md_state_define(const md_plan *plan, md_rows *rows, int32_t column) {
    for (int32_t i = 0; i < plan->n_state; i++) {
        md_state_column s = plan->state[i];
        char name[24], format[2] = {(char)s.type, 0};
        snprintf(name, sizeof name, "a%d.%s", s.aggregate, s.suffix);
        md_rows_define(rows, column + i, format, name, s.nullable);
    }
}

static bool is_object(const md_plan *plan, md_state_column s) {
    return s.column >= 0 && plan->cells[s.column] != MD_CELL_WORD;
}

/* ---- out ---- */

/* The words of one state column; valid as md_rows_put takes it, or NULL. */
static const uint8_t *state_words(const md_plan *plan, const md_table *table, md_state_column s, const int32_t *order,
                                  int64_t n, md_word *out, uint8_t *valid) {
    const md_word *rows = md_table_n(plan, table, s.input);
    bool is_n = s.column == 0 || (s.input >= 0 && s.column == plan->inputs[s.input].n);
    const md_word *from = is_n ? rows : table->columns[s.column], *at = s.at >= 0 ? table->columns[s.at] : NULL;
    for (int64_t k = 0; k < n; k++) out[k] = from[order != NULL ? order[k] : k];
    if (!s.nullable) return NULL;
    for (int64_t k = 0; k < n; k++) {
        int64_t id = order != NULL ? order[k] : k;
        valid[k] = at != NULL ? at[id].i != plan->identity[s.at].i : rows[id].i > 0;
    }
    return valid;
}

static md_rc put_objects(md_rows *rows, int32_t column, md_state_column s, const md_table *table, const int32_t *order,
                         int64_t n) {
    md_rc rc = MD_OK;
    for (int64_t k = 0; rc == MD_OK && k < n; k++) {
        const md_blob *blob = table->columns[s.column][order != NULL ? order[k] : k].blob;
        bool held = s.nullable ? md_text_holds(blob) : blob != NULL;
        if (s.nullable && !held) rc = md_rows_nullable(rows, column);
        if (rc == MD_OK) rc = md_rows_put_bytes(rows, column, k, held ? blob->bytes : NULL, held ? blob->size : 0);
        if (rc == MD_OK && rows->columns[column].validity != NULL) md_rows_set_valid(rows, column, k, held);
    }
    return rc;
}

md_rc md_state_put(const md_plan *plan, const md_table *table, md_rows *rows, int32_t column, const int32_t *order,
                   int64_t n, md_word *words, uint8_t *valid) {
    for (int32_t i = 0; i < plan->n_state; i++) {
        md_state_column s = plan->state[i];
        if (s.column < 0) continue;
        md_rc rc;
        if (is_object(plan, s)) {
            rc = put_objects(rows, column + i, s, table, order, n);
        } else {
            const uint8_t *flags = state_words(plan, table, s, order, n, words, valid);
            rc = md_rows_put(rows, column + i, words, flags, n);
        }
        if (rc != MD_OK) return rc;
    }
    return MD_OK;
}

/* ---- in ---- */

static md_word read_word(const md_column *c, int64_t row) {
    md_word v;
    if (c->type == MD_BOOL) v.u = md_column_bool(c, row);
    else v.u = md_load_u64(c->values + 8 * row);
    return v;
}

static bool is_count(md_state_column s) { return strcmp(s.suffix, "n") == 0; }

static md_rc bad_state(md_error *err, md_state_column s, int64_t row, const char *what) {
    return md_fail(err, MD_BADDATA, "row %lld: state '%s' of aggregate %d %s", (long long)row, s.suffix, s.aggregate,
                   what);
}

/* One column that is never null; a column that another aggregate brought already must be equal. */
static md_rc read_plain(md_table *table, md_state_column s, const md_column *c, int64_t start, int64_t n, bool again,
                        md_error *err) {
    md_word *to = table->columns[s.column];
    bool count = is_count(s);
    for (int64_t k = 0; k < n; k++) {
        if (md_column_null(c, start + k)) return bad_state(err, s, start + k, "is null");
        md_word v = read_word(c, start + k);
        if (count && v.i < 0) return bad_state(err, s, start + k, "is negative");
        if (again && v.u != to[k].u) return bad_state(err, s, start + k, "contradicts another aggregate's");
        to[k] = v;
    }
    return MD_OK;
}

/* A least or greatest value, null where the input had no value; tells n when no count does. */
static md_rc read_value(const md_plan *plan, md_table *table, md_state_column s, const md_column *c, int64_t start,
                        int64_t n, bool again, bool n_known, md_error *err) {
    md_word *to = table->columns[s.column], *has = table->columns[plan->inputs[s.input].n];
    for (int64_t k = 0; k < n; k++) {
        bool null = md_column_null(c, start + k);
        md_word v = null ? plan->identity[s.column] : read_word(c, start + k);
        if (n_known && (has[k].i > 0) == null) return bad_state(err, s, start + k, "contradicts the count");
        if (again && v.u != to[k].u) return bad_state(err, s, start + k, "contradicts another aggregate's");
        if (!n_known) has[k].i = !null;
        to[k] = v;
    }
    return MD_OK;
}

/* The place of a first or last value, or that value. */
static md_rc read_placed(const md_plan *plan, md_table *table, md_state_column s, const md_column *c, int64_t start,
                         int64_t n, bool again, md_error *err) {
    bool is_at = s.column == s.at, object = is_object(plan, s);
    md_word *to = table->columns[s.column], *at = table->columns[s.at];
    for (int64_t k = 0; k < n; k++) {
        bool null = md_column_null(c, start + k);
        if (!is_at && null != (at[k].i == plan->identity[s.at].i))
            return bad_state(err, s, start + k, "contradicts its place");
        if (object) continue;
        md_word v = null ? plan->identity[s.column] : read_word(c, start + k);
        if (is_at && !null && (v.i < -PLACE_LIMIT || v.i >= PLACE_LIMIT))
            return bad_state(err, s, start + k, "is out of range");
        if (again && v.u != to[k].u) return bad_state(err, s, start + k, "contradicts another aggregate's");
        to[k] = v;
    }
    return MD_OK;
}

/* Whether an earlier state column brings the same column of the table; -1: none. */
static int32_t brought_by(const md_plan *plan, int32_t i) {
    for (int32_t j = 0; j < i; j++)
        if (plan->state[j].column == plan->state[i].column) return j;
    return -1;
}

static md_rc check_objects(const md_plan *plan, int32_t i, const md_column *state, int64_t start, int64_t n,
                           md_error *err) {
    md_state_column s = plan->state[i];
    int32_t j = brought_by(plan, i);
    for (int64_t k = start; k < start + n; k++) {
        bool null = md_column_null(&state[i], k);
        if (null && !s.nullable) return bad_state(err, s, k, "is null");
        if (j >= 0 && null != md_column_null(&state[j], k)) return bad_state(err, s, k, "contradicts another aggregate's");
        if (null) continue;
        uint32_t size, other;
        const uint8_t *bytes = md_column_bytes(&state[i], k, &size);
        if (plan->cells[s.column] != MD_CELL_TEXT && md_sketch_check(plan->cells[s.column], bytes, size, NULL) != MD_OK)
            return bad_state(err, s, k, "is not the bytes of a sketch");
        if (j < 0) continue;
        const uint8_t *others = md_column_bytes(&state[j], k, &other);
        if (size != other || (size > 0 && memcmp(bytes, others, size) != 0))
            return bad_state(err, s, k, "contradicts another aggregate's");
    }
    return MD_OK;
}

md_rc md_state_read(const md_plan *plan, md_table *table, const md_column *state, int64_t start, int64_t n,
                    md_error *err) {
    md_rc rc = md_table_reserve(plan, table, MD_CHUNK);
    for (int32_t i = 0; rc == MD_OK && i < plan->n_inputs; i++) rc = md_table_split(plan, table, i, 0);
    if (rc != MD_OK) return md_nomem(err);
    bool seen[1 + MD_COLUMNS_PER_INPUT * MD_INPUTS_MAX] = {false};
    for (int32_t i = 0; i < plan->n_state; i++) {
        md_state_column s = plan->state[i];
        if (s.column < 0 || s.nullable || is_object(plan, s)) continue;
        rc = read_plain(table, s, &state[i], start, n, seen[s.column], err);
        if (rc != MD_OK) return rc;
        seen[s.column] = true;
    }
    for (int32_t i = 0; i < plan->n_state; i++) {
        md_state_column s = plan->state[i];
        if (s.column < 0) continue;
        if (s.at >= 0) {
            rc = read_placed(plan, table, s, &state[i], start, n, seen[s.column], err);
            seen[s.column] = true;
        } else if (s.nullable && !is_object(plan, s)) {
            int32_t count = plan->inputs[s.input].n;
            rc = read_value(plan, table, s, &state[i], start, n, seen[s.column], seen[count], err);
            seen[s.column] = seen[count] = true;
        }
        if (rc == MD_OK && is_object(plan, s)) rc = check_objects(plan, i, state, start, n, err);
        if (rc != MD_OK) return rc;
    }
    for (int64_t k = 0; !seen[0] && k < n; k++) table->columns[0][k].i = 1; /* nobody asks */
    return MD_OK;
}

/* The same column of the text's place: the state column before it. */
static bool text_enters(const md_plan *plan, const md_table *table, md_state_column s, const md_column *at, int64_t row,
                        int64_t id, const uint8_t *bytes, size_t size) {
    const md_word *cell = &table->columns[s.column][id];
    if (s.at >= 0) {
        int64_t place = md_column_i64(at, row), held = table->columns[s.at][id].i;
        return plan->identity[s.at].i == INT64_MIN ? place >= held : place < held;
    }
    return md_text_wins(s.column == plan->inputs[s.input].max, md_text_holds(cell->blob) ? cell->blob : NULL, bytes, size);
}

md_rc md_state_room(const md_plan *plan, md_table *table, const int32_t *ids, const md_column *state, int64_t start,
                    int64_t n) {
    for (int32_t i = 0; plan->n_objects > 0 && i < plan->n_state; i++) {
        md_state_column s = plan->state[i];
        if (!is_object(plan, s) || brought_by(plan, i) >= 0) continue;
        for (int64_t k = 0; k < n; k++) {
            uint32_t size;
            if (md_column_null(&state[i], start + k)) continue;
            const uint8_t *bytes = md_column_bytes(&state[i], start + k, &size);
            md_word *cell = &table->columns[s.column][ids[k]];
            md_rc rc = MD_OK;
            if (plan->cells[s.column] != MD_CELL_TEXT) {
                if (size > 0) rc = md_sketch_room_merge(plan->cells[s.column], &cell->blob, size);
            } else if (text_enters(plan, table, s, i > 0 ? &state[i - 1] : NULL, start + k, ids[k], bytes, size)) {
                rc = md_text_room(cell, size);
            }
            if (rc != MD_OK) return rc;
        }
    }
    return MD_OK;
}

void md_state_merge(const md_plan *plan, md_table *table, const int32_t *ids, const md_column *state, int64_t start,
                    int64_t n) {
    for (int32_t i = 0; plan->n_objects > 0 && i < plan->n_state; i++) {
        md_state_column s = plan->state[i];
        if (!is_object(plan, s) || brought_by(plan, i) >= 0) continue;
        const md_column *at = s.at >= 0 ? &state[i - 1] : NULL;
        for (int64_t k = 0; k < n; k++) {
            uint32_t size;
            if (md_column_null(&state[i], start + k)) continue;
            const uint8_t *bytes = md_column_bytes(&state[i], start + k, &size);
            md_word *cell = &table->columns[s.column][ids[k]];
            if (plan->cells[s.column] != MD_CELL_TEXT) {
                if (size > 0) md_sketch_merge(plan->cells[s.column], cell->blob, bytes, size);
            } else if (text_enters(plan, table, s, at, start + k, ids[k], bytes, size)) {
                md_text_set(cell, bytes, size);
                if (s.at >= 0) table->columns[s.at][ids[k]].i = md_column_i64(at, start + k);
            }
        }
    }
}
