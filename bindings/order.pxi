# Bounded-pass sort (order.h).


cdef extern from "order/order.h" nogil:
    ctypedef struct md_bsort:
        pass

    md_rc md_bsort_new(int64_t slack, md_bsort **out, md_error *err)
    void md_bsort_free(md_bsort *sort)
    md_rc md_bsort_add(md_bsort *sort, const md_column *keys, const md_column *groups, int64_t position,
                       int64_t *leave, int64_t *n, md_error *err)
    int64_t md_bsort_held(const md_bsort *sort)
    md_rc md_bsort_drain(md_bsort *sort, int64_t most, int64_t *leave, int64_t *n, md_error *err)
    size_t md_bsort_nbytes(const md_bsort *sort)


cdef class BoundedSort:
    """Which rows leave a bounded-pass sort, and when. One thread at a time."""

    cdef md_bsort *_sort
    cdef bint _busy

    def __cinit__(self, int64_t slack):
        cdef md_error err
        check(md_bsort_new(slack, &self._sort, &err), &err)

    def __dealloc__(self):
        md_bsort_free(self._sort)

    def add(self, keys, groups, int64_t position):
        """Take rows: int64 keys (nulls allowed), int32 groups or None; positions of those that leave."""
        cdef Borrowed rows = borrow(keys)
        cdef Borrowed of = borrow(groups) if groups is not None else None
        cdef md_error err
        cdef md_column key_column
        cdef md_column group_column
        cdef md_column *group_view = NULL
        cdef int64_t n = 0
        cdef int64_t *leave
        cdef md_rc rc
        check(md_column_view(rows.schema, rows.array, &key_column, &err), &err)
        if of is not None:
            check(md_column_view(of.schema, of.array, &group_column, &err), &err)
            group_view = &group_column
        leave = <int64_t *>md_malloc(8 * <size_t>key_column.length + 8)
        if leave is NULL:
            raise MemoryError("out of memory")
        try:
            enter(&self._busy)
        except BaseException:
            md_free(leave)
            raise
        with nogil:
            rc = md_bsort_add(self._sort, &key_column, group_view, position, leave, &n, &err)
        self._busy = False
        return _positions(rc, leave, n, &err)

    def drain(self, int64_t most):
        """Positions of at most so many of the rows held, which leave, by (null first, key, position)."""
        cdef md_error err
        cdef int64_t n = 0
        cdef int64_t *leave
        cdef md_rc rc
        refuse_busy(self._busy)
        leave = <int64_t *>md_malloc(8 * <size_t>max(0, min(most, md_bsort_held(self._sort))) + 8)
        if leave is NULL:
            raise MemoryError("out of memory")
        try:
            enter(&self._busy)
        except BaseException:
            md_free(leave)
            raise
        with nogil:
            rc = md_bsort_drain(self._sort, most, leave, &n, &err)
        self._busy = False
        return _positions(rc, leave, n, &err)

    def __len__(self):
        refuse_busy(self._busy)
        return md_bsort_held(self._sort)

    def nbytes(self):
        """Memory held, in bytes."""
        refuse_busy(self._busy)
        return md_bsort_nbytes(self._sort)


cdef _positions(md_rc rc, int64_t *leave, int64_t n, md_error *err):
    """An int64 array that takes ``leave`` over, or the error."""
    cdef ArrowArray array
    if rc != MD_OK:
        md_free(leave)
        check(rc, err)
    rc = md_array_of(&array, n, 0, NULL, leave)
    if rc != MD_OK:
        md_free(leave)
        check(rc, NULL)
    return own_flat("l", &array)
