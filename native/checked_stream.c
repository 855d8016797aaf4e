#include "checked_stream.h"

#include <errno.h>

#include "md_alloc.h"
#include "validate.h"

typedef struct {
    struct ArrowArrayStream inner;
    struct ArrowSchema schema; /* released: nobody has asked for it yet */
    md_error error;
    bool ours; /* the last error is in `error` */
} checked;

static int fail(checked *c, const char *text) {
    md_fail(&c->error, MD_BADARG, "%.200s", text);
    c->ours = true;
    return EINVAL;
}

static int known_schema(checked *c) {
    if (c->schema.release != NULL) return 0;
    int code = c->inner.get_schema(&c->inner, &c->schema);
    if (code != 0) c->schema.release = NULL;
    else if (c->schema.release == NULL) code = fail(c, "a released schema");
    return code;
}

static int get_schema(struct ArrowArrayStream *stream, struct ArrowSchema *out) {
    checked *c = stream->private_data;
    c->ours = false;
    return c->inner.get_schema(&c->inner, out);
}

static int get_next(struct ArrowArrayStream *stream, struct ArrowArray *out) {
    checked *c = stream->private_data;
    c->ours = false;
    out->release = NULL;
    int code = known_schema(c);
    if (code == 0) code = c->inner.get_next(&c->inner, out);
    if (code != 0 || out->release == NULL) return code;
    if (md_structs_check(&c->schema, out, &c->error) == MD_OK) return 0;
    out->release(out);
    out->release = NULL;
    c->ours = true;
    return EINVAL;
}

static const char *get_last_error(struct ArrowArrayStream *stream) {
    checked *c = stream->private_data;
    return c->ours ? c->error.text : c->inner.get_last_error(&c->inner);
}

static void release(struct ArrowArrayStream *stream) {
    checked *c = stream->private_data;
    if (c->schema.release != NULL) c->schema.release(&c->schema);
    c->inner.release(&c->inner);
    md_free(c);
    stream->release = NULL;
}

md_rc md_checked_stream(struct ArrowArrayStream *from, struct ArrowArrayStream *out) {
    checked *c = md_malloc(sizeof *c);
    if (c == NULL) return MD_NOMEM;
    *c = (checked){.inner = *from};
    from->release = NULL;
    *out = (struct ArrowArrayStream){.get_schema = get_schema, .get_next = get_next,
                                     .get_last_error = get_last_error, .release = release, .private_data = c};
    return MD_OK;
}
