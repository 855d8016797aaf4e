# The rest of a message of many parts of a ZeroMQ socket (multipart.h).

cdef extern from "base/multipart.h" nogil:
    ctypedef struct md_zmq:
        int (*msg_init)(void *msg) noexcept nogil
        int (*msg_recv)(void *msg, void *socket, int flags) noexcept nogil
        int (*msg_more)(const void *msg) noexcept nogil
        int (*msg_close)(void *msg) noexcept nogil
    int64_t md_drop_parts(const md_zmq *zmq, void *socket, int64_t most, int *last)


def drop_parts(calls, uintptr_t socket, int64_t most):
    """See ``medusa/_native.pyi``."""
    cdef md_zmq zmq
    cdef uintptr_t msg_init, msg_recv, msg_more, msg_close
    cdef int last = 0
    cdef int64_t taken
    msg_init, msg_recv, msg_more, msg_close = calls
    if not (msg_init and msg_recv and msg_more and msg_close and socket):
        raise ValueError("an address is 0")
    zmq.msg_init = <int (*)(void *) noexcept nogil>msg_init
    zmq.msg_recv = <int (*)(void *, void *, int) noexcept nogil>msg_recv
    zmq.msg_more = <int (*)(const void *) noexcept nogil>msg_more
    zmq.msg_close = <int (*)(void *) noexcept nogil>msg_close
    with nogil:
        taken = md_drop_parts(&zmq, <void *>socket, most, &last)
    return taken, last != 0
