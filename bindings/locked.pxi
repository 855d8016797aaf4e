# A call with two locks held, from which no signal can take one away.


cdef class Locked:
    """Calls with two locks held. See ``medusa/_native.pyi``.

    Python looks for signals between its own steps, and there are none of those here: a lock that was acquired
    is released.
    """

    cdef object _acquire_first, _release_first, _acquire_second, _release_second

    def __init__(self, first, second):
        self._acquire_first, self._release_first = first.acquire, first.release
        self._acquire_second, self._release_second = second.acquire, second.release

    def __call__(self, work, *arguments):
        if not self._acquire_first(False):
            return None
        try:
            self._acquire_second()
            try:
                return work(*arguments)
            finally:
                self._release_second()
        finally:
            self._release_first()
