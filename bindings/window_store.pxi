# Windows that close group by group: native/window/window_store.h and window_session.h. Included after window.pxi
# and keys.pxi.

cdef extern from "window/window_store.h" nogil:
    md_rc md_window_pick(md_window *w, const int64_t *slots, int64_t n, bint states, md_error *err)
    md_rc md_window_leave(md_window *w, const int64_t *slots, int64_t n, md_error *err)
    int64_t md_window_living(const md_window *w)
    md_rc md_keys_pick(const md_keys *keys, const int64_t *ids, int64_t n, ArrowSchema *schema, ArrowArray *array,
                       md_error *err)


cdef extern from "window/window_session.h" nogil:
    ctypedef struct md_sessions:
        pass

    md_rc md_sessions_new(int64_t gap_us, md_sessions **out, md_error *err)
    void md_sessions_free(md_sessions *s)
    md_rc md_sessions_assign(md_sessions *s, const md_column *ids, const md_column *times, int64_t n, int64_t *slots,
                             md_error *err)
    md_rc md_sessions_rows(md_sessions *s, bint close, int64_t boundary, int64_t most, ArrowSchema *schema,
                           ArrowArray *array, md_error *err)
    md_rc md_sessions_load(md_sessions *s, const ArrowSchema *schema, const ArrowArray *array, int64_t n_keys,
                           int64_t next_slot, int64_t taken, md_error *err)
    md_rc md_sessions_renumber(md_sessions *s, const int64_t *ids, int64_t n, md_error *err)
    md_items *md_sessions_items(md_sessions *s)
    int64_t md_sessions_next_end(md_sessions *s)
    int64_t md_sessions_open(const md_sessions *s)
    int64_t md_sessions_parts(const md_sessions *s)
    int64_t md_sessions_next_slot(const md_sessions *s)
    int64_t md_sessions_taken(const md_sessions *s)
    size_t md_sessions_nbytes(const md_sessions *s)


cdef extern from "arrow/column.h" nogil:
    int64_t md_column_nulls(const md_column *c)
    md_rc md_columns_view(const ArrowSchema *schema, const ArrowArray *array, int64_t n, md_column *out,
                          int64_t *length, md_error *err)
    ctypedef struct md_column_type "md_column":
        int type
        const uint8_t *values


cdef int _typed(Borrowed source, int type, bint nulls, md_column *out) except -1:
    """View one array, which has to be of a native type."""
    cdef md_error err
    check(md_column_view(source.schema, source.array, out, &err), &err)
    if (<md_column_type *>out).type != type:
        raise ValueError(f"a column of type {chr((<md_column_type *>out).type)!r}, expected {chr(type)!r}")
    if not nulls and md_column_nulls(out) != 0:
        raise ValueError("a column holds a null")
    return 0


cdef const int64_t *_words(md_column *column) noexcept:
    return <const int64_t *>(<md_column_type *>column).values


cdef Batch _slots(int64_t *slots, int64_t n):
    """An int64 array that takes the block over, whatever happens."""
    cdef ArrowArray array
    if md_array_of(&array, n, 0, NULL, slots) != MD_OK:
        md_free(slots)
        raise MemoryError("out of memory")
    return own_flat("l", &array)


cdef class Store(Window):
    """A ``Window`` of one int64 key and one pane, whose groups leave one by one."""

    def pick(self, slots, *, bint states=False):
        cdef Borrowed source
        cdef ArrowSchema schema
        cdef ArrowArray array
        cdef md_column column
        cdef const int64_t *words
        cdef md_error err
        cdef md_rc rc
        enter(&self._busy)
        try:
            source = borrow(slots)
            _typed(source, ord("l"), False, &column)
            words = _words(&column)
            with nogil:
                rc = md_window_pick(self._w, words, column.length, states, &err)
            check(rc, &err)
            out = []
            while md_window_take(self._w, &schema, &array) == MD_OK:
                out.append(own(&schema, &array))
            return out
        finally:
            self._busy = False

    def leave(self, slots):
        cdef Borrowed source
        cdef md_column column
        cdef md_error err
        refuse_busy(self._busy)
        source = borrow(slots)
        _typed(source, ord("l"), False, &column)
        check(md_window_leave(self._w, _words(&column), column.length, &err), &err)

    def living(self):
        refuse_busy(self._busy)
        return md_window_living(self._w)


def pick_keys(Keys keys, ids):
    """The keys of some ids, in their order."""
    cdef Borrowed source = borrow(ids)
    cdef ArrowSchema schema
    cdef ArrowArray array
    cdef md_column column
    cdef md_error err
    refuse_busy(keys._busy)
    _typed(source, ord("l"), False, &column)
    check(md_keys_pick(keys._keys, _words(&column), column.length, &schema, &array, &err), &err)
    return own(&schema, &array)


cdef extern from "keys/keys.h" nogil:
    size_t md_keys_nbytes(const md_keys *keys)


def keys_nbytes(Keys keys):
    """Memory held, in bytes."""
    refuse_busy(keys._busy)
    return md_keys_nbytes(keys._keys)


cdef class Sessions:
    """Which session each row is in."""

    cdef md_sessions *_s
    cdef bint _busy

    def __cinit__(self, int64_t gap_us):
        cdef md_error err
        check(md_sessions_new(gap_us, &self._s, &err), &err)

    def __dealloc__(self):
        md_sessions_free(self._s)

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
                rc = md_sessions_assign(self._s, &id_column, &time_column, id_column.length, slots, &err)
            if rc != MD_OK:
                md_free(slots)
            check(rc, &err)
            return _slots(slots, id_column.length)
        finally:
            self._busy = False

    cdef Batch _rows(self, bint close, int64_t boundary_us, int64_t most):
        cdef ArrowSchema schema
        cdef ArrowArray array
        cdef md_error err
        cdef md_rc rc
        enter(&self._busy)
        try:
            with nogil:
                rc = md_sessions_rows(self._s, close, boundary_us, most, &schema, &array, &err)
            check(rc, &err)
            return own(&schema, &array)
        finally:
            self._busy = False

    def close(self, int64_t boundary_us, int64_t most=9223372036854775807):
        if most < 1:
            raise ValueError(f"most: {most}, at least 1")
        return self._rows(True, boundary_us, most)

    def rows(self):
        return self._rows(False, 0, 0)

    def copy(self, int64_t number=0, int64_t base=0):
        return _copy_of(self, &self._busy, md_sessions_items(self._s), number, base)

    def load(self, rows, *, int64_t keys, int64_t next_slot, int64_t taken):
        cdef Borrowed source
        cdef md_error err
        refuse_busy(self._busy)
        source = borrow(rows)
        check(md_sessions_load(self._s, source.schema, source.array, keys, next_slot, taken, &err), &err)

    def renumber(self, ids):
        cdef Borrowed source = borrow(ids)
        cdef md_column column
        cdef md_error err
        refuse_busy(self._busy)
        _typed(source, ord("l"), False, &column)
        check(md_sessions_renumber(self._s, _words(&column), column.length, &err), &err)

    def next_end_us(self):
        refuse_busy(self._busy)
        return md_sessions_next_end(self._s)

    def __len__(self):
        refuse_busy(self._busy)
        return md_sessions_open(self._s)

    def parts(self):
        refuse_busy(self._busy)
        return md_sessions_parts(self._s)

    def position(self):
        refuse_busy(self._busy)
        return md_sessions_next_slot(self._s), md_sessions_taken(self._s)

    def nbytes(self):
        refuse_busy(self._busy)
        return md_sessions_nbytes(self._s)
