# Rows by number out of several batches: native/arrow/take.h.

cdef extern from "arrow/take.h" nogil:
    ctypedef struct md_chunk:
        const ArrowArray *array
        int64_t first

    md_rc md_chunk_check(const ArrowSchema *schema, const ArrowArray *array, md_error *err)
    md_rc md_take_rows(const ArrowSchema *schema, const md_chunk *chunks, int64_t n_chunks, const int32_t *columns,
                       int32_t n_columns, const int64_t *numbers, int64_t n, ArrowSchema *out_schema,
                       ArrowArray *out, md_error *err)


cdef const int64_t *_numbers(Borrowed given, md_column *column) except? NULL:
    """An int64 array without nulls, viewed."""
    cdef md_error err
    check(md_column_view(given.schema, given.array, column, &err), &err)
    if column.type != ord("l") or (column.validity is not NULL and given.array.length > 0):
        raise ValueError("numbers of rows are an int64 array without nulls")
    return <const int64_t *>column.values


cdef class Chunks:
    """Batches of one schema whose rows are known by number."""

    cdef list _held
    cdef md_chunk *_chunks
    cdef int64_t _room

    def __cinit__(self):
        self._held = []

    def __dealloc__(self):
        md_free(self._chunks)

    def __len__(self):
        return len(self._held)

    def add(self, rows, int64_t first):
        cdef Borrowed taken = borrow(rows)
        cdef Borrowed last
        cdef md_error err
        cdef int64_t count = len(self._held)
        cdef md_chunk *grown
        check(md_chunk_check(taken.schema, taken.array, &err), &err)
        if count > 0:
            last = self._held[count - 1]
            if last.schema.n_children != taken.schema.n_children:
                raise ValueError("a batch with other columns")
            if first < self._chunks[count - 1].first + last.array.length:
                raise ValueError("numbers of rows must ascend")
        if count == self._room:
            grown = <md_chunk *>md_realloc(self._chunks, <size_t>(2 * count + 8) * sizeof(md_chunk))
            if grown is NULL:
                raise MemoryError("out of memory")
            self._chunks = grown
            self._room = 2 * count + 8
        self._held.append(taken)
        self._chunks[count].array = taken.array
        self._chunks[count].first = first

    def keep(self, int64_t start, int64_t stop):
        cdef int64_t count = len(self._held)
        if not 0 <= start <= stop <= count:
            raise ValueError("there are no such batches")
        self._held = self._held[start:stop]
        for i in range(start, stop):
            self._chunks[i - start] = self._chunks[i]

    def take(self, numbers, columns):
        cdef Borrowed given = borrow(numbers)
        cdef Borrowed like
        cdef md_column column
        cdef md_error err
        cdef md_rc rc
        cdef ArrowSchema schema
        cdef ArrowArray array
        cdef int32_t *picked
        cdef int32_t width = 0
        cdef int64_t count = len(self._held)
        cdef const int64_t *at = _numbers(given, &column)
        cdef list held = self._held  # nothing in it goes while the GIL is away
        if count == 0:
            raise ValueError("no batch to take rows from")
        like = held[0]
        picked = <int32_t *>md_malloc(len(columns) * sizeof(int32_t))
        if picked is NULL:
            raise MemoryError("out of memory")
        try:
            for each in columns:
                picked[width] = each
                width += 1
            if column.length < MANY_ROWS:
                rc = md_take_rows(like.schema, self._chunks, count, picked, width, at, column.length, &schema,
                                  &array, &err)
            else:
                with nogil:
                    rc = md_take_rows(like.schema, self._chunks, count, picked, width, at, column.length,
                                      &schema, &array, &err)
        finally:
            md_free(picked)
        check(rc, &err)
        return own(&schema, &array)
