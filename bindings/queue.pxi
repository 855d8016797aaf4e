# The train queue (queue.h).


cdef extern from "base/queue.h" nogil:
    ctypedef struct md_queue:
        pass

    md_rc md_queue_new(uint64_t bytes_max, uint64_t trains_max, md_queue **out, md_error *err)
    void md_queue_free(md_queue *q)
    md_rc md_queue_push(md_queue *q, uint64_t train_id, uint64_t nbytes, md_error *err)
    md_rc md_queue_reader(md_queue *q, uint32_t *reader, md_error *err)
    md_rc md_queue_next(md_queue *q, uint32_t reader, uint64_t *train_id, md_error *err)
    md_rc md_queue_close(md_queue *q, uint32_t reader, md_error *err)
    uint64_t md_queue_passed(const md_queue *q)
    md_rc md_queue_trim(md_queue *q, uint64_t n, uint64_t *train_ids, md_error *err)
    uint64_t md_queue_bytes(const md_queue *q)
    uint64_t md_queue_trains(const md_queue *q)


cdef class Queue:
    """A bounded queue of train ids with a cursor per reader. One thread at a time."""

    cdef md_queue *_q  # Cython starts it at NULL

    def __cinit__(self, *, uint64_t bytes_max, uint64_t trains_max=1 << 20):
        cdef md_error err
        check(md_queue_new(bytes_max, trains_max, &self._q, &err), &err)

    def __dealloc__(self):
        md_queue_free(self._q)

    def push(self, uint64_t train_id, uint64_t nbytes):
        """Append; False when it would exceed a bound, and then nothing was stored."""
        cdef md_error err
        cdef md_rc rc = md_queue_push(self._q, train_id, nbytes, &err)
        if rc == MD_FULL:
            return False
        check(rc, &err)
        return True

    def reader(self):
        """A new reader, at the oldest train held; its number."""
        cdef md_error err
        cdef uint32_t number
        check(md_queue_reader(self._q, &number, &err), &err)
        return number

    def next(self, uint32_t reader):
        """The reader's next train id, or None; moves the reader on."""
        cdef md_error err
        cdef uint64_t train_id
        cdef md_rc rc = md_queue_next(self._q, reader, &train_id, &err)
        if rc == MD_EMPTY:
            return None
        check(rc, &err)
        return train_id

    def close(self, uint32_t reader):
        """End a reader: it holds nothing back any more."""
        cdef md_error err
        check(md_queue_close(self._q, reader, &err), &err)

    def trim(self):
        """Drop and return the ids that every reader has passed (all of them without readers)."""
        cdef md_error err
        cdef Py_ssize_t n = md_queue_passed(self._q)
        if n == 0:
            return []
        cdef uint64_t *ids = <uint64_t *>md_calloc(n, sizeof(uint64_t))
        if ids is NULL:
            raise MemoryError("out of memory")
        try:
            # The list is made last but one: when it fails, nothing was dropped.
            out = [None] * n
            check(md_queue_trim(self._q, n, ids, &err), &err)
            for i in range(n):
                out[i] = ids[i]
            return out
        finally:
            md_free(ids)

    @property
    def nbytes(self):
        return md_queue_bytes(self._q)

    def __len__(self):
        return md_queue_trains(self._q)
