/* A window that takes rows out of registers, some at a time, as one addition.
 *
 *   start -> feed -> feed -> ... -> end     end(false): as before start, whatever was fed
 *
 * What a group held before is kept beside it, which is cheap while a pane has one group: so without keys,
 * and without what is no word (sets of distinct values, sketches, texts). */
#ifndef MD_WINDOW_FEED_H
#define MD_WINDOW_FEED_H

#include "arrow/column.h"
#include "window/window.h"

/* Whether it takes rows like this. */
bool md_window_feeds(const md_window *w);

/* No other call to the window between start and end. */
void md_window_feed_start(md_window *w);

/* Add n <= MD_CHUNK rows, as md_window_add does: views are of the times and the inputs, of the types that the window
 * has. `time` not NULL: all rows lie in its pane, and no time is below the window's boundary or out of range;
 * then views[0] is read only if md_window_ordered. MD_BADARG (a time), MD_NOMEM: nothing follows but end(false). */
md_rc md_window_feed(md_window *w, const md_column *views, int64_t n, const int64_t *time, md_error *err);
void md_window_feed_end(md_window *w, bool keep);

/* The same in one call, for every window but of stage combine and for any number of rows; views with the keys. */
md_rc md_window_add_views(md_window *w, const md_column *views, int64_t n, const int64_t *time, md_error *err);

/* The times are read though the pane is known: first, last. */
bool md_window_ordered(const md_window *w);

/* Number of columns: the times, keys, inputs (-1: a window of states); the type of each. */
int32_t md_window_columns(const md_window *w);
md_type md_window_column(const md_window *w, int32_t column);

/* Whether n times lie in one pane, and none below the boundary or out of range. */
bool md_window_one_pane(const md_window *w, const uint8_t *times, int64_t n);
bool md_window_one_pane_of(const md_window *w, int64_t least, int64_t largest);

#endif
