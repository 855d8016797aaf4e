#include "base/digest.h"

#include "base/hash.h"
#include "base/md_alloc.h"

typedef enum { NOTHING, BIT, FIXED, BYTES32, BYTES64, LIST32, LIST64, LIST_FIXED, STRUCT } layout;

/* One column; the children of a nested one stand in nodes[child .. child + n_children). */
typedef struct node {
    layout layout;
    int64_t width;           /* bytes of FIXED, elements of LIST_FIXED */
    int64_t shift;           /* row i is element shift + i */
    const uint8_t *validity; /* NULL: no nulls */
    const uint8_t *values;   /* values, bits or offsets */
    const uint8_t *data;     /* of BYTES32 and BYTES64 */
    int64_t child, n_children;
} node;

/* ---- columns ---- */

static int64_t number_after(const char *format) {
    int64_t n = 0;
    for (const char *p = format; *p >= '0' && *p <= '9' && n < INT32_MAX; p++) n = 10 * n + (*p - '0');
    return n;
}

static int64_t decimal_width(const char *format) {
    const char *bits = strchr(format, ',');
    bits = bits == NULL ? NULL : strchr(bits + 1, ',');
    return bits == NULL ? 16 : number_after(bits + 1) / 8;
}

/* The layout of a format; its width too where that is fixed. False: a type that isn't taken. */
static bool layout_of(const char *f, node *out) {
    static const char ONES[] = "cC", TWOS[] = "sSe", FOURS[] = "iIf", EIGHTS[] = "lLg";
    out->layout = FIXED;
    out->width = 0;
    if (f[0] == '\0') return false;
    if (f[1] == '\0') {
        switch (f[0]) {
        case 'n': out->layout = NOTHING; return true;
        case 'b': out->layout = BIT; return true;
        case 'u':
        case 'z': out->layout = BYTES32; return true;
        case 'U':
        case 'Z': out->layout = BYTES64; return true;
        default: break;
        }
        out->width = strchr(ONES, f[0]) ? 1 : strchr(TWOS, f[0]) ? 2 : strchr(FOURS, f[0]) ? 4 : strchr(EIGHTS, f[0]) ? 8 : 0;
    } else if (f[0] == 't') {
        bool four = strcmp(f, "tdD") == 0 || strcmp(f, "tts") == 0 || strcmp(f, "ttm") == 0 || strcmp(f, "tiM") == 0;
        out->width = four ? 4 : strcmp(f, "tin") == 0 ? 16 : 8;
    } else if (f[0] == 'd' && f[1] == ':') {
        out->width = decimal_width(f);
    } else if (f[0] == 'w' && f[1] == ':') {
        out->width = number_after(f + 2);
        return true;
    } else if (strcmp(f, "+l") == 0) {
        out->layout = LIST32;
        return true;
    } else if (strcmp(f, "+L") == 0) {
        out->layout = LIST64;
        return true;
    } else if (strncmp(f, "+w:", 3) == 0) {
        out->layout = LIST_FIXED;
        out->width = number_after(f + 3);
        return true;
    } else if (strcmp(f, "+s") == 0) {
        out->layout = STRUCT;
        return true;
    }
    return out->width > 0;
}

static int64_t count_nodes(const struct ArrowSchema *schema, int depth) {
    if (depth > MD_DIGEST_DEPTH || schema->n_children < 0) return -1;
    int64_t total = 1;
    for (int64_t i = 0; i < schema->n_children; i++) {
        int64_t below = count_nodes(schema->children[i], depth + 1);
        if (below < 0) return -1;
        total += below;
    }
    return total;
}

/* Fill nodes[at] and what is below it; *used: nodes taken so far. */
static md_rc view(const struct ArrowSchema *schema, const struct ArrowArray *array, node *nodes, int64_t at,
                  int64_t *used, md_error *err) {
    node made = {0};
    if (schema->format == NULL || schema->dictionary != NULL || !layout_of(schema->format, &made))
        return md_fail(err, MD_BADARG, "a column of type '%.40s' has no digest",
                       schema->dictionary != NULL || schema->format == NULL ? "dictionary" : schema->format);
    bool list = made.layout == LIST32 || made.layout == LIST64 || made.layout == LIST_FIXED;
    int64_t buffers = made.layout == NOTHING                                ? 0
                      : made.layout == STRUCT || made.layout == LIST_FIXED  ? 1
                      : made.layout == BYTES32 || made.layout == BYTES64    ? 3
                                                                            : 2;
    if (array->n_buffers < buffers || array->n_children != schema->n_children || array->offset < 0 ||
        (list && schema->n_children != 1) || (!list && made.layout != STRUCT && schema->n_children != 0))
        return md_fail(err, MD_BADARG, "an array that isn't of its type");
    made.shift = array->offset;
    if (buffers > 0 && array->null_count != 0) made.validity = array->buffers[0];
    if (buffers > 1) made.values = array->buffers[1];
    if (buffers > 2) made.data = array->buffers[2];
    if (array->length > 0 && buffers > 1 && made.values == NULL && !(made.layout == FIXED && made.width == 0))
        return md_fail(err, MD_BADARG, "a column without its values");
    made.child = *used;
    made.n_children = schema->n_children;
    *used += made.n_children;
    nodes[at] = made;
    for (int64_t i = 0; i < made.n_children; i++) {
        md_rc rc = view(schema->children[i], array->children[i], nodes, made.child + i, used, err);
        if (rc != MD_OK) return rc;
    }
    return MD_OK;
}

/* ---- values ---- */

/* Null is another function of h than any value, so no value can be taken for it. */
static inline uint64_t mix_null(uint64_t h) { return md_fold(h ^ MD_HASH_B, MD_HASH_NULL); }

static inline uint64_t fixed_word(const uint8_t *p, int64_t width) {
    switch (width) {
    case 1: return *p;
    case 2: {
        uint16_t v;
        memcpy(&v, p, sizeof v);
        return v;
    }
    case 4: return md_load_u32(p);
    default: return md_load_u64(p);
    }
}

static uint64_t mix_bytes(uint64_t h, const uint8_t *p, int64_t size) {
    const int64_t step = 1 << 30;
    for (; size > step; size -= step, p += step) h = md_hash_bytes(h, p, (uint32_t)step);
    return md_hash_bytes(h, p, (uint32_t)size);
}

static inline void offsets_of(const node *c, int64_t i, bool wide, int64_t *start, int64_t *end) {
    const uint8_t *p = c->values;
    *start = wide ? md_load_i64(p + 8 * i) : md_load_i32(p + 4 * i);
    *end = wide ? md_load_i64(p + 8 * i + 8) : md_load_i32(p + 4 * i + 4);
}

/* Mix element i (its array's offset not yet applied) into h. */
static uint64_t mix(const node *nodes, const node *c, int64_t i, uint64_t h) {
    int64_t start, end;
    i += c->shift;
    if (c->layout == NOTHING || (c->validity != NULL && !md_bit(c->validity, i))) return mix_null(h);
    switch (c->layout) {
    case BIT: return md_hash_word(h, md_bit(c->values, i));
    case FIXED:
        if (c->width <= 8 && (c->width & (c->width - 1)) == 0 && c->width > 0)
            return md_hash_word(h, fixed_word(c->values + c->width * i, c->width));
        return mix_bytes(h, c->width == 0 ? (const uint8_t *)"" : c->values + c->width * i, c->width);
    case BYTES32:
    case BYTES64:
        offsets_of(c, i, c->layout == BYTES64, &start, &end);
        return mix_bytes(h, end == start ? (const uint8_t *)"" : c->data + start, end - start);
    case LIST32:
    case LIST64: offsets_of(c, i, c->layout == LIST64, &start, &end); break;
    case LIST_FIXED:
        start = i * c->width;
        end = start + c->width;
        break;
    default: /* a struct: its children have no offset of their own from it but this */
        for (int64_t k = 0; k < c->n_children; k++) h = mix(nodes, &nodes[c->child + k], i, h);
        return h;
    }
    h = md_hash_word(h, (uint64_t)(end - start));
    for (int64_t k = start; k < end; k++) h = mix(nodes, &nodes[c->child], k, h);
    return h;
}

/* Both lanes of one column of the table; words of eight bytes without nulls are most of all state. */
static void mix_column(const node *nodes, const node *c, int64_t offset, int64_t length, uint64_t *out) {
    if (c->layout == FIXED && c->width == 8 && c->validity == NULL) {
        const uint8_t *p = c->values + 8 * (c->shift + offset);
        for (int64_t i = 0; i < length; i++) {
            uint64_t word = md_load_u64(p + 8 * i);
            out[2 * i] = md_hash_word(out[2 * i], word);
            out[2 * i + 1] = md_hash_word(out[2 * i + 1], word);
        }
        return;
    }
    for (int64_t i = 0; i < length; i++) {
        out[2 * i] = mix(nodes, c, offset + i, out[2 * i]);
        out[2 * i + 1] = mix(nodes, c, offset + i, out[2 * i + 1]);
    }
}

md_rc md_row_digests(const struct ArrowSchema *schema, const struct ArrowArray *array, const uint64_t seed[2],
                     uint64_t *out, md_error *err) {
    if (schema->format == NULL || strcmp(schema->format, "+s") != 0 || array->length < 0 || array->null_count > 0)
        return md_fail(err, MD_BADARG, "expected a struct array without nulls");
    int64_t count = count_nodes(schema, 0), used = 1;
    if (count < 0) return md_fail(err, MD_BADARG, "columns nested more than %d deep", MD_DIGEST_DEPTH);
    node *nodes = md_calloc((size_t)count, sizeof *nodes);
    if (nodes == NULL) return md_fail(err, MD_NOMEM, "out of memory");
    md_rc rc = view(schema, array, nodes, 0, &used, err);
    if (rc == MD_OK) {
        for (int64_t i = 0; i < array->length; i++) {
            out[2 * i] = seed[0];
            out[2 * i + 1] = seed[1];
        }
        for (int64_t k = 0; k < nodes[0].n_children; k++)
            mix_column(nodes, &nodes[nodes[0].child + k], array->offset, array->length, out);
    }
    md_free(nodes);
    return rc;
}

/* ---- runs ---- */

typedef struct finder {
    const uint64_t *rows;
    int64_t *slots; /* number of the row + 1; 0: free */
    uint64_t mask;
} finder;

static inline bool same(const uint64_t *a, const uint64_t *b) { return a[0] == b[0] && a[1] == b[1]; }

static md_rc index_rows(const uint64_t *rows, int64_t n, finder *out) {
    uint64_t size = 16;
    while (size < 2 * (uint64_t)n) size *= 2;
    out->slots = md_calloc(size, sizeof *out->slots);
    if (out->slots == NULL) return MD_NOMEM;
    out->rows = rows;
    out->mask = size - 1;
    for (int64_t i = 0; i < n; i++) {
        uint64_t at = rows[2 * i] & out->mask;
        while (out->slots[at] != 0 && !same(rows + 2 * (out->slots[at] - 1), rows + 2 * i)) at = (at + 1) & out->mask;
        if (out->slots[at] == 0) out->slots[at] = i + 1;
    }
    return MD_OK;
}

static int64_t find(const finder *f, const uint64_t *row) {
    for (uint64_t at = row[0] & f->mask; f->slots[at] != 0; at = (at + 1) & f->mask)
        if (same(f->rows + 2 * (f->slots[at] - 1), row)) return f->slots[at] - 1;
    return -1;
}

md_rc md_row_runs(const uint64_t *old_rows, int64_t n_old, const uint64_t *new_rows, int64_t n_new, int64_t **runs,
                  int64_t *n_runs, md_error *err) {
    finder known = {0};
    int64_t *made = NULL;
    int64_t count = 0, room = 0, fresh = 0;
    int64_t guess = 0; /* the old row that stands here if nothing moved since the row before */
    md_rc rc = MD_OK;
    for (int64_t j = 0; j < n_new; j++) {
        const uint64_t *row = new_rows + 2 * j;
        int64_t start = guess;
        if (guess >= n_old || !same(old_rows + 2 * guess, row)) {
            if (known.slots == NULL && (rc = index_rows(old_rows, n_old, &known)) != MD_OK) break;
            start = find(&known, row);
        }
        /* A fresh row most often replaces the one that stood there. */
        guess = start < 0 ? guess + 1 : start + 1;
        if (start < 0) start = n_old + fresh++;
        if (count > 0 && start != n_old && made[2 * count - 2] + made[2 * count - 1] == start) {
            made[2 * count - 1]++;
            continue;
        }
        if (count == room) {
            room = room == 0 ? 16 : 2 * room;
            int64_t *larger = md_realloc(made, (size_t)room * 2 * sizeof *made);
            if (larger == NULL) {
                rc = MD_NOMEM;
                break;
            }
            made = larger;
        }
        made[2 * count] = start;
        made[2 * count + 1] = 1;
        count++;
    }
    md_free(known.slots);
    if (rc != MD_OK) {
        md_free(made);
        return md_fail(err, rc, "out of memory");
    }
    *runs = made;
    *n_runs = count;
    return MD_OK;
}
