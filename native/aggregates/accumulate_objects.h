/* The objects of a table: what accumulate.h promises about them. Not for others than its files. */
#ifndef MD_ACCUMULATE_OBJECTS_H
#define MD_ACCUMULATE_OBJECTS_H

#include "aggregates/accumulate.h"
#include "aggregates/blob.h"
#include "aggregates/sketch_kinds.h"

/* Text: whether v is to replace the value held (NULL: nothing held). Equal ones don't. */
bool md_text_wins(bool max, const md_blob *held, const uint8_t *bytes, size_t size);
/* A block made for a value to come holds nothing yet. */
bool md_text_holds(const md_blob *blob);
md_rc md_text_room(md_word *cell, size_t size);
const uint8_t *md_text_bytes(const md_blob *blob, size_t *size); /* of one that holds */
void md_text_set(md_word *cell, const uint8_t *bytes, size_t size); /* room was made */

/* A decimal as its 16 bytes, and back. */
__int128 md_decimal_of(const uint8_t *bytes);
void md_decimal_bytes(__int128 value, uint8_t bytes[16]);

/* Rows of text inputs, and of sketches over text. */
void md_accumulate_text(const md_plan *plan, md_table *table, const md_plan_input *in, const md_column *c,
                        const md_column *order, const int32_t *ids, const uint32_t *rows, int64_t start, int64_t n);

/* The objects of md_merge; `values`: with those of exact quantiles. Before the words, which still tell what
 * first and last hold. */
md_rc md_merge_objects(const md_plan *plan, md_table *out, const md_table *a, const md_table *b, md_merge_lists l,
                       bool values);

/* The words alone. */
void md_merge_words(const md_plan *plan, md_table *out, const int32_t *o, const md_table *a, const int32_t *i,
                    const md_table *b, const int32_t *j, int64_t n);
void md_copy_words(const md_plan *plan, md_table *out, const int32_t *o, const md_table *a, const int32_t *i,
                   int64_t n);

#endif
