# Batches in order as one batch in order: native/arrow/merge.h.

cdef extern from "arrow/merge.h" nogil:
    ctypedef struct md_merge_key:
        int32_t column
        bint is_unsigned

    ctypedef struct md_merging:
        const ArrowSchema *schema
        const ArrowArray *const *batches
        int32_t n_batches
        md_merge_key keys[4]
        int32_t n_keys

    md_rc md_merge_check(const md_merging *m, md_error *err)
    void md_merge_cut(const md_merging *m, int32_t batch, int64_t row, int64_t *at)
    md_rc md_merge_rows(const md_merging *m, const int64_t *start, const int64_t *stop, const int32_t *columns,
                        int32_t n_columns, ArrowSchema *out_schema, ArrowArray *out, md_error *err)


cdef Borrowed _look_at(rows):
    """A batch of native code as it lies there, or anything else by its capsules."""
    if not isinstance(rows, Batch):
        return borrow(rows)
    cdef Batch batch = rows
    cdef Borrowed out = Borrowed()
    out._capsules = batch
    out.schema = &batch.schema
    out.array = &batch.array
    return out


cdef class Merge:
    """Batches whose rows are in order of some columns, to be merged a range at a time."""

    cdef list _held
    cdef const ArrowArray *_batches[64]
    cdef md_merging _m

    def __cinit__(self, batches, keys):
        cdef Borrowed each
        cdef md_error err
        self._held = [_look_at(batch) for batch in batches]
        keys = tuple(keys)
        if not 0 < len(self._held) <= 64 or not 0 < len(keys) <= 4:
            raise ValueError("1 to 64 batches and 1 to 4 keys")
        for i in range(len(self._held)):
            each = self._held[i]
            self._batches[i] = each.array
            if i == 0:
                self._m.schema = each.schema
            check(md_chunk_check(self._m.schema, each.array, &err), &err)
        self._m.batches = self._batches
        self._m.n_batches = <int32_t>len(self._held)
        self._m.n_keys = <int32_t>len(keys)
        for i in range(len(keys)):
            self._m.keys[i].column = keys[i][0]
            self._m.keys[i].is_unsigned = keys[i][1]
        check(md_merge_check(&self._m, &err), &err)

    def cut(self, int batch, int64_t row):
        cdef int64_t at[64]
        if not 0 <= batch < self._m.n_batches or not 0 <= row < self._batches[batch].length:
            raise ValueError("there is no such row")
        md_merge_cut(&self._m, batch, row, at)
        return [at[i] for i in range(self._m.n_batches)]

    def rows(self, start, stop, columns):
        cdef int64_t begin[64]
        cdef int64_t end[64]
        cdef int32_t picked[2048]
        cdef md_error err
        cdef md_rc rc
        cdef ArrowSchema schema
        cdef ArrowArray array
        cdef int32_t width = 0
        if len(start) != self._m.n_batches or len(stop) != self._m.n_batches or len(columns) > 2048:
            raise ValueError("a start and a stop for each batch, and at most 2048 columns")
        for i in range(self._m.n_batches):
            begin[i] = start[i]
            end[i] = stop[i]
        for each in columns:
            picked[width] = each
            width += 1
        with nogil:
            rc = md_merge_rows(&self._m, begin, end, picked, width, &schema, &array, &err)
        check(rc, &err)
        return own(&schema, &array)
