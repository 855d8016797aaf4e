# Rows by slot that boxes hold themselves: native/state/slots.h. Included after items.pxi and window_store.pxi.

cdef extern from "state/slots.h" nogil:
    ctypedef enum md_slots_how:
        MD_SLOTS_TOUCH
        MD_SLOTS_OPEN
        MD_SLOTS_CLOSE

    ctypedef struct md_slots:
        pass

    md_rc md_slots_new(md_slots **out)
    void md_slots_free(md_slots *s)
    size_t md_slots_nbytes(const md_slots *s)
    md_rc md_slots_change(md_slots *s, md_slots_how how, const int64_t *slots, int64_t n, int64_t first, int64_t *kept,
                          int64_t *n_kept)
    bint md_slots_copying(const md_slots *s)
    md_rc md_slots_keep_all(md_slots *s, int64_t first, int64_t **kept, int64_t *n_kept)
    void md_slots_clear(md_slots *s)
    md_items *md_slots_items(md_slots *s)


cdef class Slots:
    """Which rows by slot there are, which changed, and which have to be kept for a copy under way."""

    cdef md_slots *_s
    cdef bint _busy  # of copies: nothing here gives up the GIL

    def __cinit__(self):
        check(md_slots_new(&self._s), NULL)

    def __dealloc__(self):
        md_slots_free(self._s)

    cdef _change(self, md_slots_how how, slots, int64_t first):
        cdef Borrowed source = borrow(slots)
        cdef md_column column
        cdef int64_t *kept = NULL
        cdef int64_t n = 0
        cdef md_rc rc
        refuse_busy(self._busy)
        _typed(source, ord("l"), False, &column)
        if md_slots_copying(self._s):
            kept = <int64_t *>md_malloc(8 * column.length)
            if kept is NULL:
                raise MemoryError("out of memory")
        rc = md_slots_change(self._s, how, _words(&column), column.length, first, kept, &n)
        if rc != MD_OK or n == 0:
            md_free(kept)
            check(rc, NULL)
            return None
        return _slots(kept, n)

    cdef bint _change_one(self, md_slots_how how, int64_t slot, int64_t first) except -1:
        cdef int64_t kept = 0
        cdef int64_t n = 0
        refuse_busy(self._busy)
        check(md_slots_change(self._s, how, &slot, 1, first, &kept, &n), NULL)
        return n > 0

    def touch(self, slots, int64_t first):
        return self._change(MD_SLOTS_TOUCH, slots, first)

    def open(self, slots, int64_t first):
        return self._change(MD_SLOTS_OPEN, slots, first)

    def close(self, slots, int64_t first):
        return self._change(MD_SLOTS_CLOSE, slots, first)

    def touch_one(self, int64_t slot, int64_t first):
        return bool(self._change_one(MD_SLOTS_TOUCH, slot, first))

    def open_one(self, int64_t slot, int64_t first):
        return bool(self._change_one(MD_SLOTS_OPEN, slot, first))

    def close_one(self, int64_t slot, int64_t first):
        return bool(self._change_one(MD_SLOTS_CLOSE, slot, first))

    def keep_all(self, int64_t first):
        cdef int64_t *kept = NULL
        cdef int64_t n = 0
        refuse_busy(self._busy)
        if not md_slots_copying(self._s):
            return None
        check(md_slots_keep_all(self._s, first, &kept, &n), NULL)
        return _slots(kept, n)

    def clear(self):
        refuse_busy(self._busy)
        md_slots_clear(self._s)

    def copy(self, int64_t number=0, int64_t base=0):
        if md_slots_copying(self._s):
            raise RuntimeError("a copy is under way: keep_all, or forget it first")
        return _copy_of(self, &self._busy, md_slots_items(self._s), number, base)

    @property
    def copying(self):
        return bool(md_slots_copying(self._s))

    def nbytes(self):
        refuse_busy(self._busy)
        return md_slots_nbytes(self._s)
