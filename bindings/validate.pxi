# Values of columns that came from outside, looked at.

cdef extern from "arrow/validate.h" nogil:
    ctypedef enum md_validity:
        MD_VALID
        MD_INVALID_OFFSETS
        MD_INVALID_UTF8
        MD_INVALID_DECIMAL
        MD_INVALID_NULLS

    md_rc md_structs_check(const ArrowSchema *schema, const ArrowArray *array, md_error *err)
    md_rc md_batch_check(const ArrowSchema *schema, const ArrowArray *array, md_error *err)
    md_rc md_schema_check(const ArrowSchema *schema, md_error *err)
    bint md_array_walks(const ArrowSchema *schema, const ArrowArray *array)
    md_validity md_validate(const ArrowSchema *schema, const ArrowArray *array, int64_t *row)


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
    check(md_batch_check(rows.schema, rows.array, &err), &err)
    batch.validate()  # after that, since it follows pointers
    for i in range(rows.array.n_children):
        found = invalid_value(rows.schema.children[i], rows.array.children[i])
        if found is not None:
            return i, *found
    return None


def structs_checked(data, *, bint rows=False):
    cdef md_error err
    cdef md_error other
    cdef md_rc rc
    cdef Borrowed array = borrow(data)
    if rows:
        rc = md_batch_check(array.schema, array.array, &err)
    else:
        rc = md_structs_check(array.schema, array.array, &err)
    if rc != MD_OK:
        if md_schema_check(array.schema, &other) != MD_OK or not md_array_walks(array.schema, array.array):
            array.array.release = NULL
    check(rc, &err)
    return array._capsules
