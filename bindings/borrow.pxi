# Arrays of others, borrowed for a call or kept for several; and some of their columns. Included after common.pxi.


cdef class Borrowed:
    """A foreign array, borrowed from its capsules for one call.

    The capsules are kept and so released by Python, with the GIL held, when this object dies:
    native code never releases a foreign array.
    """

    cdef object _capsules
    cdef ArrowSchema *schema
    cdef ArrowArray *array


cdef class Exported:
    """An array that was asked for its capsules once, for several calls to read."""

    cdef Borrowed _rows

    def __init__(self):
        raise TypeError("made by native code only")

    @property
    def num_rows(self):
        return self._rows.array.length


cdef Borrowed borrow(rows):
    """Ask ``rows`` for its Arrow PyCapsules (``__arrow_c_array__``), unless it was asked already."""
    cdef Borrowed out
    if isinstance(rows, Exported):
        return (<Exported>rows)._rows
    out = Borrowed()
    try:
        export = rows.__arrow_c_array__
    except AttributeError:
        raise TypeError(f"expected an object with the Arrow PyCapsule interface, got {type(rows).__name__}") from None
    out._capsules = export()
    out.schema = <ArrowSchema *>PyCapsule_GetPointer(out._capsules[0], "arrow_schema")
    out.array = <ArrowArray *>PyCapsule_GetPointer(out._capsules[1], "arrow_array")
    return out


cdef struct Picked:
    ArrowSchema schema
    ArrowArray array
    ArrowSchema *fields[256]
    ArrowArray *columns[256]


cdef int pick(Borrowed rows, Borrowed times, const int *positions, int count, Picked *out,
              Borrowed late=None) except -1:
    """Some columns of a batch, by their positions, its times (-1) and late marks (-2), as a struct; nothing is
    copied."""
    cdef Borrowed hidden
    if rows.array.offset != 0:
        raise ValueError("a batch whose struct has an offset")
    for i in range(count):
        if positions[i] < 0:
            hidden = late if positions[i] == -2 else times
            if hidden is None or hidden.array.length != rows.array.length:
                raise ValueError("as many times or late marks as rows are wanted")
            out.fields[i], out.columns[i] = hidden.schema, hidden.array
        elif positions[i] < rows.array.n_children and rows.schema.n_children == rows.array.n_children:
            out.fields[i], out.columns[i] = rows.schema.children[positions[i]], rows.array.children[positions[i]]
        else:
            raise ValueError(f"no column {positions[i]}")
    out.schema, out.array = rows.schema[0], rows.array[0]
    out.schema.children, out.schema.n_children = out.fields, count
    out.array.children, out.array.n_children = out.columns, count
    return 0
