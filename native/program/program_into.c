/* Running a program whose outputs a window takes. */
#include "program/program_private.h"
#include "window/window_feed.h"

typedef struct job {
    md_program *p;
    md_window *w;
    const md_column *time; /* of the rows that came */
    int32_t time_reg;
    bool look;           /* the times have no null: a look at them may tell the pane */
    bool wanted;         /* a step, or an input of the window, reads the times */
    const int64_t *pane; /* a time in the pane of all rows, if that is known */
} job;

static md_rc check_outputs(const job *j, md_error *err) {
    const md_program *p = j->p;
    int32_t count = md_window_columns(j->w);
    if (p->n_outputs != count) return md_fail(err, MD_BADARG, "%d outputs, the window takes %d", p->n_outputs, count);
    for (int32_t i = 0; i < count; i++) {
        md_register kind = p->regs[p->outputs[i].reg].kind;
        md_type made = kind == MD_R_F64 ? MD_F64 : kind == MD_R_BOOL ? MD_BOOL : MD_I64;
        md_type wanted = md_window_column(j->w, i);
        if (made != wanted)
            return md_fail(err, MD_BADARG, "output %d is of type '%c', the window takes '%c'", i, (char)made, (char)wanted);
    }
    const md_step *s = &p->steps[p->regs[p->outputs[0].reg].first];
    if (s->op != MD_P_COLUMN || p->columns[s->a] != MD_I64)
        return md_fail(err, MD_BADARG, "output 0 is no column of times");
    return MD_OK;
}

/* Whether n rows from `at` on lie in one pane, that of *time then. The times themselves are left out when nobody
 * else reads them. */
static const int64_t *pane_of(job *j, int64_t at, int64_t n, int64_t *time) {
    const uint8_t *times = j->time->values + 8 * at;
    const int64_t *pane = j->pane;
    if (pane == NULL && j->look && md_window_one_pane(j->w, times, n)) {
        *time = md_load_i64(times);
        pane = time;
    }
    j->p->skipped = pane != NULL && !md_window_ordered(j->w) && !j->wanted ? j->time_reg : -1;
    return pane;
}

/* Chunk by chunk out of the registers. */
static md_rc feed(job *j, int64_t length, int64_t *kept, md_error *err) {
    md_program *p = j->p;
    md_column views[MD_PROGRAM_REGISTERS];
    md_rc rc = MD_OK;
    int64_t time;
    memset(kept, 0, sizeof *kept * (size_t)p->n_filters);
    memset(views, 0, sizeof *views * (size_t)p->n_outputs);
    for (int32_t i = 0; i < p->n_outputs; i++) views[i].type = md_window_column(j->w, i);
    md_window_feed_start(j->w);
    for (int64_t start = 0; rc == MD_OK && start < length; start += CHUNK) {
        int64_t n = length - start < CHUNK ? length - start : CHUNK;
        const int64_t *pane = pane_of(j, start, n, &time);
        n = md_program_chunk(p, start, n, kept);
        for (int32_t i = 0; i < p->n_outputs; i++) {
            const md_reg *reg = &p->regs[p->outputs[i].reg];
            views[i].length = n;
            views[i].values = reg->values;
            views[i].validity = (const uint8_t *)reg->valid;
        }
        if (n < 0) rc = md_fail(err, MD_EMPTY, "a row failed");
        else rc = md_window_feed(j->w, views, n, pane, err);
    }
    md_window_feed_end(j->w, rc == MD_OK);
    return rc;
}

/* By a block of all rows. */
static md_rc add_block(job *j, int64_t length, int64_t *kept, md_error *err) {
    md_program *p = j->p;
    md_sink sinks[MD_PROGRAM_REGISTERS];
    md_column views[MD_PROGRAM_REGISTERS];
    struct ArrowArray block;
    int64_t rows, time;
    const int64_t *pane = pane_of(j, 0, length, &time);
    md_rc rc = md_program_block(p, length, sinks, &rows, kept, &block, err);
    if (rc != MD_OK) return rc;
    for (int32_t i = 0; i < p->n_outputs; i++)
        views[i] = (md_column){.type = md_window_column(j->w, i), .length = rows, .values = sinks[i].values,
                               .validity = sinks[i].nulls != 0 ? sinks[i].validity : NULL};
    rc = md_window_add_views(j->w, views, rows, pane, err);
    md_array_release(&block);
    return rc;
}

md_rc md_program_into(md_program *p, const struct ArrowSchema *rows_schema, const struct ArrowArray *rows,
                      md_window *w, const int64_t *extent, int64_t *kept, md_error *err) {
    int64_t length = 0, counts[MD_PROGRAM_STEPS];
    job j = {.p = p, .w = w};
    md_rc rc = check_outputs(&j, err);
    if (rc == MD_OK) rc = md_program_view(p, rows_schema, rows, &length, err);
    if (rc != MD_OK) return rc;
    j.time_reg = p->outputs[0].reg;
    j.wanted = p->regs[j.time_reg].read;
    for (int32_t i = 1; i < p->n_outputs; i++) j.wanted |= p->outputs[i].reg == j.time_reg;
    j.time = &p->views[p->steps[p->regs[j.time_reg].first].a];
    j.look = j.time->validity == NULL || md_column_nulls(j.time) == 0;
    if (j.look && extent != NULL && md_window_one_pane_of(w, extent[0], extent[1])) j.pane = extent;
    if (!md_program_rooms_take(p, length)) return md_nomem(err);
    rc = md_window_feeds(w) ? feed(&j, length, counts, err) : add_block(&j, length, counts, err);
    md_program_rooms_give(p);
    if (rc == MD_OK) memcpy(kept, counts, sizeof *kept * (size_t)p->n_filters);
    return rc;
}
