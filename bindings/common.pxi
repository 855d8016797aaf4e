# What every wrapper shares: the Arrow structs, result codes as exceptions, arrays in and out.

from os import urandom

from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_New
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t, uintptr_t
from libc.string cimport memset


cdef extern from "arrow/arrow_abi.h" nogil:
    struct ArrowSchema:
        const char *format
        const char *name
        const char *metadata
        int64_t flags
        int64_t n_children
        ArrowSchema *dictionary
        ArrowSchema **children
        void (*release)(ArrowSchema *)

    struct ArrowArray:
        int64_t length
        int64_t null_count
        int64_t offset
        int64_t n_children
        const void **buffers
        ArrowArray **children
        void (*release)(ArrowArray *)


cdef extern from "base/md_base.h" nogil:
    ctypedef enum md_rc:
        MD_OK
        MD_FULL
        MD_EMPTY
        MD_NOMEM
        MD_BADARG
        MD_BADDATA

    ctypedef struct md_error:
        char text[240]


cdef extern from "base/md_alloc.h" nogil:
    void *md_malloc(size_t size)
    void *md_calloc(size_t count, size_t size)
    void *md_realloc(void *block, size_t size)
    void md_free(void *block)


cdef extern from "arrow/column.h" nogil:
    ctypedef struct md_column:
        int type
        int64_t length
        const uint8_t *validity
        const uint8_t *values

    md_rc md_column_view(const ArrowSchema *schema, const ArrowArray *array, md_column *out, md_error *err)
    md_rc md_schema_make(ArrowSchema *out, const char *format, const char *name, bint nullable, int64_t n_children)
    md_rc md_array_make(ArrowArray *out, int64_t n_buffers, int64_t n_children)
    md_rc md_array_of(ArrowArray *out, int64_t length, int64_t null_count, void *validity, void *values)
    int64_t md_column_nulls(const md_column *c)
    void md_schema_release(ArrowSchema *schema)
    void md_array_release(ArrowArray *array)


cdef int check(md_rc rc, md_error *err) except -1:
    """Turn a result code into the one exception that belongs to it. ``err`` may be NULL."""
    if rc == MD_OK:
        return 0
    text = (<bytes>err.text).decode("utf-8", "replace") if err is not NULL else ""
    if rc == MD_NOMEM:
        raise MemoryError(text or "out of memory")
    if rc == MD_BADARG or rc == MD_BADDATA:
        raise ValueError(text or "bad argument")
    raise AssertionError(f"unexpected result {<int>rc}: {text}")


cdef int refuse_busy(bint busy) except -1:
    """Called with the GIL held, before native code reads or writes an object that has a state."""
    if busy:
        raise RuntimeError("at work already: one thread at a time, and not from inside its own call")
    return 0


cdef int enter(bint *busy) except -1:
    """Mark an object as at work, for a call that may release the GIL; the caller clears the mark."""
    refuse_busy(busy[0])
    busy[0] = True
    return 0


cdef void _end_schema(object capsule) noexcept:
    cdef ArrowSchema *schema = <ArrowSchema *>PyCapsule_GetPointer(capsule, "arrow_schema")
    md_schema_release(schema)
    md_free(schema)


cdef void _end_array(object capsule) noexcept:
    cdef ArrowArray *array = <ArrowArray *>PyCapsule_GetPointer(capsule, "arrow_array")
    md_array_release(array)
    md_free(array)


cdef class Batch:
    """An Arrow array made by native code (a struct array unless its maker says otherwise).

    Handed over once, by ``__arrow_c_array__``: then the taker owns the memory.
    """

    cdef ArrowSchema schema  # Cython starts both at zero: released
    cdef ArrowArray array
    cdef int64_t _length

    def __init__(self):
        raise TypeError("made by native code only")

    def __dealloc__(self):
        md_schema_release(&self.schema)
        md_array_release(&self.array)

    @property
    def num_rows(self):
        return self._length

    @property
    def num_columns(self):
        return self.array.n_children

    def __len__(self):
        return self._length

    def __arrow_c_array__(self, requested_schema=None):
        if self.array.release is NULL or self.schema.release is NULL:
            raise ValueError("this batch was handed over already")
        cdef ArrowSchema *schema = <ArrowSchema *>md_malloc(sizeof(ArrowSchema))
        if schema is NULL:
            raise MemoryError("out of memory")
        schema.release = NULL
        try:
            schema_capsule = PyCapsule_New(schema, "arrow_schema", _end_schema)
        except BaseException:
            md_free(schema)
            raise
        cdef ArrowArray *array = <ArrowArray *>md_malloc(sizeof(ArrowArray))
        if array is NULL:
            raise MemoryError("out of memory")
        array.release = NULL
        try:
            array_capsule = PyCapsule_New(array, "arrow_array", _end_array)
        except BaseException:
            md_free(array)
            raise
        schema[0] = self.schema
        array[0] = self.array
        self.schema.release = NULL
        self.array.release = NULL
        return schema_capsule, array_capsule


cdef Batch own(ArrowSchema *schema, ArrowArray *array):
    """A Batch that takes both over; the caller's structs are released shells after it."""
    cdef Batch out
    try:
        out = Batch.__new__(Batch)
    except BaseException:
        md_schema_release(schema)
        md_array_release(array)
        raise
    out.schema = schema[0]
    out.array = array[0]
    out._length = array.length
    schema.release = NULL
    array.release = NULL
    return out


cdef Batch own_flat(const char *format, ArrowArray *array):
    """A Batch of one plain array (no struct) that takes ``array`` over, whatever happens."""
    cdef ArrowSchema schema
    cdef md_rc rc = md_schema_make(&schema, format, "", True, 0)
    if rc != MD_OK:
        md_array_release(array)
        check(rc, NULL)
    return own(&schema, array)
