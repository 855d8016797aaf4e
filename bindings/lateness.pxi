# Lateness, row by row (lateness.h).


cdef extern from "lateness.h" nogil:
    ctypedef struct md_lateness:
        int64_t max_us
        int64_t promised_us
        bint seen

    ctypedef struct md_late_rows:
        int64_t count
        uint64_t worst_us
        uint8_t *mask

    md_rc md_lateness_init(md_lateness *l, int64_t slack_us, md_error *err)
    md_rc md_lateness_judge(md_lateness *l, const md_column *times, md_late_rows *out, md_error *err)
    md_rc md_lateness_promise(md_lateness *l, int64_t boundary_us, md_error *err)
    int64_t md_lateness_boundary(const md_lateness *l)
    void md_times_extent(const uint8_t *times, int64_t n, int64_t *least, int64_t *largest)


cdef extern from * nogil:
    """
    #define MD_START_US (-((int64_t)1 << 62))
    """
    int64_t START_US "MD_START_US"  # elements.START_US
    int64_t INT64_MIN


cdef class Lateness:
    """Judges lateness row by row, so that batch cuts never matter. One thread at a time.

    ``max_us`` and ``boundary_us`` go on from what another object said: its largest time and its
    explicit boundary.
    """

    cdef md_lateness _l

    def __cinit__(self, int64_t slack_us, *, max_us=None, boundary_us=None):
        cdef md_error err
        check(md_lateness_init(&self._l, slack_us, &err), &err)
        if max_us is not None:
            self._l.max_us = max_us
            self._l.seen = True
        if boundary_us is not None:
            self._l.promised_us = boundary_us

    def judge(self, times):
        """Judge one int64 or timestamp[us] array: (late rows, greatest lateness in us, mask or None)."""
        cdef Borrowed rows = borrow(times)
        cdef md_error err
        cdef md_column column
        cdef md_late_rows late
        cdef ArrowArray mask
        cdef md_lateness before = self._l
        cdef md_rc rc
        check(md_column_view(rows.schema, rows.array, &column, &err), &err)
        with nogil:
            rc = md_lateness_judge(&self._l, &column, &late, &err)
        check(rc, &err)
        if late.mask is NULL:
            return 0, 0, None
        rc = md_array_of(&mask, column.length, 0, NULL, late.mask)
        if rc != MD_OK:
            md_free(late.mask)
            self._l = before
            check(rc, NULL)
        return late.count, late.worst_us, own_flat("b", &mask)

    def promise(self, int64_t boundary_us):
        """Take an explicit boundary; it may not decrease (ValueError)."""
        cdef md_error err
        check(md_lateness_promise(&self._l, boundary_us, &err), &err)

    @property
    def max_us(self):
        return self._l.max_us if self._l.seen else None

    @property
    def promised_us(self):
        return self._l.promised_us if self._l.promised_us != INT64_MIN else None

    @property
    def boundary_us(self):
        return max(md_lateness_boundary(&self._l), START_US)


def times_extent(times):
    """(least, largest) of one int64 or timestamp[us] array without nulls, of at least one row."""
    cdef Borrowed rows = borrow(times)
    cdef md_error err
    cdef md_column column
    cdef int64_t least, largest
    check(md_column_view(rows.schema, rows.array, &column, &err), &err)
    if column.length == 0 or column.type != 108 or rows.array.null_count > 0:  # 'l'
        raise ValueError("expected times, at least one and none of them null")
    if column.length < MANY_ROWS:
        md_times_extent(column.values, column.length, &least, &largest)
    else:
        with nogil:
            md_times_extent(column.values, column.length, &least, &largest)
    return least, largest
