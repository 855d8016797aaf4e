# Streams of others, read and looked at before somebody else follows the pointers in them.

cdef extern from "arrow/stream.h" nogil:
    struct ArrowArrayStream:
        void (*release)(ArrowArrayStream *)

    md_rc md_stream_read(ArrowArrayStream *source, c_bool rows, ArrowArrayStream *out, int *code, md_error *err)


cdef void _end_stream(object capsule) noexcept:
    cdef ArrowArrayStream *stream = <ArrowArrayStream *>PyCapsule_GetPointer(capsule, "arrow_array_stream")
    if stream.release is not NULL:
        stream.release(stream)
    md_free(stream)


def stream_checked(source, *, bint rows):
    cdef ArrowArrayStream *given = <ArrowArrayStream *>PyCapsule_GetPointer(source, "arrow_array_stream")
    cdef ArrowArrayStream *made = <ArrowArrayStream *>md_malloc(sizeof(ArrowArrayStream))
    cdef md_error err
    cdef md_rc rc
    cdef int code = 0
    if made is NULL:
        raise MemoryError("out of memory")
    made.release = NULL
    try:
        capsule = PyCapsule_New(made, "arrow_array_stream", _end_stream)
    except BaseException:
        md_free(made)
        raise
    with nogil:  # which its maker may want meanwhile
        rc = md_stream_read(given, rows, made, &code, &err)
    if rc == MD_BADARG:
        raise OSError(code, (<bytes>err.text).decode("utf-8", "replace"))
    check(rc, &err)
    return capsule
