# Values of columns that came from outside, looked at.

cdef extern from "validate.h" nogil:
    ctypedef enum md_validity:
        MD_VALID
        MD_INVALID_OFFSETS
        MD_INVALID_UTF8
        MD_INVALID_DECIMAL
        MD_INVALID_NULLS

    md_rc md_structs_check(const ArrowSchema *schema, const ArrowArray *array, md_error *err)
    md_validity md_validate(const ArrowSchema *schema, const ArrowArray *array, int64_t *row)


cdef extern from "checked_stream.h" nogil:
    struct ArrowArrayStream:
        void (*release)(ArrowArrayStream *)

    md_rc md_checked_stream(ArrowArrayStream *source, ArrowArrayStream *out)


cdef enum:
    FEW_ROWS = 4096  # below, handing the GIL over takes longer


cdef object invalid_value(const ArrowSchema *schema, const ArrowArray *array):
    """(row, what is invalid there) of a column; None: it is valid."""
    cdef int64_t row = 0
    cdef md_validity found
    if array.length < FEW_ROWS:
        found = md_validate(schema, array, &row)
    else:
        with nogil:
            found = md_validate(schema, array, &row)
    if found == MD_VALID:
        return None
    return row, ("", "offsets", "utf8", "decimal", "nulls")[<int>found]


def invalid(column):
    cdef Borrowed array = borrow(column)
    return invalid_value(array.schema, array.array)


def invalid_in(batch):
    cdef Borrowed rows = borrow(batch)
    cdef md_error err
    cdef int64_t i
    check(md_structs_check(rows.schema, rows.array, &err), &err)
    batch.validate()  # after that, since it follows pointers
    for i in range(rows.array.n_children):
        found = invalid_value(rows.schema.children[i], rows.array.children[i])
        if found is not None:
            return i, *found
    return None


def structs_checked(data):
    cdef md_error err
    cdef Borrowed array = borrow(data)
    check(md_structs_check(array.schema, array.array, &err), &err)
    return array._capsules


cdef void _end_stream(object capsule) noexcept:
    cdef ArrowArrayStream *stream = <ArrowArrayStream *>PyCapsule_GetPointer(capsule, "arrow_array_stream")
    if stream.release is not NULL:
        stream.release(stream)
    md_free(stream)


def stream_checked(data):
    cdef object given = data.__arrow_c_stream__()
    cdef ArrowArrayStream *source = <ArrowArrayStream *>PyCapsule_GetPointer(given, "arrow_array_stream")
    cdef ArrowArrayStream *out
    if source.release is NULL:
        raise ValueError("a released stream")
    out = <ArrowArrayStream *>md_calloc(1, sizeof(ArrowArrayStream))
    if out is NULL:
        raise MemoryError("out of memory")
    try:
        capsule = PyCapsule_New(out, "arrow_array_stream", _end_stream)
    except BaseException:
        md_free(out)
        raise
    check(md_checked_stream(source, out), NULL)
    return capsule
