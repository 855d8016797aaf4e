# hash_partition (partition.h) and CRC-32C (crc.h).

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer


cdef extern from "keys/partition.h" nogil:
    md_rc md_hash_partition(const ArrowSchema *schema, const ArrowArray *array, uint64_t *hashes, md_error *err)


cdef extern from "base/crc.h" nogil:
    uint32_t md_crc32c(uint32_t value, const void *data, size_t size)


def hash_partition(rows):
    """One uint64 per row (Arrow PyCapsule): fixed for all nodes, versions and Arrow layouts."""
    cdef Borrowed borrowed = borrow(rows)
    cdef md_error err
    cdef ArrowArray array
    cdef int64_t n = borrowed.array.length
    cdef uint64_t *hashes = <uint64_t *>md_calloc(n if n > 0 else 0, sizeof(uint64_t))
    if hashes is NULL:
        raise MemoryError("out of memory")
    cdef md_rc rc
    with nogil:
        rc = md_hash_partition(borrowed.schema, borrowed.array, hashes, &err)
        if rc == MD_OK:
            rc = md_array_of(&array, n, 0, NULL, hashes)
            if rc != MD_OK:
                err.text[0] = 0
    if rc != MD_OK:
        md_free(hashes)
        check(rc, &err)
    return own_flat("L", &array)


def crc32c(data, uint32_t value=0):
    """CRC-32C (Castagnoli) of a buffer; ``value``: of what came before it."""
    cdef Py_buffer view
    cdef uint32_t out
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        with nogil:
            out = md_crc32c(value, view.buf, view.len)
    finally:
        PyBuffer_Release(&view)
    return out
