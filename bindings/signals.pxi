# Handlers of signals, exchanged for a while, so that none of them breaks off what must be done whole.

import _signal
from sys import _getframe

from cpython.ref cimport PyObject


cdef extern from "Python.h":
    unsigned long PyThread_get_thread_ident()
    int PyCallable_Check(PyObject *)
    PyObject *call_object "PyObject_Call" (PyObject *, PyObject *, PyObject *)
    PyObject *pack "PyTuple_Pack" (Py_ssize_t, PyObject *, PyObject *)
    void drop "Py_DecRef" (PyObject *)
    void PyErr_Fetch(PyObject **, PyObject **, PyObject **)
    void PyErr_NormalizeException(PyObject **, PyObject **, PyObject **)
    int PyException_SetTraceback(PyObject *, PyObject *)
    void *PyCFunction_GetFunction(object) except NULL
    int PyCFunction_GetFlags(object) except -1
    PyObject *PyCFunction_GetSelf(object) except? NULL
    enum:
        METH_O
        METH_FASTCALL


cdef enum:
    SIGNALS_MAX = 16

# What stands behind functions of C that take one argument, and a counted row of them.
ctypedef PyObject *(*taking_one)(PyObject *module, PyObject *argument) noexcept
ctypedef PyObject *(*taking_row)(PyObject *module, PyObject **arguments, Py_ssize_t count) noexcept


cdef class SignalGate:
    """Defers the Python handlers of signals while it is held. See ``medusa/_native.pyi``.

    Close to C where nothing has come, since each push of a small batch passes here twice.
    """

    cdef object _passes, _get, _put
    cdef PyObject *_module
    cdef taking_one _get_quickly  # NULL where this Python's getsignal is called in another way
    cdef taking_row _put_quickly
    cdef list _numbers, _came
    cdef PyObject *_number[SIGNALS_MAX]
    cdef PyObject *_handler[SIGNALS_MAX]  # what is replaced at this moment, owned; or NULL
    cdef int _count, _depth
    cdef unsigned long _thread
    cdef readonly bint passed

    def __init__(self, signals, unsigned long thread, passes):
        cdef int place
        if self._count or not 1 <= len(signals) <= SIGNALS_MAX:
            raise ValueError(f"one to {SIGNALS_MAX} signals, told once")
        self._numbers = [int(each) for each in signals]
        for place in range(len(self._numbers)):
            self._number[place] = <PyObject *>self._numbers[place]
        self._came = []
        self._thread = thread
        self._passes = passes
        self._get, self._put = _signal.getsignal, _signal.signal
        self._module = PyCFunction_GetSelf(self._get)
        if PyCFunction_GetFlags(self._get) == METH_O:
            self._get_quickly = <taking_one>PyCFunction_GetFunction(self._get)
        if PyCFunction_GetFlags(self._put) == METH_FASTCALL:
            self._put_quickly = <taking_row>PyCFunction_GetFunction(self._put)
        self._count = len(self._numbers)

    def __dealloc__(self):
        self._forget()

    def hold(self):
        if PyThread_get_thread_ident() != self._thread:
            return
        if self._depth == 0:
            self.passed = False
            self._close()
        self._depth += 1

    def release(self):
        if PyThread_get_thread_ident() != self._thread or self._depth == 0:
            return
        if self._depth == 1:
            self._open()
        else:
            self._depth -= 1

    def __enter__(self):
        self.hold()

    def __exit__(self, kind, error, trace):
        self.release()

    def check(self):
        if self._came and self._depth and PyThread_get_thread_ident() == self._thread:
            self._call(None)

    @property
    def came(self):
        return bool(self._came) and self.held

    @property
    def held(self):
        return self._depth > 0 and PyThread_get_thread_ident() == self._thread

    def forked(self, unsigned long thread):
        self._thread = thread
        self._came = []
        if self._depth:
            self._open()

    def __call__(self, signum, frame):
        again = signum in self._came
        handler = self._handler_of(signum)
        if handler is None or not self._passes(signum, again):
            if not again:
                self._came.append(signum)
            return
        if again:
            self._came.remove(signum)
        try:
            handler(signum, frame)
        except BaseException:
            self.passed = True
            raise

    cdef object _handler_of(self, signum):
        cdef PyObject *handler = self._handler[self._numbers.index(signum)]
        return None if handler is NULL else <object>handler

    cdef void _forget(self) noexcept:
        cdef int place
        for place in range(self._count):
            if self._handler[place] is not NULL:
                drop(self._handler[place])
                self._handler[place] = NULL

    cdef PyObject *_handler_now(self, int place) noexcept:
        """What ``getsignal`` says, owned; NULL: it has raised."""
        if self._get_quickly is not NULL:
            return self._get_quickly(self._module, self._number[place])
        return called(<PyObject *>self._get, pack(1, self._number[place], NULL))

    cdef PyObject *_exchange(self, int place, PyObject *handler) noexcept:
        """What ``signal`` gives back, owned; NULL: it, or the handler of a signal that has come, has raised."""
        cdef PyObject *pair[2]
        if self._put_quickly is not NULL:
            pair[0], pair[1] = self._number[place], handler
            return self._put_quickly(self._module, pair, 2)
        return called(<PyObject *>self._put, pack(2, self._number[place], handler))

    cdef int _close(self) except -1:
        cdef PyObject *found
        cdef int place
        cdef object error
        for place in range(self._count):
            found = self._handler_now(place)
            if found is not NULL and PyCallable_Check(found) and found is not <PyObject *>self:
                self._handler[place] = found
                found = self._exchange(place, <PyObject *>self)
            if found is NULL:  # the handler of a signal that came just before has raised: nothing has begun
                error = caught()
                self._open()
                raise error
            drop(found)
        return 0

    cdef int _open(self) except -1:
        """Put every handler back, then call those of the signals that came; raise the first error."""
        cdef PyObject *found
        cdef int place
        cdef object error = None
        for place in range(self._count):
            if self._handler[place] is NULL:
                continue
            found = NULL
            while found is NULL:  # signals that have come are handled first, where one that is back may raise
                found = self._exchange(place, self._handler[place])
                if found is NULL:
                    raised = caught()
                    error = raised if error is None else error
            if found is not <PyObject *>self:  # somebody set another meanwhile, on purpose
                self._set(self._numbers[place], <object>found)
            drop(found)
        self._depth = 0
        if self._came or error is not None:
            self._call(error)
        self._forget()
        return 0

    cdef int _set(self, signum, handler) except -1:
        if handler is not None:
            self._put(signum, handler)
        return 0

    cdef int _call(self, error) except -1:
        """Call the handlers of the signals that came, all of them; raise the first error."""
        while self._came:
            signum = self._came.pop(0)
            handler = self._handler_of(signum)
            try:
                if handler is not None:
                    handler(signum, _getframe())
            except BaseException as raised:
                error = raised if error is None else error
        if error is not None:
            if not self._depth:
                self._forget()
            raise error
        return 0


cdef PyObject *called(PyObject *function, PyObject *arguments) noexcept:
    """Takes the arguments over, which may be NULL: then so is the answer."""
    cdef PyObject *found = NULL
    if arguments is not NULL:
        found = call_object(function, arguments, NULL)
        drop(arguments)
    return found


cdef object caught():
    """The error that a call has just raised; it is no longer raised."""
    cdef PyObject *kind = NULL
    cdef PyObject *error = NULL
    cdef PyObject *trace = NULL
    PyErr_Fetch(&kind, &error, &trace)
    PyErr_NormalizeException(&kind, &error, &trace)
    if trace is not NULL:
        PyException_SetTraceback(error, trace)
    out = <object>error
    drop(kind)
    drop(error)
    if trace is not NULL:
        drop(trace)
    return out
