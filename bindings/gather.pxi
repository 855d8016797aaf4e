# Keeping rows by a mask (gather.h).


cdef extern from "arrow/gather.h" nogil:
    md_rc md_filter_rows(const ArrowSchema *schema, const ArrowArray *array, const ArrowSchema *mask_schema,
                         const ArrowArray *mask, ArrowSchema *out_schema, ArrowArray *out, md_error *err)


cdef enum:
    MANY_ROWS = 4096  # below this, giving up the GIL costs more than it gives others


def filter_rows(rows, mask):
    """The rows of a struct array for which a bool array is true (both Arrow PyCapsules)."""
    cdef Borrowed taken = borrow(rows)
    cdef Borrowed keep = borrow(mask)
    cdef md_error err
    cdef ArrowSchema schema
    cdef ArrowArray array
    cdef md_rc rc
    if taken.array.length < MANY_ROWS:
        rc = md_filter_rows(taken.schema, taken.array, keep.schema, keep.array, &schema, &array, &err)
    else:
        with nogil:
            rc = md_filter_rows(taken.schema, taken.array, keep.schema, keep.array, &schema, &array, &err)
    check(rc, &err)
    return own(&schema, &array)
