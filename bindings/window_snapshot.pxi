# State that is copied while its window goes on: native/state/snapshot.h. Included after window.pxi.

cdef extern from "state/snapshot.h" nogil:
    ctypedef struct md_snapshot:
        pass

    md_rc md_snapshot_begin(md_window *w, int64_t number, int64_t base, md_snapshot **out, md_error *err)
    int64_t md_snapshot_base_rows(const md_snapshot *snapshot)
    md_rc md_snapshot_runs(const md_snapshot *snapshot, int64_t **pairs, int64_t *n)
    md_rc md_snapshot_copy(md_snapshot *snapshot, int64_t groups, md_error *err)
    int64_t md_snapshot_left(const md_snapshot *snapshot)
    md_rc md_snapshot_finish(md_snapshot *snapshot, ArrowSchema *schema, ArrowArray *array, md_error *err)
    void md_snapshot_free(md_snapshot *snapshot)


cdef class Snapshot:
    """The state of a window, copied in pieces while the window goes on."""

    cdef md_snapshot *_s
    cdef Window _window

    def __init__(self):
        raise TypeError("made by snapshot_of only")

    def __dealloc__(self):
        md_snapshot_free(self._s)

    @property
    def left(self):
        return md_snapshot_left(self._s)

    def copy(self, int64_t groups):
        cdef md_error err
        cdef md_rc rc
        enter(&self._window._busy)
        try:
            with nogil:
                rc = md_snapshot_copy(self._s, groups, &err)
            check(rc, &err)
        finally:
            self._window._busy = False

    @property
    def base_rows(self):
        return md_snapshot_base_rows(self._s)

    @property
    def partial(self):
        return md_snapshot_base_rows(self._s) >= 0

    def runs(self):
        cdef int64_t *pairs
        cdef int64_t n
        cdef md_rc rc
        if not self.partial:
            return None
        with nogil:
            rc = md_snapshot_runs(self._s, &pairs, &n)
        check(rc, NULL)
        return _pairs(pairs, n)

    def finish(self):
        cdef ArrowSchema schema
        cdef ArrowArray array
        cdef md_error err
        refuse_busy(self._window._busy)
        check(md_snapshot_finish(self._s, &schema, &array, &err), &err)
        return own(&schema, &array)


def snapshot_of(Window window not None, int64_t number=0, int64_t base=0):
    cdef Snapshot made
    cdef md_error err
    cdef md_rc rc
    refuse_busy(window._busy)
    made = Snapshot.__new__(Snapshot)
    rc = md_snapshot_begin(window._w, number, base, &made._s, &err)
    if rc == MD_EMPTY:
        return None
    check(rc, &err)
    made._window = window
    return made
