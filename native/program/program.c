#include "program/program_private.h"

#include "base/md_alloc.h"

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

/* Whether an operation reads a constant of 8 bytes a row as one word of rows, again and again: STRIDE. */
static bool reads_word(const md_step *s, const md_reg *regs) {
    if (s->op >= MD_P_EQ && s->op <= MD_P_GE) return regs[s->a].kind != MD_R_BOOL;
    bool arithmetic = s->op >= MD_P_ADD && s->op <= MD_P_ABS && s->op != MD_P_MOD;
    return arithmetic && regs[s->a].kind == MD_R_F64;
}

/* What registers need, and where those of a chunk lie: only as much as is read is made for each. */
static void measure(md_program *p, const md_program_config *config) {
    for (int32_t i = 0; i < p->n_steps; i++) {
        const md_step *s = &p->steps[i];
        const int32_t operands[] = {s->a, s->b, s->c};
        for (int k = 0; k < reads_of(s->op); k++) {
            md_reg *reg = &p->regs[operands[k]];
            reg->wide |= !reads_word(s, p->regs);
            reg->adds |= (s->op == MD_P_ADD || s->op == MD_P_SUB) && reg->kind == MD_R_I64;
        }
        if (s->op != MD_P_CONST) continue;
        p->regs[s->dst].bits = config->constants[s->a];
        p->regs[s->dst].null = s->b != 0;
    }
    for (int32_t i = 0; i < p->n_outputs; i++) p->regs[p->outputs[i].reg].wide = true;
}

static bool copy_outputs(md_program *p, const md_program_config *config) {
    size_t bytes = 1;
    for (int32_t i = 0; i < config->n_outputs; i++)
        bytes += strlen(config->outputs[i].format) + strlen(config->outputs[i].name) + 2;
    p->text_bytes = bytes;
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

static bool fill(md_program *p, const md_program_config *config, const md_reg *regs) {
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
    p->regs = md_calloc((size_t)p->n_regs + 1, sizeof *p->regs);
    if (p->regs == NULL || !copy_outputs(p, config)) return false;
    memcpy(p->regs, regs, (size_t)p->n_regs * sizeof *p->regs);
    measure(p, config);
    p->room_bytes = md_program_rooms_bytes(p);
    return true;
}

md_rc md_program_new(const md_program_config *config, md_program **out, md_error *err) {
    md_reg regs[MD_PROGRAM_REGISTERS];
    memset(regs, 0, sizeof regs);
    md_rc rc = check(config, regs, err);
    if (rc != MD_OK) return rc;
    md_program *p = md_calloc(1, sizeof *p);
    if (p == NULL) return md_nomem(err);
    p->id = md_program_rooms_open();
    if (!fill(p, config, regs)) {
        md_program_free(p);
        return md_nomem(err);
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
    md_free(p);
    md_program_rooms_close();
}

size_t md_program_bytes(const md_program *p) {
    size_t columns = (size_t)p->n_columns + 1, outputs = (size_t)p->n_outputs + 1;
    size_t bytes = sizeof *p + ((size_t)p->n_steps + 1) * sizeof *p->steps;
    bytes += columns * (sizeof *p->columns + sizeof *p->views) + outputs * sizeof *p->outputs + p->text_bytes;
    return bytes + ((size_t)p->n_regs + 1) * sizeof *p->regs;
}

int32_t md_program_filters(const md_program *p) { return p->n_filters; }

void md_program_baseline(md_program *p) { p->baseline = true; }
