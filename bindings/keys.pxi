# Key columns to dense ids: native/keys/keys.h. Included after window.pxi, which declares md_type.

cdef extern from "keys/keys.h" nogil:
    ctypedef struct md_keys:
        int32_t n_columns
        int64_t count

    md_rc md_keys_new(const md_type *types, int32_t n_columns, uint64_t seed, md_keys **out)
    uint64_t md_keys_secret(uint64_t word)
    void md_keys_free(md_keys *keys)
    size_t md_keys_nbytes(const md_keys *keys)


cdef extern from "keys/keys_rows.h" nogil:
    md_rc md_keys_map_rows(md_keys *keys, const ArrowSchema *schema, const ArrowArray *array, int64_t position,
                           bint insert, ArrowArray *ids, int64_t *length, md_error *err)
    md_rc md_keys_export(const md_keys *keys, ArrowSchema *schema, ArrowArray *array, md_error *err)


def keys_secret(uint64_t word):
    return md_keys_secret(word)


keys_secret(int.from_bytes(urandom(8), "little"))


cdef class Keys:
    """Key columns to dense ids 0, 1, 2 ... in order of first appearance."""

    cdef md_keys *_keys
    cdef int64_t _taken
    cdef bint _busy

    def __cinit__(self, keys, *, uint64_t seed=0):
        cdef md_type types[64]
        keys = tuple(keys)
        if len(keys) > 64:
            raise ValueError("at most 64 keys")
        _types(keys, types)
        check(md_keys_new(types, <int32_t>len(keys), seed, &self._keys), NULL)

    def __dealloc__(self):
        md_keys_free(self._keys)

    def map(self, rows, *, bint insert=True):
        cdef Borrowed source
        cdef ArrowArray ids
        cdef md_error err
        cdef md_rc rc
        cdef int64_t length = 0
        enter(&self._busy)
        try:
            source = borrow(rows)
            with nogil:
                rc = md_keys_map_rows(self._keys, source.schema, source.array, self._taken, insert, &ids, &length,
                                      &err)
            check(rc, &err)
            self._taken += length
            return own_flat("i", &ids)
        finally:
            self._busy = False

    def __len__(self):
        refuse_busy(self._busy)
        return self._keys.count

    def nbytes(self):
        refuse_busy(self._busy)
        return md_keys_nbytes(self._keys)

    def keys(self):
        cdef ArrowSchema schema
        cdef ArrowArray array
        cdef md_error err
        refuse_busy(self._busy)
        check(md_keys_export(self._keys, &schema, &array, &err), &err)
        return own(&schema, &array)
