/* One step on its registers: nulls, then values. Included after program_loops.h, under the same names. */

/* Rows that are there and not null in any of the operands; a null register is none of them. */
TARGET static uint64_t LOOPS(rows_of)(int64_t w, int64_t n, const md_reg *a, const md_reg *b) {
    int64_t left = n - w * WORD;
    uint64_t rows = left >= WORD ? UINT64_MAX : (UINT64_C(1) << left) - 1;
    if (a->valid != NULL) rows &= a->valid[w];
    if (b != NULL && b->valid != NULL) rows &= b->valid[w];
    return rows;
}

/* The result is null where an operand is. */
TARGET static void LOOPS(nulls_of)(md_reg *to, const md_reg *a, const md_reg *b, int64_t words) {
    to->valid = NULL;
    if (a->valid == NULL && (b == NULL || b->valid == NULL)) return;
    uint64_t *valid = to->nulls[to->turn];
    for (int64_t w = 0; w < words; w++) {
        valid[w] = a->valid != NULL ? a->valid[w] : UINT64_MAX;
        if (b != NULL && b->valid != NULL) valid[w] &= b->valid[w];
    }
    to->valid = valid;
}

/* Row by row where a whole word may not be computed: overflow, division by zero. */
TARGET static bool LOOPS(slowly_i)(int32_t op, md_reg *to, const md_reg *a, const md_reg *b, int64_t n) {
    const int64_t *x = VALUES_I(a), *y = b != NULL ? VALUES_I(b) : NULL;
    int64_t *out = ROOM_I(to);
    for (int64_t i = 0; i < n; i++) {
        if (!(LOOPS(rows_of)(i / WORD, n, a, b) >> (i % WORD) & 1)) {
            out[i] = 0;
            continue;
        }
        bool failed = false;
        switch (op) {
        case MD_P_ADD: failed = __builtin_add_overflow(x[i], y[i], &out[i]); break;
        case MD_P_SUB: failed = __builtin_sub_overflow(x[i], y[i], &out[i]); break;
        case MD_P_MUL: failed = __builtin_mul_overflow(x[i], y[i], &out[i]); break;
        case MD_P_DIV:
            failed = y[i] == 0 || (x[i] == INT64_MIN && y[i] == -1);
            if (!failed) out[i] = x[i] / y[i];
            break;
        case MD_P_MOD:
            failed = y[i] == 0;
            if (!failed) out[i] = y[i] == -1 ? 0 : x[i] % y[i];
            break;
        default: /* NEG and ABS */
            failed = x[i] == INT64_MIN;
            if (!failed) out[i] = op == MD_P_NEG || x[i] < 0 ? -x[i] : x[i];
            break;
        }
        if (failed) return false;
    }
    md_program_clear(to->room[to->turn], n);
    return true;
}

TARGET static bool LOOPS(arithmetic)(const md_step *step, md_reg *to, const md_reg *a, const md_reg *b, int64_t n) {
    int64_t words = (n + WORD - 1) / WORD;
    LOOPS(nulls_of)(to, a, b, words);
    to->values = to->room[to->turn];
    if (a->kind == MD_R_F64) {
        const double *x = VALUES_F(a);
        if (step->op == MD_P_SQRT)
            for (int64_t i = 0; i < n; i++)
                if (x[i] < 0 && (LOOPS(rows_of)(i / WORD, n, a, b) >> (i % WORD) & 1)) return false;
        LOOPS(arithmetic_f)(step->op, ROOM_F(to), a, b != NULL ? b : a, words);
        return true;
    }
    if (step->op == MD_P_FLOAT) {
        LOOPS(to_float)(ROOM_F(to), VALUES_I(a), words);
        return true;
    }
    /* Whole words first: rows under nulls and beyond the end may wrap, then it is done row by row. */
    uint64_t wrapped = UINT64_MAX;
    if (step->op == MD_P_ADD) wrapped = LOOPS(add_i)(ROOM_I(to), VALUES_I(a), VALUES_I(b), words);
    if (step->op == MD_P_SUB) wrapped = LOOPS(sub_i)(ROOM_I(to), VALUES_I(a), VALUES_I(b), words);
    if (step->op == MD_P_MUL && LOOPS(mul_i)(ROOM_I(to), VALUES_I(a), VALUES_I(b), n)) return true;
    return (int64_t)wrapped >= 0 || LOOPS(slowly_i)(step->op, to, a, b, n);
}

TARGET static void LOOPS(compare)(const md_step *step, md_reg *to, const md_reg *a, const md_reg *b, int64_t n) {
    int64_t words = (n + WORD - 1) / WORD;
    LOOPS(nulls_of)(to, a, b, words);
    to->values = to->room[to->turn];
    if (a->kind == MD_R_F64) {
        LOOPS(compare_f)(step->op, a, b, ROOM_B(to), words);
    } else if (a->kind == MD_R_I64) {
        LOOPS(compare_i)(step->op, a, b, ROOM_B(to), words);
    } else {
        for (int64_t w = 0; w < words; w++) {
            uint64_t differ = VALUES_B(a)[w] ^ VALUES_B(b)[w];
            ROOM_B(to)[w] = step->op == MD_P_EQ ? ~differ : differ;
        }
    }
}

/* AND, OR: decided by one side that is false or true, whatever the other is. */
TARGET static void LOOPS(logic)(const md_step *step, md_reg *to, const md_reg *a, const md_reg *b, int64_t n) {
    int64_t words = (n + WORD - 1) / WORD;
    bool nulls = a->valid != NULL || b->valid != NULL;
    uint64_t *out = ROOM_B(to), *valid = to->nulls[to->turn];
    uint64_t flip = step->op == MD_P_AND ? 0 : UINT64_MAX;
    for (int64_t w = 0; w < words; w++) {
        uint64_t x = VALUES_B(a)[w] ^ flip, y = VALUES_B(b)[w] ^ flip;
        if (nulls) {
            uint64_t known_x = a->valid != NULL ? a->valid[w] : UINT64_MAX;
            uint64_t known_y = b->valid != NULL ? b->valid[w] : UINT64_MAX;
            valid[w] = (known_x & known_y) | (known_x & ~x) | (known_y & ~y);
            x |= ~known_x;
            y |= ~known_y;
        }
        out[w] = (x & y) ^ flip;
    }
    to->values = to->room[to->turn];
    to->valid = nulls ? valid : NULL;
}

TARGET static void LOOPS(about)(const md_step *step, md_reg *to, const md_reg *a, int64_t n) {
    int64_t words = (n + WORD - 1) / WORD;
    uint64_t *out = ROOM_B(to);
    to->valid = NULL;
    for (int64_t w = 0; w < words; w++) {
        uint64_t known = a->valid != NULL ? a->valid[w] : UINT64_MAX;
        switch (step->op) {
        case MD_P_IS_NULL: out[w] = ~known; break;
        case MD_P_IS_NOT_NULL: out[w] = known; break;
        case MD_P_NOT: out[w] = ~VALUES_B(a)[w]; break;
        default: out[w] = LOOPS(unordered_f)(VALUES_F(a) + w * WORD, VALUES_F(a) + w * WORD); break;
        }
    }
    if (step->op == MD_P_NOT || step->op == MD_P_IS_NAN) LOOPS(nulls_of)(to, a, NULL, words);
    to->values = to->room[to->turn];
}

TARGET static void LOOPS(choose)(md_reg *to, const md_reg *a, const md_reg *b, const md_reg *c, int64_t n) {
    int64_t words = (n + WORD - 1) / WORD;
    bool nulls = b->valid != NULL || c->valid != NULL;
    uint64_t *valid = to->nulls[to->turn];
    for (int64_t w = 0; w < words; w++) {
        uint64_t yes = VALUES_B(a)[w] & (a->valid != NULL ? a->valid[w] : UINT64_MAX);
        uint64_t known_b = b->valid != NULL ? b->valid[w] : UINT64_MAX;
        uint64_t known_c = c->valid != NULL ? c->valid[w] : UINT64_MAX;
        valid[w] = (yes & known_b) | (~yes & known_c);
        if (to->kind == MD_R_BOOL) {
            ROOM_B(to)[w] = (yes & VALUES_B(b)[w]) | (~yes & VALUES_B(c)[w]);
            continue;
        }
        const int64_t *x = VALUES_I(b) + w * WORD, *y = VALUES_I(c) + w * WORD;
        int64_t *out = ROOM_I(to) + w * WORD;
        for (int i = 0; i < WORD; i++) {
            int64_t mask = -(int64_t)(yes >> i & 1);
            out[i] = (x[i] & mask) | (y[i] & ~mask);
        }
    }
    to->values = to->room[to->turn];
    to->valid = nulls ? valid : NULL;
}

TARGET bool LOOPS(md_step)(md_reg *regs, const md_step *step, int64_t n) {
    md_reg *to = &regs[step->dst];
    const md_reg *a = &regs[step->a], *b = &regs[step->b], *c = &regs[step->c];
    switch (step->op) {
    case MD_P_ADD:
    case MD_P_SUB:
    case MD_P_MUL:
    case MD_P_DIV:
    case MD_P_MOD: return LOOPS(arithmetic)(step, to, a, b, n);
    case MD_P_FLOAT:
    case MD_P_NEG:
    case MD_P_ABS:
    case MD_P_SQRT: return LOOPS(arithmetic)(step, to, a, NULL, n);
    case MD_P_AND:
    case MD_P_OR: LOOPS(logic)(step, to, a, b, n); return true;
    case MD_P_NOT:
    case MD_P_IS_NULL:
    case MD_P_IS_NOT_NULL:
    case MD_P_IS_NAN: LOOPS(about)(step, to, a, n); return true;
    case MD_P_IF: LOOPS(choose)(to, a, b, c, n); return true;
    default: LOOPS(compare)(step, to, a, b, n); return true;
    }
}
