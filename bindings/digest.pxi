# Which rows of a table changed since the last checkpoint (digest.h).

cdef extern from "base/digest.h" nogil:
    md_rc md_row_digests(const ArrowSchema *schema, const ArrowArray *array, const uint64_t *seed, uint64_t *out,
                         md_error *err)
    md_rc md_row_runs(const uint64_t *old_rows, int64_t n_old, const uint64_t *new_rows, int64_t n_new,
                      int64_t **runs, int64_t *n_runs, md_error *err)


cdef class Digests:
    """128 bits for each row of a table."""

    cdef uint64_t *_words
    cdef int64_t _rows

    def __cinit__(self, rows, uint64_t seed, uint64_t other):
        cdef Borrowed given = borrow(rows)
        cdef md_error err
        cdef uint64_t[2] seeds
        cdef int64_t n = given.array.length
        seeds[0] = seed
        seeds[1] = other
        self._words = <uint64_t *>md_calloc(n if n > 0 else 0, 2 * sizeof(uint64_t))
        if self._words is NULL:
            raise MemoryError("out of memory")
        cdef md_rc rc
        with nogil:
            rc = md_row_digests(given.schema, given.array, seeds, self._words, &err)
        check(rc, &err)
        self._rows = n

    def __dealloc__(self):
        md_free(self._words)

    def __len__(self):
        return self._rows

    def runs(self, Digests before):
        """int64 pairs (start, length) into the rows of ``before`` and then the fresh ones."""
        if before is None:
            raise TypeError("before is None")
        cdef md_error err
        cdef int64_t *made = NULL
        cdef int64_t count = 0
        cdef md_rc rc
        cdef ArrowArray array
        with nogil:
            rc = md_row_runs(before._words, before._rows, self._words, self._rows, &made, &count, &err)
        check(rc, &err)
        if made is NULL:
            made = <int64_t *>md_malloc(0)
            if made is NULL:
                raise MemoryError("out of memory")
        rc = md_array_of(&array, 2 * count, 0, NULL, made)
        if rc != MD_OK:
            md_free(made)
            raise MemoryError("out of memory")
        return own_flat("l", &array)
