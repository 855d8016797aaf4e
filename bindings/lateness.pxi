# What a look at times finds (times.h), and lateness, row by row (lateness.h).


from libc.string cimport strcmp


cdef extern from "order/times.h" nogil:
    ctypedef struct md_times:
        int64_t length

    md_rc md_times_look(const uint8_t *values, int64_t n, md_times *out)
    void md_times_free(md_times *t)
    bint md_times_part(const md_times *t, int64_t start, int64_t n, md_times *out)
    void md_times_extent(const md_times *t, int64_t *least, int64_t *largest)


cdef extern from "order/lateness.h" nogil:
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


cdef class Times(Exported):
    """Times that somebody has looked at once; whoever needs them afterwards reads what the look found.

    Holds the array, so nobody else can have its memory. Changes nothing; any thread may read it.
    """

    cdef readonly Exported rows  # the batch whose column they are
    cdef object _array
    cdef object _batch, _make  # what gives the array, until somebody wants it
    cdef Times _whole  # of which this is a part; it owns the blocks
    cdef bint _lent  # they are its; the collector of cycles may clear _whole before this dies
    cdef md_times _t
    cdef int64_t _least, _largest

    def __init__(self, array):
        self._rows = borrow(array)
        self._array = array
        if not self._look():
            raise ValueError("a time is null")

    cdef bint _look(self) except -1:
        """False: a time is null."""
        cdef md_error err
        cdef md_column column
        cdef md_rc rc
        check(md_column_view(self._rows.schema, self._rows.array, &column, &err), &err)
        if column.type != 108:  # 'l'
            raise ValueError("times must be int64 or timestamp[us]")
        if md_column_nulls(&column) != 0:
            return False
        md_times_free(&self._t)
        if column.length < MANY_ROWS:
            rc = md_times_look(column.values, column.length, &self._t)
        else:
            with nogil:
                rc = md_times_look(column.values, column.length, &self._t)
        check(rc, NULL)
        self._extent()
        return True

    cdef void _extent(self) noexcept:
        if self._t.length:
            md_times_extent(&self._t, &self._least, &self._largest)

    def __dealloc__(self):
        if not self._lent:
            md_times_free(&self._t)

    def __len__(self):
        return self._t.length

    def part(self, int64_t start, int64_t rows):
        cdef Times out
        array = self.array.slice(start, rows)
        out = Times.__new__(Times)
        out._whole, out._lent = self if self._whole is None else self._whole, True
        if not md_times_part(&self._t, start, len(array), &out._t):
            return Times(array)
        out._rows = borrow(array)
        out._array = array
        out._extent()
        return out

    @property
    def array(self):
        if self._array is None:
            self._array = self._make(self._batch)
        return self._array

    @property
    def extent(self):
        return (self._least, self._largest) if self._t.length else None


cdef bint _same(const ArrowSchema *a, const ArrowSchema *b) noexcept:
    """The same columns, as far as this knows: extensions and dictionaries it doesn't."""
    if a.dictionary is not NULL or b.dictionary is not NULL or a.n_children != b.n_children:
        return False
    if strcmp(a.format, b.format) != 0 or a.flags != b.flags:
        return False
    for i in range(a.n_children):
        if a.children[i].metadata is not NULL or b.children[i].metadata is not NULL:
            return False
        if a.children[i].name is NULL or b.children[i].name is NULL:
            return False
        if strcmp(a.children[i].name, b.children[i].name) != 0 or not _same(a.children[i], b.children[i]):
            return False
    return True


cdef class Intake:
    """Tells batches of a schema by their capsules, and looks at their times, without making columns of them."""

    cdef object _capsule, _make
    cdef const ArrowSchema *_schema
    cdef int64_t _position
    cdef bint _reads_values

    def __cinit__(self, schema, int64_t position, make):
        self._capsule = schema.__arrow_c_schema__()
        self._schema = <const ArrowSchema *>PyCapsule_GetPointer(self._capsule, "arrow_schema")
        if not 0 <= position < self._schema.n_children:
            raise ValueError("no such column")
        self._position = position
        self._make = make
        formats = [self._schema.children[i].format[:2] for i in range(self._schema.n_children)]
        self._reads_values = any(each in (b"u", b"z", b"U", b"Z", b"d:") for each in formats)

    def rows(self, batch):
        cdef Borrowed rows = borrow(batch)
        cdef Exported out
        cdef md_error err
        if not _same(rows.schema, self._schema) or rows.array.offset != 0 or rows.array.null_count > 0:
            return None
        for i in range(rows.schema.n_children):
            if rows.array.children[i].length != rows.array.length:
                return None
        check(md_structs_check(rows.schema, rows.array, &err), &err)
        out = Exported.__new__(Exported)
        out._rows = rows
        return out

    def invalid(self, Exported rows not None):
        cdef int64_t row, i
        if rows._rows.array.n_children != self._schema.n_children:
            raise ValueError("rows of another schema")
        for i in range(self._schema.n_children):
            # Of most types only the count of nulls is looked at, for which the GIL needn't be handed over.
            if self._reads_values and rows._rows.array.length >= FEW_ROWS:
                found = invalid_value(rows._rows.schema.children[i], rows._rows.array.children[i])
                if found is not None:
                    return i, *found
            elif md_validate(rows._rows.schema.children[i], rows._rows.array.children[i], &row) != MD_VALID:
                return i, *invalid_value(rows._rows.schema.children[i], rows._rows.array.children[i])
        return None

    def times(self, Exported rows not None, batch):
        cdef Times out = Times.__new__(Times)
        cdef Borrowed column = Borrowed()
        if rows._rows.array.n_children != self._schema.n_children:
            raise ValueError("rows of another schema")
        column._capsules = rows._rows._capsules
        column.schema = rows._rows.schema.children[self._position]
        column.array = rows._rows.array.children[self._position]
        out._rows = column
        out.rows = rows
        out._batch, out._make = batch, self._make
        return out if out._look() else None


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
