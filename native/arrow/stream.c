#include "arrow/stream.h"

#include <errno.h>

#include "arrow/column.h"
#include "base/md_alloc.h"
#include "arrow/validate.h"

typedef struct kept {
    struct ArrowSchema schema;
    struct ArrowArray *arrays;
    int64_t n, capacity, next;
} kept;

static void end(kept *k) {
    for (int64_t i = k->next; i < k->n; i++) md_array_release(&k->arrays[i]);
    md_schema_release(&k->schema);
    md_free(k->arrays);
    md_free(k);
}

/* ---- what the reader of `out` calls ---- */

static int give_schema(struct ArrowArrayStream *stream, struct ArrowSchema *schema) {
    kept *k = stream->private_data;
    if (k->schema.release == NULL) return EINVAL;
    *schema = k->schema;
    k->schema.release = NULL;
    return 0;
}

static int give_next(struct ArrowArrayStream *stream, struct ArrowArray *array) {
    kept *k = stream->private_data;
    if (k->next < k->n) *array = k->arrays[k->next++];
    else array->release = NULL;
    return 0;
}

static const char *last_error(struct ArrowArrayStream *stream) {
    kept *k = stream->private_data;
    return k->schema.release == NULL ? "the schema was given already" : NULL;
}

static void release(struct ArrowArrayStream *stream) {
    end(stream->private_data);
    stream->release = NULL;
}

/* ---- reading ---- */

static md_rc failed(struct ArrowArrayStream *from, int code, int *out, md_error *err) {
    const char *text = from->get_last_error != NULL ? from->get_last_error(from) : NULL;
    *out = code;
    return code == ENOMEM ? md_nomem(err) : md_fail(err, MD_BADARG, "%.200s", text != NULL ? text : "no reason given");
}

static md_rc room(kept *k) {
    if (k->n < k->capacity) return MD_OK;
    int64_t capacity = k->capacity == 0 ? 8 : 2 * k->capacity;
    struct ArrowArray *arrays = md_realloc(k->arrays, (size_t)capacity * sizeof *arrays);
    if (arrays == NULL) return MD_NOMEM;
    k->arrays = arrays;
    k->capacity = capacity;
    return MD_OK;
}

static md_rc read_all(struct ArrowArrayStream *from, bool rows, kept *k, int *code, md_error *err) {
    int rc = from->get_schema(from, &k->schema);
    if (rc != 0) {
        k->schema.release = NULL;
        return failed(from, rc, code, err);
    }
    if (md_schema_check(&k->schema, err) != MD_OK) return MD_BADDATA;
    for (;;) {
        if (room(k) != MD_OK) return md_nomem(err);
        struct ArrowArray *array = &k->arrays[k->n];
        array->release = NULL;
        rc = from->get_next(from, array);
        if (rc != 0) return failed(from, rc, code, err);
        if (array->release == NULL) return MD_OK;
        k->n++;
        md_rc sound = rows ? md_batch_check(&k->schema, array, err) : md_structs_check(&k->schema, array, err);
        if (sound != MD_OK) {
            if (!md_array_walks(&k->schema, array)) array->release = NULL;
            return MD_BADDATA;
        }
    }
}

md_rc md_stream_read(struct ArrowArrayStream *from, bool rows, struct ArrowArrayStream *out, int *code,
                     md_error *err) {
    *code = 0;
    if (from->release == NULL || from->get_schema == NULL || from->get_next == NULL)
        return md_fail(err, MD_BADDATA, "a released stream");
    kept *k = md_calloc(1, sizeof *k);
    if (k == NULL) return md_nomem(err);
    md_rc rc = read_all(from, rows, k, code, err);
    if (rc != MD_OK) {
        end(k);
        return rc;
    }
    *out = (struct ArrowArrayStream){give_schema, give_next, last_error, release, k};
    return MD_OK;
}
