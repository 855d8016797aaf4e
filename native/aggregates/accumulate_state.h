/* The state columns of a table: plan->state, out as columns of rows and back in.
 *
 * Out: md_state_define, then md_state_put for groups of a table (columns with `column` -1, the distinct sets, are
 * skipped: sketch.h packs those). In: md_state_read checks rows and lays their words into a table of incoming
 * groups; md_state_room and md_state_merge take the objects from the same columns, and md_merge_words or
 * md_copy_words (accumulate_objects.h) the words. Nothing that is read is trusted. */
#ifndef MD_ACCUMULATE_STATE_H
#define MD_ACCUMULATE_STATE_H

#include "aggregates/accumulate.h"
#include "arrow/rows.h"

/* Names a0.n, a0.sum ... of the columns from `column` on. */
void md_state_define(const md_plan *plan, md_rows *rows, int32_t column);

/* Fill rows [length, length + n) of column + i, for each state column i, with the groups order[k] (NULL: k). words
 * and valid have room for n. */
md_rc md_state_put(const md_plan *plan, const md_table *table, md_rows *rows, int32_t column, const int32_t *order,
                   int64_t n, md_word *words, uint8_t *valid);

/* Words of rows [start, start + n), n <= MD_CHUNK, of the state columns into groups 0 .. n-1 of `incoming` (a table
 * of the plan); the bytes of objects are checked. MD_BADDATA: can't have come from md_state_put. */
md_rc md_state_read(const md_plan *plan, md_table *incoming, const md_column *state, int64_t start, int64_t n,
                    md_error *err);

/* Room in the table for the objects of rows [start, start + n), of the groups ids[k]; then merging them, which
 * can't fail and comes before that of the words. */
md_rc md_state_room(const md_plan *plan, md_table *table, const int32_t *ids, const md_column *state, int64_t start,
                    int64_t n);
void md_state_merge(const md_plan *plan, md_table *table, const int32_t *ids, const md_column *state, int64_t start,
                    int64_t n);

#endif
