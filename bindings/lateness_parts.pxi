# Lateness apart for each partition of a source (lateness_parts.h). Included after lateness.pxi.


cdef extern from "order/lateness_parts.h" nogil:
    ctypedef struct md_part:
        int64_t max_us
        int64_t floor_us

    ctypedef struct md_parts:
        int64_t count
        md_part *parts

    md_rc md_parts_init(md_parts *l, int64_t slack_us, md_error *err)
    void md_parts_free(md_parts *l)
    md_rc md_parts_append(md_parts *l, int64_t max_us, int64_t floor_us)
    md_rc md_parts_judge(md_parts *l, const md_column *times, const int32_t *ids, md_late_rows *out, md_error *err)
    md_rc md_parts_promise(md_parts *l, int64_t boundary_us, md_error *err)
    md_rc md_parts_lift(md_parts *l, int64_t part, int64_t floor_us, md_error *err)
    bint md_parts_rest(md_parts *l, const int64_t *active_us, int64_t since_us)
    int64_t md_parts_limit(const md_parts *l, int64_t part)
    int64_t md_parts_boundary(md_parts *l, int64_t *holder)
    size_t md_parts_nbytes(const md_parts *l)


cdef class PartLateness:
    """Judges lateness row by row for each partition apart. One thread at a time."""

    cdef md_parts _l

    def __cinit__(self, int64_t slack_us, *, boundary_us=None):
        cdef md_error err
        check(md_parts_init(&self._l, slack_us, &err), &err)
        if boundary_us is not None:
            check(md_parts_promise(&self._l, boundary_us, &err), &err)

    def __dealloc__(self):
        md_parts_free(&self._l)

    def __len__(self):
        return self._l.count

    def append(self, max_us, floor_us):
        check(md_parts_append(&self._l, INT64_MIN if max_us is None else max_us,
                              INT64_MIN if floor_us is None else floor_us), NULL)

    def judge(self, times, ids):
        cdef Borrowed rows = borrow(times)
        cdef Borrowed parts = borrow(ids)
        cdef md_error err
        cdef md_column column
        cdef md_late_rows late
        cdef ArrowArray mask
        cdef const int32_t *numbers
        cdef md_rc rc
        check(md_column_view(rows.schema, rows.array, &column, &err), &err)
        if parts.schema.format[0] != b"i" or parts.array.null_count > 0 or parts.array.length != column.length:
            raise ValueError("ids are int32 without nulls, one for each time")
        numbers = <const int32_t *>parts.array.buffers[1]
        if numbers is not NULL:
            numbers += parts.array.offset
        with nogil:
            rc = md_parts_judge(&self._l, &column, numbers, &late, &err)
        check(rc, &err)
        if late.mask is NULL:
            return 0, 0, None
        rc = md_array_of(&mask, column.length, 0, NULL, late.mask)
        if rc != MD_OK:
            md_free(late.mask)
            check(rc, NULL)
        return late.count, late.worst_us, own_flat("b", &mask)

    def promise(self, int64_t boundary_us):
        cdef md_error err
        check(md_parts_promise(&self._l, boundary_us, &err), &err)

    def lift(self, int64_t part, int64_t floor_us):
        cdef md_error err
        check(md_parts_lift(&self._l, part, floor_us, &err), &err)

    def rest(self, active_us, int64_t since_us):
        cdef Borrowed rows = borrow(active_us)
        cdef md_error err
        cdef md_column column
        check(md_column_view(rows.schema, rows.array, &column, &err), &err)
        if column.type != ord("l") or column.length != self._l.count or rows.array.null_count > 0:
            raise ValueError("active_us is int64 without nulls, one for each partition")
        return md_parts_rest(&self._l, <const int64_t *>column.values, since_us)

    def limit_us(self, int64_t part):
        if not 0 <= part < self._l.count:
            raise IndexError("no such partition")
        return max(md_parts_limit(&self._l, part), START_US)

    def part(self, int64_t part):
        if not 0 <= part < self._l.count:
            raise IndexError("no such partition")
        cdef md_part p = self._l.parts[part]
        return (None if p.max_us == INT64_MIN else p.max_us), (None if p.floor_us == INT64_MIN else p.floor_us)

    def nbytes(self):
        return md_parts_nbytes(&self._l)

    @property
    def boundary_us(self):
        cdef int64_t holder
        return max(md_parts_boundary(&self._l, &holder), START_US)

    @property
    def holder(self):
        cdef int64_t holder
        md_parts_boundary(&self._l, &holder)
        return None if holder < 0 else holder
