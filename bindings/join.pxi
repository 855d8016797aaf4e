# Joins by key and time: native/join/join.h. Included after window.pxi, which declares md_type.

cdef extern from "<stdbool.h>" nogil:
    ctypedef bint c_bool "bool"


cdef extern from "join/join.h" nogil:
    ctypedef enum md_join_how:
        MD_JOIN_INNER
        MD_JOIN_LEFT
        MD_JOIN_RIGHT
        MD_JOIN_FULL
        MD_JOIN_SEMI
        MD_JOIN_ANTI
        MD_JOIN_ASOF
        MD_JOIN_ASOF_LEFT

    ctypedef struct md_join_config:
        const md_type *keys
        int32_t n_keys
        md_join_how how
        int64_t within_us
        bint judged
        int64_t keys_spare
        uint64_t seed

    ctypedef struct md_join:
        pass

    md_rc md_join_new(const md_join_config *config, md_join **out, md_error *err)
    void md_join_free(md_join *j)
    md_rc md_join_add(md_join *j, int side, const ArrowSchema *schema, const ArrowArray *array, int64_t first,
                      const int64_t *numbers, md_error *err)
    md_rc md_join_advance(md_join *j, int64_t boundary, md_error *err)
    md_rc md_join_step(md_join *j, int64_t pairs_max, c_bool *more, md_error *err)
    md_rc md_join_pairs(md_join *j, ArrowSchema *schema, ArrowArray *array, md_error *err)
    md_rc md_join_judge(md_join *j, const ArrowSchema *schema, const ArrowArray *mask, md_error *err)
    md_rc md_join_results(md_join *j, ArrowSchema *schema, ArrowArray *array, md_error *err)
    md_rc md_join_rows(const md_join *j, int side, ArrowSchema *schema, ArrowArray *array, md_error *err)
    md_rc md_join_track(md_join *j, int side)
    md_rc md_join_items(md_join *j, int side, md_items **out, md_error *err)
    md_rc md_join_renumber(md_join *j, int side, const int64_t *numbers, int64_t n, md_error *err)
    int64_t md_join_span(const md_join *j, int side)
    md_rc md_join_resume(md_join *j, int64_t boundary, md_error *err)
    int64_t md_join_held(const md_join *j, int side)
    int64_t md_join_waiting(const md_join *j, int side)
    size_t md_join_nbytes(const md_join *j)


cdef dict _HOWS = {
    "inner": MD_JOIN_INNER, "left": MD_JOIN_LEFT, "right": MD_JOIN_RIGHT, "full": MD_JOIN_FULL,
    "semi": MD_JOIN_SEMI, "anti": MD_JOIN_ANTI, "asof": MD_JOIN_ASOF, "asof_left": MD_JOIN_ASOF_LEFT,
}


cdef int _side(int side) except -1:
    if side != 0 and side != 1:
        raise ValueError("a join has sides 0 and 1")
    return side


cdef class Join:
    """Rows of two sides by key and time; results as numbers of rows."""

    cdef md_join *_j
    cdef bint _busy

    def __cinit__(self, *, keys, how, int64_t within_us, bint judged=False, int64_t keys_spare=65536,
                  uint64_t seed=0):
        cdef md_type types[64]
        cdef md_join_config config
        cdef md_error err
        keys = tuple(keys)
        if len(keys) > 64:
            raise ValueError("at most 64 keys")
        if how not in _HOWS:
            raise ValueError(f"{how!r} is no join: one of {', '.join(_HOWS)}")
        _types(keys, types)
        config.keys = types
        config.n_keys = <int32_t>len(keys)
        config.how = _HOWS[how]
        config.within_us = within_us
        config.judged = judged
        config.keys_spare = keys_spare
        config.seed = seed
        check(md_join_new(&config, &self._j, &err), &err)

    def __dealloc__(self):
        md_join_free(self._j)

    def add(self, int side, rows, int64_t first, *, numbers=None):
        cdef Borrowed source
        cdef Borrowed given = None
        cdef md_column column
        cdef md_error err
        cdef md_rc rc
        cdef const int64_t *at = NULL
        enter(&self._busy)
        try:
            _side(side)
            source = borrow(rows)
            if numbers is not None:
                given = borrow(numbers)
                at = _numbers(given, &column)
                if column.length != source.array.length:
                    raise ValueError("as many numbers as rows")
            with nogil:
                rc = md_join_add(self._j, side, source.schema, source.array, first, at, &err)
            check(rc, &err)
        finally:
            self._busy = False

    def advance(self, int64_t boundary_us):
        cdef md_error err
        cdef md_rc rc
        enter(&self._busy)
        try:
            with nogil:
                rc = md_join_advance(self._j, boundary_us, &err)
            check(rc, &err)
        finally:
            self._busy = False

    def step(self, int64_t pairs_max):
        cdef md_error err
        cdef md_rc rc
        cdef c_bool more = False
        enter(&self._busy)
        try:
            with nogil:
                rc = md_join_step(self._j, pairs_max, &more, &err)
            check(rc, &err)
            return more != 0
        finally:
            self._busy = False

    def pairs(self):
        cdef ArrowSchema schema
        cdef ArrowArray array
        cdef md_error err
        refuse_busy(self._busy)
        check(md_join_pairs(self._j, &schema, &array, &err), &err)
        return own(&schema, &array)

    def judge(self, mask):
        cdef Borrowed keep = borrow(mask)
        cdef md_error err
        refuse_busy(self._busy)
        check(md_join_judge(self._j, keep.schema, keep.array, &err), &err)

    def results(self):
        cdef ArrowSchema schema
        cdef ArrowArray array
        cdef md_error err
        cdef md_rc rc
        enter(&self._busy)
        try:
            with nogil:
                rc = md_join_results(self._j, &schema, &array, &err)
            if rc == MD_EMPTY:
                return None
            check(rc, &err)
            return own(&schema, &array)
        finally:
            self._busy = False

    def rows(self, int side):
        cdef ArrowSchema schema
        cdef ArrowArray array
        cdef md_error err
        refuse_busy(self._busy)
        check(md_join_rows(self._j, _side(side), &schema, &array, &err), &err)
        return own(&schema, &array)

    def track(self, int side):
        refuse_busy(self._busy)
        check(md_join_track(self._j, _side(side)), NULL)

    def copy(self, int side, int64_t number=0, int64_t base=0):
        cdef md_items *items
        cdef md_error err
        refuse_busy(self._busy)
        check(md_join_items(self._j, _side(side), &items, &err), &err)
        return _copy_of(self, &self._busy, items, number, base)

    def renumber(self, int side, numbers=None):
        cdef Borrowed given = None
        cdef md_column column
        cdef md_error err
        cdef const int64_t *at = NULL
        refuse_busy(self._busy)
        column.length = 0
        if numbers is not None:
            given = borrow(numbers)
            at = _numbers(given, &column)
        check(md_join_renumber(self._j, _side(side), at, column.length, &err), &err)

    def span(self, int side):
        refuse_busy(self._busy)
        return md_join_span(self._j, _side(side))

    def resume(self, int64_t boundary_us):
        cdef md_error err
        refuse_busy(self._busy)
        check(md_join_resume(self._j, boundary_us, &err), &err)

    def held(self, int side):
        refuse_busy(self._busy)
        return md_join_held(self._j, _side(side))

    def waiting(self, int side):
        refuse_busy(self._busy)
        return md_join_waiting(self._j, _side(side))

    def nbytes(self):
        refuse_busy(self._busy)
        return md_join_nbytes(self._j)
