# What native/window/window.h and native/state/state.h declare.

cdef extern from "window/window.h" nogil:
    ctypedef enum md_stage:
        MD_WHOLE
        MD_PARTIAL
        MD_COMBINE

    ctypedef struct md_window_config:
        int64_t size_us
        int64_t advance_us
        const md_type *keys
        int32_t n_keys
        const md_type *inputs
        int32_t n_inputs
        const md_aggregate *aggregates
        int32_t n_aggregates
        md_stage stage
        bint positions
        uint64_t seed

    ctypedef struct md_window:
        pass

    md_rc md_window_new(const md_window_config *config, md_window **out, md_error *err)
    void md_window_free(md_window *w)
    md_rc md_window_add(md_window *w, const ArrowSchema *schema, const ArrowArray *array, md_error *err)
    md_rc md_window_add_part(md_window *w, const ArrowSchema *schema, const ArrowArray *array, const md_split *split,
                             int32_t part, md_error *err)
    md_rc md_window_add_at(md_window *w, const ArrowSchema *schema, const ArrowArray *array, const md_column *positions,
                           int64_t taken, md_error *err)
    md_rc md_window_spread(md_window *w, const ArrowSchema *schema, const ArrowArray *array, int32_t n_slots,
                          int64_t *largest, md_error *err)
    void md_window_spread_map(md_window *w, int32_t place)
    bint md_window_spread_mapped(const md_window *w)
    void md_window_spread_fill(md_window *w, int32_t place)
    md_rc md_window_spread_end(md_window *w, md_error *err)
    md_rc md_window_close(md_window *w, int64_t boundary_us, md_error *err)
    md_rc md_window_early(md_window *w, md_error *err)
    md_rc md_window_take(md_window *w, ArrowSchema *schema, ArrowArray *array)
    md_rc md_window_failed(md_window *w, ArrowSchema *schema, ArrowArray *array)
    int64_t md_window_next_end(const md_window *w)
    bint md_window_oldest_open(const md_window *w, int64_t *start)
    int64_t md_window_groups_open(const md_window *w)
    int64_t md_window_rows_open(const md_window *w)
    int64_t md_window_taken(const md_window *w)
    int64_t md_window_boundary(const md_window *w)
    size_t md_window_nbytes(const md_window *w)
    void md_window_trim(md_window *w)


cdef extern from "state/state.h" nogil:
    md_rc md_window_state(md_window *w, ArrowSchema *schema, ArrowArray *array, md_error *err)
    md_rc md_window_load(md_window *w, const ArrowSchema *schema, const ArrowArray *array, int64_t boundary,
                         int64_t taken, md_error *err)
