# Expressions and filters in one pass (program.h).

from libc.string cimport memcpy


cdef extern from "program/program.h" nogil:
    ctypedef int md_register
    int MD_PROGRAM_REGISTERS
    int MD_PROGRAM_STEPS
    int MD_PROGRAM_COLUMNS

    ctypedef struct md_step:
        int32_t op
        int32_t dst
        int32_t a
        int32_t b
        int32_t c

    ctypedef struct md_output:
        int32_t reg
        const char *format
        const char *name

    ctypedef struct md_program_config:
        const md_step *steps
        int32_t n_steps
        const md_type *columns
        int32_t n_columns
        const int64_t *constants
        const md_register *constant_kinds
        int32_t n_constants
        const md_output *outputs
        int32_t n_outputs

    ctypedef struct md_program:
        pass

    md_rc md_program_new(const md_program_config *config, md_program **out, md_error *err)
    void md_program_free(md_program *p)
    int32_t md_program_filters(const md_program *p)
    size_t md_program_bytes(const md_program *p)
    md_rc md_program_run(md_program *p, const ArrowSchema *rows_schema, const ArrowArray *rows, ArrowSchema *schema,
                         ArrowArray *array, int64_t *kept, md_error *err)
    md_rc md_program_into(md_program *p, const ArrowSchema *rows_schema, const ArrowArray *rows, md_window *w,
                          const int64_t *extent, int64_t *kept, md_error *err)
    void md_program_baseline(md_program *p)


cdef class Program:
    """A straight-line program over the columns of batches."""

    cdef md_program *_p
    cdef bint _busy
    cdef bint _picks
    cdef int _count
    cdef int _positions[256]  # of the columns in a batch; -1: the times; -2: the late marks

    def __cinit__(self, *, columns, steps, constants, outputs, positions=None, baseline=False):
        cdef md_step made[4096]
        cdef md_type types[256]
        cdef int64_t values[256]
        cdef md_register kinds[256]
        cdef md_output wanted[256]
        cdef md_program_config config
        cdef md_error err
        cdef double number
        columns, steps, constants, outputs = tuple(columns), tuple(steps), tuple(constants), tuple(outputs)
        if len(steps) > 4096 or len(columns) > 256 or len(constants) > 256 or len(outputs) > 256:
            raise ValueError("at most 4096 steps, 256 columns, 256 constants and 256 outputs")
        for i, (op, dst, a, b, c) in enumerate(steps):
            made[i] = md_step(op, dst, a, b, c)
        for i, letter in enumerate(columns):
            types[i] = ord(letter)
        for i, (kind, value) in enumerate(constants):
            if kind not in ("l", "g", "b"):
                raise ValueError(f"constant {i}: kind {kind!r}, one of l g b")
            kinds[i] = "lgb".index(kind)
            if kind == "g":
                number = value
                memcpy(&values[i], &number, 8)
            else:
                values[i] = value
        texts = [(format.encode(), name.encode()) for _, format, name in outputs]
        for i, (reg, _, _) in enumerate(outputs):
            wanted[i].reg = reg
            wanted[i].format = texts[i][0]
            wanted[i].name = texts[i][1]
        config.steps = made
        config.n_steps = len(steps)
        config.columns = types
        config.n_columns = len(columns)
        config.constants = values
        config.constant_kinds = kinds
        config.n_constants = len(constants)
        config.outputs = wanted
        config.n_outputs = len(outputs)
        check(md_program_new(&config, &self._p, &err), &err)
        self._picks = positions is not None
        self._count = len(columns)
        if self._picks:
            if len(positions) != len(columns):
                raise ValueError("as many positions as columns are wanted")
            for i, position in enumerate(positions):
                self._positions[i] = position
        if baseline:
            md_program_baseline(self._p)

    def __dealloc__(self):
        md_program_free(self._p)

    @property
    def nbytes(self):
        """Bytes that it holds while it doesn't run."""
        return md_program_bytes(self._p) + sizeof(self._positions)

    def run(self, rows, times=None, late=None):
        """(Batch of the outputs, rows behind each filter); None where a row failed."""
        cdef Borrowed source, hidden = None, marks = None
        cdef md_error err
        cdef ArrowSchema schema
        cdef ArrowArray array
        cdef Picked picked
        cdef const ArrowSchema *wanted_schema
        cdef const ArrowArray *wanted
        cdef int64_t kept[4096]
        cdef md_rc rc
        enter(&self._busy)
        try:
            source = borrow(rows)
            if times is not None:
                hidden = borrow(times)
            if late is not None:
                marks = borrow(late)
            wanted_schema, wanted = source.schema, source.array
            if self._picks:
                pick(source, hidden, self._positions, self._count, &picked, marks)
                wanted_schema, wanted = &picked.schema, &picked.array
            if wanted.length < MANY_ROWS:
                rc = md_program_run(self._p, wanted_schema, wanted, &schema, &array, kept, &err)
            else:
                with nogil:
                    rc = md_program_run(self._p, wanted_schema, wanted, &schema, &array, kept, &err)
            if rc == MD_EMPTY:
                return None
            check(rc, &err)
            batch = own(&schema, &array)
            return batch, [kept[i] for i in range(md_program_filters(self._p))]
        finally:
            self._busy = False

    def into(self, Window window not None, rows, times=None, late=None, extent=None):
        """Add the outputs to a window; the rows behind each filter. None, and nothing added: a row failed."""
        cdef Borrowed source, hidden = None, marks = None
        cdef md_error err
        cdef Picked picked
        cdef const ArrowSchema *wanted_schema
        cdef const ArrowArray *wanted
        cdef int64_t kept[4096]
        cdef int64_t bounds[2]
        cdef const int64_t *known = NULL
        cdef md_rc rc
        if extent is not None:
            bounds[0], bounds[1] = extent
            known = bounds
        enter(&self._busy)
        try:
            enter(&window._busy)
            try:
                source = borrow(rows)
                if times is not None:
                    hidden = borrow(times)
                if late is not None:
                    marks = borrow(late)
                wanted_schema, wanted = source.schema, source.array
                if self._picks:
                    pick(source, hidden, self._positions, self._count, &picked, marks)
                    wanted_schema, wanted = &picked.schema, &picked.array
                if wanted.length < MANY_ROWS:
                    rc = md_program_into(self._p, wanted_schema, wanted, window._w, known, kept, &err)
                else:
                    with nogil:
                        rc = md_program_into(self._p, wanted_schema, wanted, window._w, known, kept, &err)
                if rc == MD_EMPTY:
                    return None
                check(rc, &err)
                return [kept[i] for i in range(md_program_filters(self._p))]
            finally:
                window._busy = False
        finally:
            self._busy = False
