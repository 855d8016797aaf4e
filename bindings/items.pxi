# Rows of numbered items, copied while their owner goes on: native/state/items.h. Included before those who own some.

cdef extern from "state/items.h" nogil:
    ctypedef struct md_items:
        pass
    ctypedef struct md_items_copy:
        pass

    md_rc md_items_copy_begin(md_items *m, int64_t number, int64_t base, md_items_copy **out, md_error *err)
    int64_t md_items_copy_base_rows(const md_items_copy *copy)
    md_rc md_items_copy_runs(const md_items_copy *copy, int64_t **pairs, int64_t *n)
    int64_t md_items_copy_left(const md_items_copy *copy)
    md_rc md_items_copy_next(md_items_copy *copy, int64_t rows, ArrowSchema *schema, ArrowArray *array, md_error *err)
    void md_items_copy_free(md_items_copy *copy)


cdef Batch _pairs(int64_t *pairs, int64_t n):
    """One after the other, as an array that owns them."""
    cdef ArrowArray array
    if md_array_of(&array, 2 * n, 0, NULL, pairs) != MD_OK:
        md_free(pairs)
        raise MemoryError("out of memory")
    return own_flat("l", &array)


cdef class ItemsCopy:
    """Rows of numbered items, copied in pieces while they change."""

    cdef md_items_copy *_c
    cdef object _owner
    cdef bint *_busy  # of the owner

    def __init__(self):
        raise TypeError("made by the owner of the items only")

    def __dealloc__(self):
        md_items_copy_free(self._c)

    @property
    def left(self):
        return md_items_copy_left(self._c)

    @property
    def base_rows(self):
        return md_items_copy_base_rows(self._c)

    @property
    def partial(self):
        return md_items_copy_base_rows(self._c) >= 0

    def runs(self):
        cdef int64_t *pairs
        cdef int64_t n
        cdef md_rc rc
        if not self.partial:
            return None
        with nogil:
            rc = md_items_copy_runs(self._c, &pairs, &n)
        check(rc, NULL)
        return _pairs(pairs, n)

    def next(self, int64_t rows):
        cdef ArrowSchema schema
        cdef ArrowArray array
        cdef md_error err
        cdef md_rc rc
        enter(self._busy)
        try:
            with nogil:
                rc = md_items_copy_next(self._c, rows, &schema, &array, &err)
            check(rc, &err)
            return own(&schema, &array)
        finally:
            self._busy[0] = False


cdef ItemsCopy _copy_of(owner, bint *busy, md_items *items, int64_t number, int64_t base):
    """A copy of what somebody owns, begun."""
    cdef md_error err
    cdef ItemsCopy made
    refuse_busy(busy[0])
    made = ItemsCopy.__new__(ItemsCopy)
    check(md_items_copy_begin(items, number, base, &made._c, &err), &err)
    made._owner = owner
    made._busy = busy
    return made
