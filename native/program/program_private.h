/* What the parts of program.h share. */
#ifndef MD_PROGRAM_PRIVATE_H
#define MD_PROGRAM_PRIVATE_H

#include "program/program.h"

enum {
    CHUNK = 1024, /* rows: a register is 8 KiB, half of it after a filter, so that what is live fits the first cache */
    WORD = 64,
    WORDS = CHUNK / WORD,
    AHEAD = 512, /* rows that a compare, which mostly comes first, fetches into the cache beforehand */
};

/* A register during a chunk. values points to 8-byte values (I64, F64) or words of bits (BOOL); they may be
 * the column's own memory. valid NULL: no nulls. Bits and values at and beyond n are arbitrary, but there. */
typedef struct md_reg {
    const uint8_t *values;
    const uint64_t *valid;
    uint8_t *room[2];   /* for values made here, and zeros up to a whole word; FILTER goes from one to the other */
    uint64_t *nulls[2]; /* WORDS each */
    int32_t turn;       /* which of the two values and valid are in */
    md_register kind;
    int32_t first; /* the step that makes it */
    int32_t last;  /* the last step that reads it; INT32_MAX: an output */
    bool read;     /* by a step */
    bool constant; /* the same in every chunk */
    bool wide;     /* a constant that somebody reads row by row; else one word of rows stands for all */
    bool adds;     /* an I64 of a sum: rows beyond the last one must not overflow */
    bool null;     /* a constant's */
    int64_t bits;
} md_reg;

struct md_program {
    md_step *steps;
    int32_t n_steps, n_columns, n_outputs, n_filters, n_regs;
    md_type *columns;
    md_output *outputs; /* format and name are copies in `texts` */
    char *texts;
    md_reg *regs;
    struct md_rooms *rooms; /* of all registers, during a run */
    const struct md_rooms *stood; /* where they were in the last run */
    uint64_t id;
    size_t text_bytes, room_bytes;
    md_column *views;
    bool baseline;
    int32_t skipped; /* a register that this run does without; -1: none */
};

/* One step other than COLUMN, CONST, FILTER on n rows; false: a row failed. */
typedef bool md_step_run(md_reg *regs, const md_step *step, int64_t n);
md_step_run md_step_baseline;
md_step_run md_step_avx2;
bool md_program_has_avx2(void);

/* Where the rows of one output gather, in the block of all of them. */
typedef struct md_sink {
    uint8_t *values, *validity;
    int64_t nulls;
    bool bools;
} md_sink;

/* program_rooms.c: memory of registers. It belongs to a run and not to a program, so that as many programs as run at
 * once need it: a query of a thousand filters has a thousand programs. It stays for the next run while there is a
 * program. */
uint64_t md_program_rooms_open(void); /* one program more: its number, which no other ever has */
void md_program_rooms_close(void);    /* one less */
size_t md_program_rooms_bytes(const md_program *p);
/* Before and after a run of at most so many rows; what comes out of the registers is read before the end. */
bool md_program_rooms_take(md_program *p, int64_t rows);
void md_program_rooms_give(md_program *p);

/* Rows of 8 bytes beyond n up to a whole word are zero, so that what they hold never overflows. */
static inline void md_program_clear(uint8_t *values, int64_t n) {
    if (n % WORD != 0) memset(values + 8 * n, 0, 8 * (size_t)(WORD - n % WORD));
}

/* program_chunk.c: one chunk of n rows from `at` on; kept[i] grows by the rows behind filter i. Returns the rows
 * left; -1: a row failed. */
int64_t md_program_chunk(md_program *p, int64_t at, int64_t n, int64_t *kept);
/* program_run.c: the columns of the rows in p->views. */
md_rc md_program_view(md_program *p, const struct ArrowSchema *schema, const struct ArrowArray *rows, int64_t *length,
                      md_error *err);
/* Run over the views: a block of the outputs but the skipped one, *rows of them; the sinks say where. The arrays of the
 * block aren't filled in. */
md_rc md_program_block(md_program *p, int64_t length, md_sink *sinks, int64_t *rows, int64_t *kept,
                       struct ArrowArray *block, md_error *err);

#endif
