/* Expressions and filters over rows in one pass: a straight-line program on registers, run for a few
 * hundred rows at a time so that everything between its first and its last step stays in the cache.
 *
 *   columns -> [ step | step | FILTER | step | ... ] -> outputs (Arrow, one struct array)
 *
 *   register   I64 or F64: one value a row, 8 bytes; BOOL: one bit a row; each with a bitmap of nulls or none
 *   FILTER     keeps the rows where a bool is true (not false, not null) in every register still read later
 *
 * Null is SQL's; NaN is equal to itself and greatest. A row on which a step fails (integer overflow, division
 * of an integer by zero, the root of a negative number) makes the whole run give up: the caller computes
 * these rows another way, which says which row failed and why.
 *
 * Compiled twice, for baseline x86-64 and for AVX2; which one runs is found out at run time. One thread at a
 * time; the memory of registers is shared by all programs, and belongs to whichever runs. */
#ifndef MD_PROGRAM_H
#define MD_PROGRAM_H

#include "arrow/arrow_abi.h"
#include "arrow/column.h"
#include "base/md_base.h"
#include "window/window.h"

enum {
    MD_PROGRAM_REGISTERS = 256,
    MD_PROGRAM_STEPS = 4096,
    MD_PROGRAM_COLUMNS = 256,
};

/* The kinds of registers. */
typedef enum { MD_R_I64, MD_R_F64, MD_R_BOOL } md_register;

typedef enum {
    MD_P_COLUMN = 0, /* dst <- column number a; l, i and b as I64, I64, BOOL; g as F64 */
    MD_P_CONST,      /* dst <- constant number a; b: 1 if it is null */
    MD_P_FLOAT,      /* dst <- a (I64) rounded to F64 */
    MD_P_ADD,        /* I64 or F64, as SUB, MUL, NEG, ABS */
    MD_P_SUB,
    MD_P_MUL,
    MD_P_DIV, /* of I64 the quotient towards zero */
    MD_P_MOD, /* of I64 the remainder with the sign of a */
    MD_P_NEG,
    MD_P_ABS,
    MD_P_SQRT, /* F64 */
    MD_P_EQ,   /* of two I64, F64 or BOOL (EQ and NE only), as all comparisons */
    MD_P_NE,
    MD_P_LT,
    MD_P_LE,
    MD_P_GT,
    MD_P_GE,
    MD_P_AND,
    MD_P_OR,
    MD_P_NOT,
    MD_P_IS_NULL,
    MD_P_IS_NOT_NULL,
    MD_P_IS_NAN,
    MD_P_IF,     /* dst <- a (BOOL) is true ? b : c, of one kind */
    MD_P_FILTER, /* keep the rows where a is true */
    MD_P_OPS,
} md_op;

typedef struct md_step {
    int32_t op, dst, a, b, c; /* what an op doesn't name is 0; FILTER has no dst */
} md_step;

typedef struct md_output {
    int32_t reg;
    const char *format; /* Arrow's: l or tsu:... or tDu of I64, g of F64, b of BOOL */
    const char *name;
} md_output;

typedef struct md_program_config {
    const md_step *steps;
    int32_t n_steps;
    const md_type *columns; /* l i g b: what the columns of a run are */
    int32_t n_columns;
    const int64_t *constants; /* the bits of I64 and F64; of BOOL 0 or 1 */
    const md_register *constant_kinds;
    int32_t n_constants;
    const md_output *outputs;
    int32_t n_outputs;
} md_program_config;

typedef struct md_program md_program;

/* Check and keep a program; nothing of the config is needed afterwards. On MD_OK *out is the caller's, ended
 * by md_program_free. MD_BADARG: a register written twice or read before, kinds that don't fit, numbers out
 * of range. */
md_rc md_program_new(const md_program_config *config, md_program **out, md_error *err);
void md_program_free(md_program *p);

int32_t md_program_filters(const md_program *p);

/* Bytes that it holds while it doesn't run. */
size_t md_program_bytes(const md_program *p);

/* Run over the rows of a struct array (only borrowed) whose columns are those of the program.
 * MD_OK: *schema and *array are a struct array of the outputs, the caller's, and kept[i] is the number of rows
 * behind the i-th FILTER. MD_EMPTY: a row failed; MD_BADARG, MD_NOMEM: then the outputs are untouched. */
md_rc md_program_run(md_program *p, const struct ArrowSchema *rows_schema, const struct ArrowArray *rows,
                     struct ArrowSchema *schema, struct ArrowArray *array, int64_t *kept, md_error *err);

/* Run over the rows and add the outputs to a window, as md_program_run and md_window_add together do: the outputs are
 * the times, which are a column as it came, and the window's keys and inputs. Where rows lie in one pane their
 * times are neither kept nor looked at again, and a window without keys takes chunks out of the registers.
 * `extent` may be NULL, or the least and largest of the times of these rows. MD_OK: kept as above; MD_EMPTY: a row
 * failed; MD_BADARG (also outputs of other types than the window's, a time below its boundary), MD_NOMEM: then the
 * window is as it was. */
md_rc md_program_into(md_program *p, const struct ArrowSchema *rows_schema, const struct ArrowArray *rows,
                      md_window *w, const int64_t *extent, int64_t *kept, md_error *err);

/* For tests: without AVX2 even where the machine has it. */
void md_program_baseline(md_program *p);

#endif
