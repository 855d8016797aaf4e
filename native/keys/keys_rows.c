#include "keys/keys_rows.h"

#include "base/md_alloc.h"

md_rc md_rows_put_keys(md_rows *rows, int32_t column, const md_keys *keys, const int32_t *order, int64_t n,
                       uint8_t *flags, md_word *scratch) {
    for (int32_t k = 0; k < keys->n_columns; k++) {
        const md_key_column *c = &keys->columns[k];
        uint8_t *valid = NULL;
        if (c->validity != NULL) {
            valid = flags;
            for (int64_t i = 0; i < n; i++) valid[i] = md_bit(c->validity, order != NULL ? order[i] : i);
        }
        md_rc rc = MD_OK;
        if (md_type_is_text(c->type)) {
            for (int64_t i = 0; rc == MD_OK && i < n; i++) {
                int64_t id = order != NULL ? order[i] : i;
                rc = md_rows_put_bytes(rows, column + k, i, c->data + c->offsets[id],
                                       (size_t)(c->offsets[id + 1] - c->offsets[id]));
            }
            if (rc == MD_OK && valid != NULL && n > 0 && memchr(valid, 0, (size_t)n) != NULL)
                rc = md_rows_nullable(rows, column + k);
            for (int64_t i = 0; rc == MD_OK && rows->columns[column + k].validity != NULL && i < n; i++)
                md_rows_set_valid(rows, column + k, i, valid == NULL || valid[i]);
        } else {
            const md_word *words = (const md_word *)(const void *)c->words;
            if (order != NULL || c->type == MD_BOOL) {
                for (int64_t i = 0; i < n; i++) scratch[i].u = c->words[order != NULL ? order[i] : i];
                words = scratch;
            }
            rc = md_rows_put(rows, column + k, words, valid, n);
        }
        if (rc != MD_OK) return rc;
    }
    return MD_OK;
}

md_rc md_keys_map_rows(md_keys *keys, const struct ArrowSchema *schema, const struct ArrowArray *array,
                       int64_t position, bool insert, struct ArrowArray *out, int64_t *length, md_error *err) {
    md_column columns[MD_KEYS_COLUMNS_MAX];
    int64_t n;
    md_rc rc = md_columns_view(schema, array, keys->n_columns, columns, &n, err);
    if (rc != MD_OK) return rc;
    for (int32_t k = 0; k < keys->n_columns; k++)
        if (columns[k].type != keys->columns[k].type)
            return md_fail(err, MD_BADARG, "key column %d is of type '%c', expected '%c'", k, (char)columns[k].type,
                           (char)keys->columns[k].type);
    size_t size;
    int32_t *ids = md_mul_size((size_t)n, sizeof *ids, &size) ? md_malloc(size) : NULL;
    if (ids == NULL) return md_nomem(err);
    int64_t before = keys->count;
    rc = md_keys_map(keys, columns, NULL, 0, n, position, insert, ids);
    if (rc == MD_OK && (rc = md_array_of(out, n, 0, NULL, ids)) != MD_OK) md_keys_truncate(keys, before);
    if (rc != MD_OK) {
        md_free(ids);
        return md_fail(err, rc, "out of memory");
    }
    *length = n;
    return MD_OK;
}

md_rc md_keys_export(const md_keys *keys, struct ArrowSchema *schema, struct ArrowArray *array, md_error *err) {
    md_rows *rows;
    size_t n = (size_t)keys->count;
    if (md_rows_new(keys->n_columns, &rows) != MD_OK) return md_nomem(err);
    uint8_t *flags = md_malloc(n);
    md_word *scratch = md_malloc(n * sizeof *scratch);
    md_rc rc = flags != NULL && scratch != NULL ? MD_OK : MD_NOMEM;
    for (int32_t k = 0; k < keys->n_columns; k++) {
        char name[24], format[2] = {(char)keys->columns[k].type, 0};
        snprintf(name, sizeof name, "k%d", k);
        md_rows_define(rows, k, format, name, true);
    }
    if (rc == MD_OK) rc = md_rows_reserve(rows, keys->count);
    if (rc == MD_OK) rc = md_rows_put_keys(rows, 0, keys, NULL, keys->count, flags, scratch);
    if (rc == MD_OK) {
        md_rows_commit(rows, keys->count);
        rc = md_rows_finish(rows, schema, array);
    }
    md_free(flags);
    md_free(scratch);
    md_rows_free(rows);
    return rc == MD_OK ? MD_OK : md_fail(err, rc, "out of memory");
}
