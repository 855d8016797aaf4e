#include "program_private.h"

#include "gather.h"
#include "md_alloc.h"

/* ---- checks ---- */

static bool is_reg(int32_t r) { return r >= 0 && r < MD_PROGRAM_REGISTERS; }

/* How many registers an op reads. */
static int reads_of(int32_t op) {
    switch (op) {
    case MD_P_COLUMN:
    case MD_P_CONST: return 0;
    case MD_P_FLOAT:
    case MD_P_NEG:
    case MD_P_ABS:
    case MD_P_SQRT:
    case MD_P_NOT:
    case MD_P_IS_NULL:
    case MD_P_IS_NOT_NULL:
    case MD_P_IS_NAN:
    case MD_P_FILTER: return 1;
    case MD_P_IF: return 3;
    default: return 2;
    }
}

static md_register kind_of_column(md_type type) {
    return type == MD_F64 ? MD_R_F64 : type == MD_BOOL ? MD_R_BOOL : MD_R_I64;
}

/* Whether the operands of an op fit, and what it gives. */
static bool kinds_fit(const md_step *s, const md_reg *regs, md_register *out) {
    md_register a = regs[s->a].kind, b = regs[s->b].kind, c = regs[s->c].kind;
    *out = a;
    switch (s->op) {
    case MD_P_FLOAT: *out = MD_R_F64; return a == MD_R_I64;
    case MD_P_ADD:
    case MD_P_SUB:
    case MD_P_MUL:
    case MD_P_DIV: return a == b && a != MD_R_BOOL;
    case MD_P_MOD: return a == MD_R_I64 && b == MD_R_I64;
    case MD_P_NEG:
    case MD_P_ABS: return a != MD_R_BOOL;
    case MD_P_SQRT: return a == MD_R_F64;
    case MD_P_AND:
    case MD_P_OR: return a == MD_R_BOOL && b == MD_R_BOOL;
    case MD_P_NOT:
    case MD_P_FILTER: return a == MD_R_BOOL;
    case MD_P_IS_NULL:
    case MD_P_IS_NOT_NULL: *out = MD_R_BOOL; return true;
    case MD_P_IS_NAN: *out = MD_R_BOOL; return a == MD_R_F64;
    case MD_P_IF: *out = b; return a == MD_R_BOOL && b == c;
    default: *out = MD_R_BOOL; return a == b && (a != MD_R_BOOL || s->op == MD_P_EQ || s->op == MD_P_NE);
    }
}

static md_rc check_step(const md_program_config *config, int32_t i, md_reg *regs, bool *made, md_error *err) {
    const md_step *s = &config->steps[i];
    const int32_t operands[] = {s->a, s->b, s->c};
    if (s->op < 0 || s->op >= MD_P_OPS) return md_fail(err, MD_BADARG, "step %d: no operation %d", i, s->op);
    for (int k = 0; k < reads_of(s->op); k++) {
        if (!is_reg(operands[k]) || !made[operands[k]])
            return md_fail(err, MD_BADARG, "step %d reads register %d before it is written", i, operands[k]);
        regs[operands[k]].last = i;
        regs[operands[k]].read = true;
    }
    if (s->op != MD_P_FILTER && (!is_reg(s->dst) || made[s->dst]))
        return md_fail(err, MD_BADARG, "step %d: register %d is out of range or written twice", i, s->dst);
    md_register kind;
    if (s->op == MD_P_COLUMN) {
        if (s->a < 0 || s->a >= config->n_columns) return md_fail(err, MD_BADARG, "step %d: no column %d", i, s->a);
        kind = kind_of_column(config->columns[s->a]);
    } else if (s->op == MD_P_CONST) {
        if (s->a < 0 || s->a >= config->n_constants)
            return md_fail(err, MD_BADARG, "step %d: no constant %d", i, s->a);
        kind = config->constant_kinds[s->a];
        regs[s->dst].constant = true;
    } else {
        if (!is_reg(s->a) || !is_reg(s->b) || !is_reg(s->c) || !kinds_fit(s, regs, &kind))
            return md_fail(err, MD_BADARG, "step %d: operation %d doesn't take these registers", i, s->op);
        if (s->op == MD_P_FILTER) return MD_OK;
    }
    made[s->dst] = true;
    regs[s->dst].first = i;
    regs[s->dst].kind = kind;
    return MD_OK;
}

static md_rc check_outputs(const md_program_config *config, md_reg *regs, const bool *made, md_error *err) {
    for (int32_t i = 0; i < config->n_outputs; i++) {
        const md_output *o = &config->outputs[i];
        if (!is_reg(o->reg) || !made[o->reg]) return md_fail(err, MD_BADARG, "output %d: no register %d", i, o->reg);
        const char *f = o->format;
        md_register kind = strcmp(f, "g") == 0 ? MD_R_F64 : strcmp(f, "b") == 0 ? MD_R_BOOL : MD_R_I64;
        bool known = strchr("glb", f[0]) != NULL && f[0] != 0 && f[1] == 0;
        known = known || strncmp(f, "tsu:", 4) == 0 || strcmp(f, "tDu") == 0;
        if (!known || kind != regs[o->reg].kind)
            return md_fail(err, MD_BADARG, "output %d: a register of another kind than its format", i);
        regs[o->reg].last = INT32_MAX;
    }
    return MD_OK;
}

static md_rc check(const md_program_config *config, md_reg *regs, md_error *err) {
    bool made[MD_PROGRAM_REGISTERS] = {false};
    if (config->n_steps < 0 || config->n_steps > MD_PROGRAM_STEPS || config->n_columns < 0 ||
        config->n_columns > MD_PROGRAM_COLUMNS || config->n_constants < 0 || config->n_outputs < 0 ||
        config->n_outputs > MD_PROGRAM_REGISTERS)
        return md_fail(err, MD_BADARG, "a program of too many parts");
    for (int32_t i = 0; i < config->n_columns; i++)
        if (config->columns[i] == 0 || strchr("lgbi", (int)config->columns[i]) == NULL)
            return md_fail(err, MD_BADARG, "column %d: a type that programs don't take", i);
    for (int32_t i = 0; i < config->n_steps; i++) {
        md_rc rc = check_step(config, i, regs, made, err);
        if (rc != MD_OK) return rc;
    }
    return check_outputs(config, regs, made, err);
}

/* ---- making ---- */

static void fill_constant(md_reg *reg, int64_t bits, bool null) {
    uint64_t word = reg->kind == MD_R_BOOL ? (bits != 0 ? UINT64_MAX : 0) : (uint64_t)bits;
    size_t words = reg->kind == MD_R_BOOL ? WORDS : CHUNK;
    for (size_t i = 0; i < words; i++) memcpy(reg->room[0] + 8 * i, &word, 8);
    for (size_t w = 0; w < WORDS; w++) reg->nulls[0][w] = 0;
    reg->values = reg->room[0];
    reg->valid = null ? reg->nulls[0] : NULL;
}

enum { REG_BYTES = 2 * (CHUNK * 8 + MD_GATHER_PAD) + 2 * (WORDS + 1) * 8 };

/* Every register that is written gets its rooms; all of it was zeroed. */
static void give_rooms(md_program *p) {
    uint8_t *at = p->memory;
    for (int32_t i = 0; i < p->n_regs; i++, at += REG_BYTES) {
        for (int k = 0; k < 2; k++) {
            p->regs[i].room[k] = at + k * (CHUNK * 8 + MD_GATHER_PAD);
            p->regs[i].nulls[k] = (uint64_t *)(void *)(at + 2 * (CHUNK * 8 + MD_GATHER_PAD) + k * (WORDS + 1) * 8);
        }
        p->regs[i].values = p->regs[i].room[0];
    }
}

static bool copy_outputs(md_program *p, const md_program_config *config) {
    size_t bytes = 1;
    for (int32_t i = 0; i < config->n_outputs; i++)
        bytes += strlen(config->outputs[i].format) + strlen(config->outputs[i].name) + 2;
    p->texts = md_malloc(bytes);
    if (p->texts == NULL) return false;
    char *at = p->texts;
    for (int32_t i = 0; i < config->n_outputs; i++) {
        const char *from[] = {config->outputs[i].format, config->outputs[i].name};
        char *to[2];
        for (int k = 0; k < 2; k++) {
            size_t size = strlen(from[k]) + 1;
            memcpy(at, from[k], size);
            to[k] = at;
            at += size;
        }
        p->outputs[i] = (md_output){config->outputs[i].reg, to[0], to[1]};
    }
    return true;
}

static bool fill(md_program *p, const md_program_config *config) {
    p->steps = md_calloc((size_t)config->n_steps + 1, sizeof *p->steps);
    p->columns = md_calloc((size_t)config->n_columns + 1, sizeof *p->columns);
    p->views = md_calloc((size_t)config->n_columns + 1, sizeof *p->views);
    p->outputs = md_calloc((size_t)config->n_outputs + 1, sizeof *p->outputs);
    if (p->steps == NULL || p->columns == NULL || p->views == NULL || p->outputs == NULL) return false;
    p->n_steps = config->n_steps;
    p->n_columns = config->n_columns;
    p->n_outputs = config->n_outputs;
    for (int32_t i = 0; i < config->n_columns; i++) p->columns[i] = config->columns[i];
    for (int32_t i = 0; i < config->n_steps; i++) {
        p->steps[i] = config->steps[i];
        p->n_filters += config->steps[i].op == MD_P_FILTER;
        if (config->steps[i].op != MD_P_FILTER && config->steps[i].dst >= p->n_regs)
            p->n_regs = config->steps[i].dst + 1;
    }
    p->memory = md_calloc((size_t)p->n_regs + 1, REG_BYTES);
    return p->memory != NULL && copy_outputs(p, config);
}

md_rc md_program_new(const md_program_config *config, md_program **out, md_error *err) {
    md_program *p = md_calloc(1, sizeof *p);
    if (p == NULL) return md_nomem(err);
    p->regs = md_calloc(MD_PROGRAM_REGISTERS, sizeof *p->regs);
    md_rc rc = p->regs == NULL ? md_nomem(err) : check(config, p->regs, err);
    if (rc == MD_OK && !fill(p, config)) rc = md_nomem(err);
    if (rc != MD_OK) {
        md_program_free(p);
        return rc;
    }
    give_rooms(p);
    for (int32_t i = 0; i < p->n_steps; i++) {
        const md_step *s = &p->steps[i];
        if (s->op == MD_P_CONST) fill_constant(&p->regs[s->dst], config->constants[s->a], s->b != 0);
    }
    p->baseline = !md_program_has_avx2();
    p->skipped = -1;
    *out = p;
    return MD_OK;
}

void md_program_free(md_program *p) {
    if (p == NULL) return;
    md_free(p->steps);
    md_free(p->columns);
    md_free(p->views);
    md_free(p->outputs);
    md_free(p->texts);
    md_free(p->regs);
    md_free(p->memory);
    md_free(p);
}

int32_t md_program_filters(const md_program *p) { return p->n_filters; }

void md_program_baseline(md_program *p) { p->baseline = true; }
