/* Memory of the registers of programs that run. */
#include <stdatomic.h>

#include "arrow/gather.h"
#include "base/md_alloc.h"
#include "program/program_private.h"

enum {
    SPARES = 8, /* blocks kept for later runs: as many as run at once, mostly one for each thread */
    OWN_BYTES = 256 << 10, /* a program that needs at most so much gets a block of its own, while there are fewer */
    ROUND = 16,
    NULL_BYTES = ((WORDS + 1) * 8 + ROUND - 1) / ROUND * ROUND,
    BOOL_BYTES = NULL_BYTES + MD_GATHER_PAD,
};

/* What follows stands at a multiple of 16. */
typedef struct md_rooms {
    size_t bytes;
    uint64_t program; /* whose registers stand in it, with their constants for so many rows */
    int64_t rows;
    int64_t unused;
} md_rooms;

static _Atomic(md_rooms *) spares[SPARES];
static _Atomic uint64_t last_of[SPARES]; /* the program that gave the spare: a hint, read before the spare is ours */
static _Atomic long programs;
static _Atomic int blocks;
static _Atomic uint64_t ids;

uint64_t md_program_rooms_open(void) {
    atomic_fetch_add(&programs, 1);
    return atomic_fetch_add(&ids, 1) + 1;
}

static void let_go(md_rooms *rooms) {
    if (rooms == NULL) return;
    md_free(rooms);
    atomic_fetch_sub(&blocks, 1);
}

/* Without a program nothing runs, and nobody gives a block back later. */
void md_program_rooms_close(void) {
    if (atomic_fetch_sub(&programs, 1) != 1) return;
    for (int i = 0; i < SPARES; i++) let_go(atomic_exchange(&spares[i], NULL));
}

/* A block that this program gave, or any; NULL: none. */
static md_rooms *spare(uint64_t program, bool any) {
    for (int i = 0; i < SPARES; i++) {
        if (!any && atomic_load_explicit(&last_of[i], memory_order_relaxed) != program) continue;
        if (atomic_load_explicit(&spares[i], memory_order_relaxed) == NULL) continue;
        md_rooms *found = atomic_exchange(&spares[i], NULL);
        if (found != NULL) return found;
    }
    return NULL;
}

/* A block with room enough; NULL: no memory. */
static md_rooms *block_for(const md_program *p) {
    md_rooms *rooms = spare(p->id, false);
    if (rooms == NULL && (p->room_bytes > OWN_BYTES || atomic_load(&blocks) >= SPARES)) rooms = spare(p->id, true);
    if (rooms != NULL && rooms->bytes >= p->room_bytes) return rooms;
    let_go(rooms);
    /* Zeroed: what lies beyond the last row may be read, never used. */
    rooms = md_calloc(1, sizeof *rooms + p->room_bytes);
    if (rooms == NULL) return NULL;
    rooms->bytes = p->room_bytes;
    atomic_fetch_add(&blocks, 1);
    return rooms;
}

/* Bytes of one room of values. */
static size_t values_of(const md_reg *reg) {
    if (reg->kind == MD_R_BOOL) return BOOL_BYTES;
    return (reg->constant && !reg->wide ? (size_t)WORD : (size_t)CHUNK) * 8 + MD_GATHER_PAD;
}

/* A filter moves what a chunk made from one room to the other. */
static int rooms_of(const md_program *p, const md_reg *reg) { return reg->constant || p->n_filters == 0 ? 1 : 2; }

size_t md_program_rooms_bytes(const md_program *p) {
    size_t bytes = 0;
    for (int32_t i = 0; i < p->n_regs; i++)
        bytes += (size_t)rooms_of(p, &p->regs[i]) * (values_of(&p->regs[i]) + NULL_BYTES);
    return bytes;
}

static void fill_constant(md_reg *reg, int64_t rows) {
    uint64_t word = reg->kind == MD_R_BOOL ? (reg->bits != 0 ? UINT64_MAX : 0) : (uint64_t)reg->bits;
    int64_t chunk = (rows + WORD - 1) / WORD * WORD;
    int64_t words = reg->kind == MD_R_BOOL ? WORDS : reg->wide ? chunk : WORD;
    uint64_t *to = (uint64_t *)(void *)reg->room[0];
    for (int64_t i = 0; i < words; i++) to[i] = word;
    if (reg->null) memset(reg->nulls[0], 0, WORDS * 8);
    reg->values = reg->room[0];
    reg->valid = reg->null ? reg->nulls[0] : NULL;
}

bool md_program_rooms_take(md_program *p, int64_t rows) {
    md_rooms *rooms = block_for(p);
    if (rooms == NULL) return false;
    if (rows > CHUNK) rows = CHUNK;
    /* It may stand elsewhere, where it was given back and made anew. */
    bool ours = rooms->program == p->id && p->stood == rooms, filled = ours && rooms->rows >= rows;
    uint8_t *at = (uint8_t *)(rooms + 1);
    for (int32_t i = 0; i < p->n_regs; i++) {
        md_reg *reg = &p->regs[i];
        size_t bytes = ours ? 0 : values_of(reg);
        for (int k = 0; !ours && k < rooms_of(p, reg); k++, at += bytes + NULL_BYTES) {
            reg->room[k] = at;
            reg->nulls[k] = (uint64_t *)(void *)(at + bytes);
        }
        if (!reg->constant) reg->values = reg->room[0];
        else if (!filled) fill_constant(reg, rows);
    }
    if (!filled) rooms->rows = rows;
    rooms->program = p->id;
    p->rooms = rooms;
    p->stood = rooms;
    return true;
}

void md_program_rooms_give(md_program *p) {
    md_rooms *rooms = p->rooms;
    p->rooms = NULL;
    for (int i = 0; i < SPARES; i++) {
        md_rooms *none = NULL;
        if (!atomic_compare_exchange_strong(&spares[i], &none, rooms)) continue;
        atomic_store_explicit(&last_of[i], p->id, memory_order_relaxed);
        return;
    }
    let_go(rooms);
}
