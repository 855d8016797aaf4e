# Rows of a batch by the copy of a box that takes them: native/keys/split.h.

cdef extern from "keys/split.h" nogil:
    ctypedef struct md_split:
        pass

    md_rc md_split_new(const md_type *keys, int32_t n_keys, int32_t n_parts, md_split **out, md_error *err)
    void md_split_free(md_split *s)
    md_rc md_split_begin(md_split *s, const ArrowSchema *schema, const ArrowArray *array, int32_t first_key,
                         md_error *err)
    int64_t md_split_chunks(const md_split *s)
    void md_split_run(md_split *s, int64_t start, int64_t stop)
    md_rc md_split_take(const md_split *s, const ArrowSchema *schema, const ArrowArray *array, int32_t part,
                        int64_t first, ArrowSchema *out_schema, ArrowArray *out, ArrowArray *numbers, md_error *err)


cdef class Split:
    """Which rows of a batch belong to which part, by their keys."""

    cdef md_split *_s
    cdef int _parts
    cdef Borrowed _given
    cdef int64_t _done

    def __cinit__(self, *, keys, int parts):
        cdef md_type types[64]
        cdef md_error err
        keys = tuple(keys)
        if len(keys) > 64:
            raise ValueError("at most 64 keys")
        _types(keys, types)
        self._parts = parts
        check(md_split_new(types, <int32_t>len(keys), parts, &self._s, &err), &err)

    def __dealloc__(self):
        md_split_free(self._s)

    def begin(self, rows, int first_key=1):
        cdef md_error err
        self._given = None
        self._done = 0
        cdef Borrowed given = borrow(rows)
        check(md_split_begin(self._s, given.schema, given.array, first_key, &err), &err)
        self._given = given
        return md_split_chunks(self._s)

    def run(self, int64_t start, int64_t stop):
        if self._given is None or not 0 <= start <= stop <= md_split_chunks(self._s):
            raise ValueError("there are no such chunks")
        with nogil:
            md_split_run(self._s, start, stop)
        self._done += stop - start

    cdef Borrowed given(self, int part):
        """The batch, when all of it has been split."""
        if self._given is None or self._done != md_split_chunks(self._s):
            raise ValueError("not all chunks have been split")
        if not 0 <= part < self._parts:
            raise ValueError("there is no such part")
        return self._given

    def take(self, int part, int64_t first=0):
        cdef Borrowed given = self.given(part)
        cdef md_error err
        cdef md_rc rc
        cdef ArrowSchema schema
        cdef ArrowArray array
        cdef ArrowArray numbers
        with nogil:
            rc = md_split_take(self._s, given.schema, given.array, part, first, &schema, &array, &numbers, &err)
        check(rc, &err)
        try:
            rows = own(&schema, &array)
        except BaseException:
            md_array_release(&numbers)
            raise
        return rows, own_flat(b"l", &numbers)

    def end(self):
        self._given = None
