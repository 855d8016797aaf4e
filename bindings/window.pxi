# Windows: native/window/window.h and native/state/state.h.
cdef dict _STAGES = {"whole": MD_WHOLE, "partial": MD_PARTIAL, "combine": MD_COMBINE}


cdef class Window:
    """Groups and accumulators of a tumbling or sliding window, in panes."""

    cdef md_window *_w
    cdef int _picked[256]
    cdef int _count
    cdef readonly int spreading  # slots of the add under way; 0: none is
    cdef bint _busy
    cdef tuple _spread  # its rows

    def __cinit__(self, *, int64_t size_us, int64_t advance_us, keys, inputs, aggregates, stage="whole",
                  bint positions=False, uint64_t seed=0):
        cdef md_type key_types[64]
        cdef md_type input_types[1024]
        cdef md_aggregate calls[1024]
        cdef md_window_config config
        cdef md_error err
        keys, inputs, aggregates = tuple(keys), tuple(inputs), tuple(aggregates)
        if len(keys) > 64 or len(inputs) > 1024 or len(aggregates) > 1024:
            raise ValueError("at most 64 keys, 1024 inputs and 1024 aggregates")
        if stage not in _STAGES:
            raise ValueError(f"stage {stage!r}: one of {', '.join(_STAGES)}")
        _types(keys, key_types)
        _types(inputs, input_types)
        _calls(aggregates, calls)
        config.size_us = size_us
        config.advance_us = advance_us
        config.keys, config.n_keys = key_types, len(keys)
        config.inputs, config.n_inputs = input_types, len(inputs)
        config.aggregates, config.n_aggregates = calls, len(aggregates)
        config.stage = <md_stage><int>_STAGES[stage]
        config.positions = positions
        config.seed = seed
        check(md_window_new(&config, &self._w, &err), &err)

    def __dealloc__(self):
        md_window_free(self._w)

    def read_from(self, positions):
        if len(positions) > 256:
            raise ValueError("at most 256 columns")
        for i, position in enumerate(positions):
            self._picked[i] = position
        self._count = len(positions)

    def add(self, rows, times=None):
        cdef Borrowed source
        cdef md_error err
        cdef md_rc rc
        cdef Picked picked
        cdef const ArrowSchema *schema
        cdef const ArrowArray *array
        enter(&self._busy)
        try:
            source = borrow(rows)
            schema, array = source.schema, source.array
            if times is not None:
                hidden = borrow(times)
                pick(source, hidden, self._picked, self._count, &picked)
                schema, array = &picked.schema, &picked.array
            if array.length < 256:
                rc = md_window_add(self._w, schema, array, &err)
            else:
                with nogil:
                    rc = md_window_add(self._w, schema, array, &err)
            check(rc, &err)
        finally:
            self._busy = False

    def add_part(self, Split split not None, int part):
        cdef md_error err
        cdef md_rc rc
        cdef Borrowed source = split.given(part)
        enter(&self._busy)
        try:
            with nogil:
                rc = md_window_add_part(self._w, source.schema, source.array, split._s, part, &err)
            check(rc, &err)
        finally:
            self._busy = False

    def add_at(self, rows, positions, int64_t taken):
        cdef md_column column
        cdef md_error err
        cdef md_rc rc
        cdef Borrowed source, given
        enter(&self._busy)
        try:
            source = borrow(rows)
            given = borrow(positions)
            check(md_column_view(given.schema, given.array, &column, &err), &err)
            with nogil:
                rc = md_window_add_at(self._w, source.schema, source.array, &column, taken, &err)
            check(rc, &err)
        finally:
            self._busy = False

    def spread(self, rows, times, int slots):
        cdef Borrowed source
        cdef md_error err
        cdef md_rc rc
        cdef Picked picked
        cdef const ArrowSchema *schema
        cdef const ArrowArray *array
        cdef int64_t largest
        cdef Borrowed hidden = None
        if slots < 1:
            raise ValueError("at least one slot")
        enter(&self._busy)
        try:
            source = borrow(rows)
            schema, array = source.schema, source.array
            if times is not None:
                hidden = borrow(times)
                pick(source, hidden, self._picked, self._count, &picked)
                schema, array = &picked.schema, &picked.array
            with nogil:
                rc = md_window_spread(self._w, schema, array, slots, &largest, &err)
            check(rc, &err)
        except BaseException:
            self._busy = False
            raise
        self._spread, self.spreading = (source, hidden), slots
        return largest

    cdef int _place(self, int place) except -1:
        if not 0 <= place < self.spreading:
            raise ValueError("there is no such place")
        return place

    def spread_map(self, int place):
        self._place(place)
        with nogil:
            md_window_spread_map(self._w, place)

    def spread_fill(self, int place):
        self._place(place)
        if md_window_spread_mapped(self._w):
            with nogil:
                md_window_spread_fill(self._w, place)

    def spread_end(self):
        cdef md_error err
        cdef md_rc rc
        if self.spreading == 0:
            raise ValueError("no rows are being spread")
        rc = md_window_spread_end(self._w, &err)
        self.spreading = 0
        self._spread = None
        self._busy = False
        check(rc, &err)

    cdef list _ready(self):
        cdef ArrowSchema schema
        cdef ArrowArray array
        cdef list out = []
        while md_window_take(self._w, &schema, &array) == MD_OK:
            out.append(own(&schema, &array))
        return out

    def close(self, int64_t boundary_us):
        cdef md_error err
        cdef md_rc rc
        enter(&self._busy)
        try:
            with nogil:
                rc = md_window_close(self._w, boundary_us, &err)
            check(rc, &err)
            return self._ready()
        finally:
            self._busy = False

    def early(self):
        cdef md_error err
        cdef md_rc rc
        enter(&self._busy)
        try:
            with nogil:
                rc = md_window_early(self._w, &err)
            check(rc, &err)
            return self._ready()
        finally:
            self._busy = False

    def failed(self):
        cdef ArrowSchema schema
        cdef ArrowArray array
        cdef md_rc rc
        refuse_busy(self._busy)
        rc = md_window_failed(self._w, &schema, &array)
        if rc == MD_EMPTY:
            return None
        check(rc, NULL)
        return own(&schema, &array)

    def next_end_us(self):
        refuse_busy(self._busy)
        return md_window_next_end(self._w)

    def oldest_open_us(self):
        cdef int64_t start
        refuse_busy(self._busy)
        return start if md_window_oldest_open(self._w, &start) else None

    def groups_open(self):
        refuse_busy(self._busy)
        return md_window_groups_open(self._w)

    def rows_open(self):
        refuse_busy(self._busy)
        return md_window_rows_open(self._w)

    def nbytes(self):
        refuse_busy(self._busy)
        return md_window_nbytes(self._w)

    def trim(self):
        refuse_busy(self._busy)
        md_window_trim(self._w)

    def state(self):
        cdef ArrowSchema schema
        cdef ArrowArray array
        cdef md_error err
        cdef md_rc rc
        enter(&self._busy)
        try:
            with nogil:
                rc = md_window_state(self._w, &schema, &array, &err)
            check(rc, &err)
            return own(&schema, &array)
        finally:
            self._busy = False

    def position(self):
        refuse_busy(self._busy)
        return md_window_boundary(self._w), md_window_taken(self._w)

    def load(self, state, int64_t boundary_us, int64_t taken):
        cdef Borrowed source
        cdef md_error err
        cdef md_rc rc
        enter(&self._busy)
        try:
            source = borrow(state)
            with nogil:
                rc = md_window_load(self._w, source.schema, source.array, boundary_us, taken, &err)
            check(rc, &err)
        finally:
            self._busy = False
