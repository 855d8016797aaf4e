# What a look at times finds (times.h), and lateness, row by row (lateness.h).


cdef extern from "times.h" nogil:
    ctypedef struct md_times:
        int64_t length

    md_rc md_times_look(const uint8_t *values, int64_t n, md_times *out)
    void md_times_free(md_times *t)
    bint md_times_part(const md_times *t, int64_t start, int64_t n, md_times *out)
    void md_times_extent(const md_times *t, int64_t *least, int64_t *largest)


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
    md_rc md_lateness_judge(md_lateness *l, const md_times *times, md_late_rows *out, md_error *err)
    md_rc md_lateness_promise(md_lateness *l, int64_t boundary_us, md_error *err)
    int64_t md_lateness_boundary(const md_lateness *l)


cdef extern from * nogil:
    """
    #define MD_START_US (-((int64_t)1 << 62))
    """
    int64_t START_US "MD_START_US"  # elements.START_US
    int64_t INT64_MIN


cdef object _PART = object()


cdef class Times:
    """Times that somebody has looked at once; whoever needs them afterwards reads what the look found.

    Holds the array, so nobody else can have its memory. Changes nothing; any thread may read it.
    """

    cdef readonly object array
    cdef Borrowed _rows
    cdef Times _whole  # of which this is a part; it owns the blocks
    cdef md_times _t
    cdef int64_t _least, _largest

    def __cinit__(self, array):
        cdef md_error err
        cdef md_column column
        cdef md_rc rc
        if array is _PART:
            return
        self._rows = borrow(array)
        check(md_column_view(self._rows.schema, self._rows.array, &column, &err), &err)
        if column.type != 108:  # 'l'
            raise ValueError("times must be int64 or timestamp[us]")
        if self._rows.array.null_count > 0:
            raise ValueError("a time is null")
        if column.length < MANY_ROWS:
            rc = md_times_look(column.values, column.length, &self._t)
        else:
            with nogil:
                rc = md_times_look(column.values, column.length, &self._t)
        check(rc, NULL)
        self.array = array
        self._extent()

    cdef _extent(self):
        if self._t.length:
            md_times_extent(&self._t, &self._least, &self._largest)

    def __dealloc__(self):
        if self._whole is None:
            md_times_free(&self._t)

    def __len__(self):
        return self._t.length

    def part(self, int64_t start, int64_t rows):
        cdef Times out
        array = self.array.slice(start, rows)
        out = Times.__new__(Times, _PART)
        out._whole = self if self._whole is None else self._whole
        if not md_times_part(&self._t, start, len(array), &out._t):
            return Times(array)
        out.array = array
        out._extent()
        return out

    @property
    def extent(self):
        return (self._least, self._largest) if self._t.length else None


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
        """Judge times, or an array of them: (late rows, greatest lateness in us, mask or None)."""
        cdef Times looked = times if isinstance(times, Times) else Times(times)
        cdef md_error err
        cdef md_late_rows late
        cdef ArrowArray mask
        cdef md_lateness before = self._l
        cdef md_rc rc
        if looked._t.length < MANY_ROWS:
            rc = md_lateness_judge(&self._l, &looked._t, &late, &err)
        else:
            with nogil:
                rc = md_lateness_judge(&self._l, &looked._t, &late, &err)
        check(rc, &err)
        if late.mask is NULL:
            return 0, 0, None
        rc = md_array_of(&mask, looked._t.length, 0, NULL, late.mask)
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
