# Running aggregates: native/window/window_running.h. Included after window_store.pxi.

cdef extern from "window/window_running.h" nogil:
    ctypedef struct md_expiry:
        pass

    md_rc md_window_run(md_window *w, const ArrowSchema *schema, const ArrowArray *array, md_error *err)
    md_rc md_expiry_new(int64_t limit_us, md_expiry **out, md_error *err)
    void md_expiry_free(md_expiry *e)
    md_rc md_expiry_assign(md_expiry *e, const md_column *ids, const md_column *times, int64_t n, int64_t *slots,
                           md_error *err)
    int64_t md_expiry_keys(const md_expiry *e)
    void md_expiry_read(const md_expiry *e, int64_t *latest, int64_t *slots)
    md_rc md_expiry_load(md_expiry *e, const int64_t *latest, const int64_t *slots, int64_t n, int64_t next_slot)
    int64_t md_expiry_next_slot(const md_expiry *e)
    md_items *md_expiry_items(md_expiry *e)
    const int64_t *md_expiry_left(const md_expiry *e, int64_t *n)
    void md_expiry_forget_left(md_expiry *e)
    size_t md_expiry_nbytes(const md_expiry *e)


cdef class RunningStore(Store):
    """A ``Store`` that tells the aggregates of a slot after each row."""

    def run(self, rows):
        cdef Borrowed source
        cdef ArrowSchema schema
        cdef ArrowArray array
        cdef md_error err
        cdef md_rc rc
        enter(&self._busy)
        try:
            source = borrow(rows)
            with nogil:
                rc = md_window_run(self._w, source.schema, source.array, &err)
            check(rc, &err)
            out = []
            while md_window_take(self._w, &schema, &array) == MD_OK:
                out.append(own(&schema, &array))
            return out
        finally:
            self._busy = False


cdef class Expiry:
    """The slot of each row's key, a new one where its state has expired."""

    cdef md_expiry *_e
    cdef bint _busy

    def __cinit__(self, int64_t limit_us):
        cdef md_error err
        check(md_expiry_new(limit_us, &self._e, &err), &err)

    def __dealloc__(self):
        md_expiry_free(self._e)

    def assign(self, ids, times):
        cdef Borrowed keys, clock
        cdef md_column id_column, time_column
        cdef md_error err
        cdef md_rc rc
        cdef int64_t *slots
        enter(&self._busy)
        try:
            keys = borrow(ids)
            clock = borrow(times)
            _typed(keys, ord("i"), False, &id_column)
            _typed(clock, ord("l"), False, &time_column)
            if id_column.length != time_column.length:
                raise ValueError("one time per key")
            slots = <int64_t *>md_malloc(8 * id_column.length)
            if slots is NULL:
                raise MemoryError("out of memory")
            with nogil:
                rc = md_expiry_assign(self._e, &id_column, &time_column, id_column.length, slots, &err)
            if rc != MD_OK:
                md_free(slots)
            check(rc, &err)
            return _slots(slots, id_column.length)
        finally:
            self._busy = False

    def keys(self):
        cdef int64_t n
        cdef int64_t *latest
        cdef int64_t *slots
        refuse_busy(self._busy)
        n = md_expiry_keys(self._e)
        latest = <int64_t *>md_malloc(8 * n)
        slots = <int64_t *>md_malloc(8 * n)
        if latest is NULL or slots is NULL:
            md_free(latest)
            md_free(slots)
            raise MemoryError("out of memory")
        md_expiry_read(self._e, latest, slots)
        try:
            first = _slots(latest, n)
        except BaseException:
            md_free(slots)
            raise
        return first, _slots(slots, n)

    def load(self, latest, slots, *, int64_t next_slot):
        cdef Borrowed clock, given
        cdef md_column time_column, slot_column
        refuse_busy(self._busy)
        clock = borrow(latest)
        given = borrow(slots)
        _typed(clock, ord("l"), False, &time_column)
        _typed(given, ord("l"), False, &slot_column)
        if time_column.length != slot_column.length:
            raise ValueError("one slot per key")
        check(md_expiry_load(self._e, _words(&time_column), _words(&slot_column), time_column.length, next_slot), NULL)

    def left(self):
        cdef int64_t n = 0
        cdef const int64_t *found
        cdef int64_t *slots
        refuse_busy(self._busy)
        found = md_expiry_left(self._e, &n)
        if found is NULL:
            return None
        slots = <int64_t *>md_malloc(8 * n)
        if slots is NULL:
            raise MemoryError("out of memory")
        memcpy(slots, found, 8 * n)
        made = _slots(slots, n)
        md_expiry_forget_left(self._e)
        return made

    def copy(self, int64_t number=0, int64_t base=0):
        return _copy_of(self, &self._busy, md_expiry_items(self._e), number, base)

    def __len__(self):
        refuse_busy(self._busy)
        return md_expiry_keys(self._e)

    def nbytes(self):
        refuse_busy(self._busy)
        return md_expiry_nbytes(self._e)

    def next_slot(self):
        refuse_busy(self._busy)
        return md_expiry_next_slot(self._e)
