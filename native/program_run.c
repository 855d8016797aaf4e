/* Running a program: columns in, filters, outputs. */
#include "program_private.h"

#include "block.h"
#include "gather.h"

/* Where the rows of one output gather, in the block of all of them. */
typedef struct sink {
    uint8_t *values, *validity;
    int64_t nulls;
    bool bools;
} sink;

/* ---- columns in ---- */

static void load_bits(const uint8_t *bits, int64_t at, int64_t n, uint64_t *to) {
    for (int64_t i = 0; i < n; i += WORD) to[i / WORD] = md_bits_at(bits, at + i, n - i < WORD ? n - i : WORD);
}

/* Nulls of n rows from `at` on; without any the register has none. */
static void load_nulls(md_reg *reg, const md_column *column, int64_t at, int64_t n) {
    reg->valid = NULL;
    if (column->validity == NULL) return;
    uint64_t *words = reg->nulls[0];
    load_bits(column->validity, column->shift + at, n, words);
    for (int64_t i = 0; i < n; i += WORD) {
        uint64_t all = n - i >= WORD ? UINT64_MAX : (UINT64_C(1) << (n - i)) - 1;
        if (words[i / WORD] != all) reg->valid = words;
    }
}

static void load_column(md_reg *reg, const md_column *column, int64_t at, int64_t n) {
    reg->turn = 0;
    load_nulls(reg, column, at, n);
    reg->values = reg->room[0];
    if (column->type == MD_BOOL) {
        load_bits(column->values, column->shift + at, n, (uint64_t *)(void *)reg->room[0]);
        return;
    }
    if (column->type == MD_I32) {
        int64_t *to = (int64_t *)(void *)reg->room[0];
        for (int64_t i = 0; i < n; i++) to[i] = md_load_i32(column->values + 4 * (at + i));
        return;
    }
    const uint8_t *from = column->values + 8 * at;
    /* Read where it is, if whole words of rows are there and at an address for them. */
    bool in_place = at + (n + WORD - 1) / WORD * WORD <= column->length && (uintptr_t)from % 8 == 0;
    if (in_place) reg->values = from;
    else memcpy(reg->room[0], from, 8 * (size_t)n);
}

/* ---- filters ---- */

static void keep_rows(md_reg *reg, const uint64_t *words, int64_t n) {
    int32_t turn = reg->values == reg->room[0] || (reg->valid != NULL && reg->valid == reg->nulls[0]) ? 1 : 0;
    if (reg->kind == MD_R_BOOL) md_gather_bits(reg->room[turn], reg->values, 0, words, n);
    else md_gather_fixed(reg->room[turn], reg->values, 8, words, n, true);
    if (reg->valid != NULL) {
        md_gather_bits((uint8_t *)reg->nulls[turn], (const uint8_t *)reg->valid, 0, words, n);
        reg->valid = reg->nulls[turn];
    }
    reg->values = reg->room[turn];
    reg->turn = turn;
}

/* Returns the rows left of n. */
static int64_t filter(md_program *p, int32_t step, int64_t n) {
    const md_reg *by = &p->regs[p->steps[step].a];
    uint64_t words[WORDS + 1] = {0};
    int64_t left = 0;
    for (int64_t i = 0; i < n; i += WORD) {
        uint64_t rows = n - i >= WORD ? UINT64_MAX : (UINT64_C(1) << (n - i)) - 1;
        uint64_t word = md_load_u64(by->values + 8 * (i / WORD)) & rows;
        if (by->valid != NULL) word &= by->valid[i / WORD];
        words[i / WORD] = word;
        left += __builtin_popcountll(word);
    }
    if (left == n || left == 0) return left;
    for (int32_t r = 0; r < p->n_regs; r++) {
        md_reg *reg = &p->regs[r];
        if (reg->last > step && !reg->constant) keep_rows(reg, words, n);
    }
    return left;
}

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

static void append(sink *s, const md_reg *reg, int64_t at, int64_t n) {
    if (reg->kind == MD_R_BOOL) append_bits(s->values, at, reg->values, n);
    else memcpy(s->values + 8 * at, reg->values, 8 * (size_t)n);
    static const uint64_t ALL[WORDS] = {UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX};
    const uint64_t *valid = reg->valid != NULL ? reg->valid : ALL;
    /* Without a null so far nobody reads the bitmap: it is made up when the first one comes. */
    if (reg->valid == NULL && s->nulls == 0) return;
    if (s->nulls == 0) set_bits(s->validity, at);
    append_bits(s->validity, at, (const uint8_t *)valid, n);
    if (reg->valid == NULL) return;
    for (int64_t i = 0; i < n; i += WORD) {
        uint64_t rows = n - i >= WORD ? UINT64_MAX : (UINT64_C(1) << (n - i)) - 1;
        s->nulls += __builtin_popcountll(~valid[i / WORD] & rows);
    }
}

static size_t bits_of(int64_t rows) { return (size_t)rows / 8 + 16; }

static size_t values_of(const sink *s, int64_t rows) { return s->bools ? bits_of(rows) : 8 * (size_t)rows + 8; }

/* A block with room for so many rows of each output, which the sinks then point into. */
static md_rc make_room(const md_program *p, sink *sinks, int64_t rows, struct ArrowArray *out) {
    size_t end = 0, at[MD_PROGRAM_REGISTERS][2];
    uint8_t *data;
    for (int32_t i = 0; i < p->n_outputs; i++) {
        sinks[i].bools = p->regs[p->outputs[i].reg].kind == MD_R_BOOL;
        if (!md_block_reserve(&end, values_of(&sinks[i], rows), &at[i][0]) ||
            !md_block_reserve(&end, bits_of(rows), &at[i][1]))
            return MD_NOMEM;
    }
    if (md_block_make(p->n_outputs, end, out, &data) != MD_OK) return MD_NOMEM;
    for (int32_t i = 0; i < p->n_outputs; i++) {
        sink *s = &sinks[i];
        s->values = data + at[i][0];
        s->validity = data + at[i][1];
        if (s->bools) memset(s->values, 0, values_of(s, rows));
        memset(s->validity, 0, bits_of(rows));
    }
    return MD_OK;
}

/* Many rows were left out: give back what they would have needed. Failing to is no failure. */
static void shrink(const md_program *p, sink *sinks, int64_t rows, struct ArrowArray *block) {
    sink less[MD_PROGRAM_REGISTERS];
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

static void fill_array(const md_program *p, const sink *sinks, int64_t rows, struct ArrowArray *block) {
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

/* One chunk of n rows from `at` on. Returns the rows left; -1: a row failed. */
static int64_t run_chunk(md_program *p, int64_t at, int64_t n, int64_t *kept) {
    md_step_run *run = p->baseline ? md_step_baseline : md_step_avx2;
    int32_t filters = 0;
    for (int32_t i = 0; i < p->n_steps && n > 0; i++) {
        const md_step *s = &p->steps[i];
        if (s->op == MD_P_CONST) continue;
        if (s->op == MD_P_COLUMN) {
            load_column(&p->regs[s->dst], &p->views[s->a], at, n);
        } else if (s->op == MD_P_FILTER) {
            n = filter(p, i, n);
            kept[filters++] += n;
        } else {
            p->regs[s->dst].turn = 0;
            if (!run(p->regs, s, n)) return -1;
        }
    }
    return n;
}

static md_rc check_views(const md_program *p, md_error *err) {
    for (int32_t i = 0; i < p->n_columns; i++)
        if (p->views[i].type != p->columns[i]) return md_fail(err, MD_BADARG, "column %d: another type than said", i);
    return MD_OK;
}

md_rc md_program_run(md_program *p, const struct ArrowSchema *rows_schema, const struct ArrowArray *rows,
                     struct ArrowSchema *schema, struct ArrowArray *array, int64_t *kept, md_error *err) {
    int64_t length = 0, at = 0;
    md_rc rc = md_columns_view(rows_schema, rows, p->n_columns, p->views, &length, err);
    if (rc == MD_OK) rc = check_views(p, err);
    if (rc != MD_OK) return rc;
    /* Only what is used is cleared: a train of a few rows would pay for the rest. */
    sink sinks[MD_PROGRAM_REGISTERS];
    int64_t counts[MD_PROGRAM_STEPS];
    struct ArrowArray block;
    memset(sinks, 0, sizeof *sinks * (size_t)p->n_outputs);
    memset(counts, 0, sizeof *counts * (size_t)p->n_filters);
    if (make_room(p, sinks, length, &block) != MD_OK) return md_nomem(err);
    for (int64_t start = 0; rc == MD_OK && start < length; start += CHUNK) {
        int64_t n = run_chunk(p, start, length - start < CHUNK ? length - start : CHUNK, counts);
        if (n < 0) rc = md_fail(err, MD_EMPTY, "a row failed");
        for (int32_t i = 0; n > 0 && i < p->n_outputs; i++) append(&sinks[i], &p->regs[p->outputs[i].reg], at, n);
        at += n;
    }
    if (rc == MD_OK) rc = make_schema(p, schema, err);
    if (rc != MD_OK) {
        md_array_release(&block);
        return rc;
    }
    if (at < length / 4) shrink(p, sinks, at, &block);
    fill_array(p, sinks, at, &block);
    *array = block;
    memcpy(kept, counts, sizeof *kept * (size_t)p->n_filters);
    return MD_OK;
}
