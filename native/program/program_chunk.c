/* One chunk of a run: columns in, filters, steps. */
#include "arrow/gather.h"
#include "program/program_private.h"

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
        md_program_clear(reg->room[0], n);
        return;
    }
    const uint8_t *from = column->values + 8 * at;
    /* Read where it is, if whole words of rows are there and at an address for them. */
    bool in_place = at + (n + WORD - 1) / WORD * WORD <= column->length && (uintptr_t)from % 8 == 0;
    if (in_place) {
        reg->values = from;
        return;
    }
    memcpy(reg->room[0], from, 8 * (size_t)n);
    md_program_clear(reg->room[0], n);
}

/* ---- filters ---- */

/* Which of its rooms a register is moved to: not the one that it is in. */
static int32_t free_turn(const md_reg *reg) {
    return reg->values == reg->room[0] || (reg->valid != NULL && reg->valid == reg->nulls[0]) ? 1 : 0;
}

static void keep_bits(md_reg *reg, int32_t turn, const uint64_t *words, int64_t n) {
    if (reg->kind == MD_R_BOOL) {
        md_gather_bits(reg->room[turn], reg->values, 0, words, n);
        reg->values = reg->room[turn];
    }
    if (reg->valid != NULL) {
        md_gather_bits((uint8_t *)reg->nulls[turn], (const uint8_t *)reg->valid, 0, words, n);
        reg->valid = reg->nulls[turn];
    }
    reg->turn = turn;
}

/* In all registers that are made by now and read later: the values of 8 bytes together, then what is in bits. */
static void keep_rows(md_program *p, int32_t step, const uint64_t *words, int64_t n) {
    uint8_t *to[MD_PROGRAM_REGISTERS];
    const uint8_t *from[MD_PROGRAM_REGISTERS];
    bool adds[MD_PROGRAM_REGISTERS];
    int32_t count = 0;
    for (int32_t r = 0; r < p->n_regs; r++) {
        md_reg *reg = &p->regs[r];
        if (reg->first > step || reg->last <= step || reg->constant || r == p->skipped) continue;
        int32_t turn = free_turn(reg);
        if (reg->kind != MD_R_BOOL) {
            from[count] = reg->values;
            adds[count] = reg->adds;
            to[count++] = reg->room[turn];
            reg->values = reg->room[turn];
        }
        keep_bits(reg, turn, words, n);
    }
    if (count == 0) return;
    int64_t left = md_gather_columns(to, from, count, words, n, !p->baseline);
    for (int32_t i = 0; i < count; i++)
        if (adds[i]) md_program_clear(to[i], left);
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
    keep_rows(p, step, words, n);
    return left;
}

/* ---- the chunk ---- */

int64_t md_program_chunk(md_program *p, int64_t at, int64_t n, int64_t *kept) {
    md_step_run *run = p->baseline ? md_step_baseline : md_step_avx2;
    int32_t filters = 0;
    for (int32_t i = 0; i < p->n_steps && n > 0; i++) {
        const md_step *s = &p->steps[i];
        if (s->op == MD_P_CONST || (s->op == MD_P_COLUMN && s->dst == p->skipped)) continue;
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
