# Windows of rows and of values: native/window/window_span.h. Included after window_store.pxi.

cdef extern from "window/window_span.h" nogil:
    ctypedef enum md_span_kind:
        MD_SPAN_ROWS
        MD_SPAN_I64
        MD_SPAN_U64
        MD_SPAN_F64

    ctypedef union md_number:
        int64_t i
        double f

    ctypedef struct md_spans:
        pass

    md_rc md_spans_new(md_span_kind kind, md_number size, md_number advance, md_spans **out, md_error *err)
    void md_spans_free(md_spans *s)
    md_rc md_spans_assign(md_spans *s, const md_column *ids, const md_column *values, int64_t n, int64_t *slots,
                          md_error *err)
    md_rc md_spans_finish(md_spans *s, md_error *err)
    md_rc md_spans_closed(md_spans *s, ArrowSchema *schema, ArrowArray *array, md_error *err)
    md_items *md_spans_key_items(md_spans *s)
    md_items *md_spans_pane_items(md_spans *s)
    md_rc md_spans_panes(const md_spans *s, ArrowSchema *schema, ArrowArray *array, md_error *err)
    md_rc md_spans_load(md_spans *s, const md_column *keys, int64_t n_keys, const md_column *panes, int64_t n_panes,
                        int64_t next_slot, int64_t taken, md_error *err)
    const int64_t *md_spans_left(const md_spans *s, int64_t *n)
    void md_spans_forget_left(md_spans *s)
    int64_t md_spans_n_keys(const md_spans *s)
    int64_t md_spans_parts(const md_spans *s)
    int64_t md_spans_next_slot(const md_spans *s)
    int64_t md_spans_taken(const md_spans *s)
    size_t md_spans_nbytes(const md_spans *s)


cdef dict _SPANS = {"rows": MD_SPAN_ROWS, "l": MD_SPAN_I64, "L": MD_SPAN_U64, "g": MD_SPAN_F64}


cdef class Spans:
    """Which pane of its key each row is in, by row count or by a value that never decreases."""

    cdef md_spans *_s
    cdef bint _busy
    cdef int _type

    def __cinit__(self, kind, size, advance):
        cdef md_number width, step
        cdef md_error err
        if kind not in _SPANS:
            raise ValueError(f"kind {kind!r}: one of {', '.join(_SPANS)}")
        self._type = 0 if kind == "rows" else ord(kind)
        if kind == "g":
            width.f = size
            step.f = advance
        else:
            width.i = size
            step.i = advance
        check(md_spans_new(<md_span_kind><int>_SPANS[kind], width, step, &self._s, &err), &err)

    def __dealloc__(self):
        md_spans_free(self._s)

    def assign(self, ids, values=None):
        cdef Borrowed keys, given
        cdef md_column id_column, value_column
        cdef md_error err
        cdef md_rc rc
        cdef int64_t *slots
        cdef bint counted = self._type == 0
        enter(&self._busy)
        try:
            keys = borrow(ids)
            _typed(keys, ord("i"), False, &id_column)
            if counted != (values is None):
                raise ValueError("values, unless rows are counted")
            if not counted:
                given = borrow(values)
                _typed(given, self._type, True, &value_column)
                if value_column.length != id_column.length:
                    raise ValueError("one value per key")
            slots = <int64_t *>md_malloc(8 * id_column.length)
            if slots is NULL:
                raise MemoryError("out of memory")
            with nogil:
                rc = md_spans_assign(self._s, &id_column, NULL if counted else &value_column, id_column.length, slots,
                                     &err)
            if rc != MD_OK:
                md_free(slots)
            check(rc, &err)
            return _slots(slots, id_column.length)
        finally:
            self._busy = False

    def finish(self):
        cdef md_error err
        refuse_busy(self._busy)
        check(md_spans_finish(self._s, &err), &err)

    def closed(self):
        cdef ArrowSchema schema
        cdef ArrowArray array
        cdef md_error err
        refuse_busy(self._busy)
        check(md_spans_closed(self._s, &schema, &array, &err), &err)
        return own(&schema, &array)

    def copy_keys(self, int64_t number=0, int64_t base=0):
        return _copy_of(self, &self._busy, md_spans_key_items(self._s), number, base)

    def copy_panes(self, int64_t number=0, int64_t base=0):
        return _copy_of(self, &self._busy, md_spans_pane_items(self._s), number, base)

    def panes(self):
        cdef ArrowSchema schema
        cdef ArrowArray array
        cdef md_error err
        refuse_busy(self._busy)
        check(md_spans_panes(self._s, &schema, &array, &err), &err)
        return own(&schema, &array)

    def load(self, keys, panes, *, int64_t next_slot, int64_t taken):
        cdef Borrowed key_rows, pane_rows
        cdef md_column columns[7]
        cdef int64_t n_keys, n_panes
        cdef md_error err
        refuse_busy(self._busy)
        key_rows = borrow(keys)
        pane_rows = borrow(panes)
        check(md_columns_view(key_rows.schema, key_rows.array, 2, columns, &n_keys, &err), &err)
        check(md_columns_view(pane_rows.schema, pane_rows.array, 5, columns + 2, &n_panes, &err), &err)
        check(md_spans_load(self._s, columns, n_keys, columns + 2, n_panes, next_slot, taken, &err), &err)

    def left(self):
        cdef int64_t n = 0
        cdef const int64_t *found
        cdef int64_t *slots
        refuse_busy(self._busy)
        found = md_spans_left(self._s, &n)
        if found is NULL:
            md_spans_forget_left(self._s)
            return None
        slots = <int64_t *>md_malloc(8 * n)
        if slots is NULL:
            raise MemoryError("out of memory")
        memcpy(slots, found, 8 * n)
        made = _slots(slots, n)
        md_spans_forget_left(self._s)
        return made

    def __len__(self):
        refuse_busy(self._busy)
        return md_spans_n_keys(self._s)

    def parts(self):
        refuse_busy(self._busy)
        return md_spans_parts(self._s)

    def position(self):
        refuse_busy(self._busy)
        return md_spans_next_slot(self._s), md_spans_taken(self._s)

    def nbytes(self):
        refuse_busy(self._busy)
        return md_spans_nbytes(self._s)
