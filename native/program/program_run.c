/* Running a program whose outputs become a struct array. */
#include "program/program_private.h"

#include "arrow/block.h"

/* ---- outputs ---- */

static void append_bits(uint8_t *to, int64_t at, const uint8_t *words, int64_t n) {
    if (at % 8 == 0 && n % 8 == 0) {
        memcpy(to + at / 8, words, (size_t)n / 8);
        return;
    }
    for (int64_t i = 0; i < n; i += 8) {
        uint8_t byte = words[i / 8];
        if (n - i < 8) byte &= (uint8_t)((1u << (n - i)) - 1);
        to[(at + i) / 8] |= (uint8_t)(byte << ((at + i) % 8));
        if ((at + i) % 8 != 0) to[(at + i) / 8 + 1] |= (uint8_t)(byte >> (8 - (at + i) % 8));
    }
}

/* The first n bits. */
static void set_bits(uint8_t *to, int64_t n) {
    memset(to, 0xff, (size_t)n / 8);
    if (n % 8 != 0) to[n / 8] |= (uint8_t)((1u << (n % 8)) - 1);
}

static void append(md_sink *s, const md_reg *reg, int64_t at, int64_t n) {
    if (reg->kind == MD_R_BOOL) append_bits(s->values, at, reg->values, n);
    else memcpy(s->values + 8 * at, reg->values, 8 * (size_t)n);
    /* Without a null so far nobody reads the bitmap: it is made up when the first one comes. */
    if (reg->valid == NULL && s->nulls == 0) return;
    if (s->nulls == 0) set_bits(s->validity, at);
    uint64_t all[WORDS];
    if (reg->valid == NULL) memset(all, 0xff, sizeof all);
    const uint64_t *valid = reg->valid != NULL ? reg->valid : all;
    append_bits(s->validity, at, (const uint8_t *)valid, n);
    if (reg->valid == NULL) return;
    for (int64_t i = 0; i < n; i += WORD) {
        uint64_t rows = n - i >= WORD ? UINT64_MAX : (UINT64_C(1) << (n - i)) - 1;
        s->nulls += __builtin_popcountll(~valid[i / WORD] & rows);
    }
}

static size_t bits_of(int64_t rows) { return (size_t)rows / 8 + 16; }

static size_t values_of(const md_sink *s, int64_t rows) { return s->bools ? bits_of(rows) : 8 * (size_t)rows + 8; }

/* A block with room for so many rows of each output, which the sinks then point into. */
static md_rc make_room(const md_program *p, md_sink *sinks, int64_t rows, struct ArrowArray *out) {
    size_t end = 0, at[MD_PROGRAM_REGISTERS][2];
    uint8_t *data;
    for (int32_t i = 0; i < p->n_outputs; i++) {
        sinks[i].bools = p->regs[p->outputs[i].reg].kind == MD_R_BOOL;
        int64_t room = p->outputs[i].reg == p->skipped ? 0 : rows;
        if (!md_block_reserve(&end, values_of(&sinks[i], room), &at[i][0]) ||
            !md_block_reserve(&end, bits_of(room), &at[i][1]))
            return MD_NOMEM;
    }
    if (md_block_make(p->n_outputs, end, out, &data) != MD_OK) return MD_NOMEM;
    for (int32_t i = 0; i < p->n_outputs; i++) {
        md_sink *s = &sinks[i];
        s->values = data + at[i][0];
        s->validity = data + at[i][1];
        if (p->outputs[i].reg == p->skipped) continue;
        if (s->bools) memset(s->values, 0, values_of(s, rows));
        memset(s->validity, 0, bits_of(rows));
    }
    return MD_OK;
}

/* Many rows were left out: give back what they would have needed. Failing to is no failure. */
static void shrink(const md_program *p, md_sink *sinks, int64_t rows, struct ArrowArray *block) {
    md_sink less[MD_PROGRAM_REGISTERS];
    struct ArrowArray smaller;
    if (make_room(p, less, rows, &smaller) != MD_OK) return;
    for (int32_t i = 0; i < p->n_outputs; i++) {
        memcpy(less[i].values, sinks[i].values, less[i].bools ? ((size_t)rows + 7) / 8 : 8 * (size_t)rows);
        memcpy(less[i].validity, sinks[i].validity, ((size_t)rows + 7) / 8);
        less[i].nulls = sinks[i].nulls;
        sinks[i] = less[i];
    }
    md_array_release(block);
    *block = smaller;
}

static md_rc make_schema(const md_program *p, struct ArrowSchema *schema, md_error *err) {
    struct ArrowSchema fields;
    if (md_schema_make(&fields, "+s", "", false, p->n_outputs) != MD_OK) return md_nomem(err);
    for (int32_t i = 0; i < p->n_outputs; i++) {
        if (md_schema_make(fields.children[i], p->outputs[i].format, p->outputs[i].name, true, 0) != MD_OK) {
            md_schema_release(&fields);
            return md_nomem(err);
        }
    }
    *schema = fields;
    return MD_OK;
}

static void fill_array(const md_program *p, const md_sink *sinks, int64_t rows, struct ArrowArray *block) {
    block->length = rows;
    for (int32_t i = 0; i < p->n_outputs; i++) {
        struct ArrowArray *column = block->children[i];
        column->length = rows;
        column->null_count = sinks[i].nulls;
        column->buffers[0] = sinks[i].nulls != 0 ? sinks[i].validity : NULL;
        column->buffers[1] = sinks[i].values;
    }
}

/* ---- the run ---- */

md_rc md_program_view(md_program *p, const struct ArrowSchema *schema, const struct ArrowArray *rows, int64_t *length,
                      md_error *err) {
    md_rc rc = md_columns_view(schema, rows, p->n_columns, p->views, length, err);
    for (int32_t i = 0; rc == MD_OK && i < p->n_columns; i++)
        if (p->views[i].type != p->columns[i]) rc = md_fail(err, MD_BADARG, "column %d: another type than said", i);
    return rc;
}

md_rc md_program_block(md_program *p, int64_t length, md_sink *sinks, int64_t *rows, int64_t *kept,
                       struct ArrowArray *block, md_error *err) {
    int64_t at = 0;
    /* Only what is used is cleared: a train of a few rows would pay for the rest. */
    memset(sinks, 0, sizeof *sinks * (size_t)p->n_outputs);
    memset(kept, 0, sizeof *kept * (size_t)p->n_filters);
    if (make_room(p, sinks, length, block) != MD_OK) return md_nomem(err);
    for (int64_t start = 0; start < length; start += CHUNK) {
        int64_t n = md_program_chunk(p, start, length - start < CHUNK ? length - start : CHUNK, kept);
        if (n < 0) {
            md_array_release(block);
            return md_fail(err, MD_EMPTY, "a row failed");
        }
        for (int32_t i = 0; n > 0 && i < p->n_outputs; i++)
            if (p->outputs[i].reg != p->skipped) append(&sinks[i], &p->regs[p->outputs[i].reg], at, n);
        at += n;
    }
    *rows = at;
    return MD_OK;
}

md_rc md_program_run(md_program *p, const struct ArrowSchema *rows_schema, const struct ArrowArray *rows,
                     struct ArrowSchema *schema, struct ArrowArray *array, int64_t *kept, md_error *err) {
    int64_t length = 0, left = 0, counts[MD_PROGRAM_STEPS];
    md_sink sinks[MD_PROGRAM_REGISTERS];
    struct ArrowArray block;
    md_rc rc = md_program_view(p, rows_schema, rows, &length, err);
    p->skipped = -1;
    if (rc == MD_OK && !md_program_rooms_take(p, length)) rc = md_nomem(err);
    if (rc != MD_OK) return rc;
    rc = md_program_block(p, length, sinks, &left, counts, &block, err);
    md_program_rooms_give(p);
    if (rc != MD_OK) return rc;
    if ((rc = make_schema(p, schema, err)) != MD_OK) {
        md_array_release(&block);
        return rc;
    }
    if (left < length / 4) shrink(p, sinks, left, &block);
    fill_array(p, sinks, left, &block);
    *array = block;
    memcpy(kept, counts, sizeof *kept * (size_t)p->n_filters);
    return MD_OK;
}
