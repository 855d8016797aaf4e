/* Drops the rest of a message of many parts that a socket of libzmq gives.
 *
 * libzmq isn't linked: it lies beside the Python package that brings it, and who calls hands over its functions. */
#ifndef MD_MULTIPART_H
#define MD_MULTIPART_H

#include "base/md_base.h"

/* Functions of libzmq 4; `msg` is a zmq_msg_t. */
typedef struct md_zmq {
    int (*msg_init)(void *msg);
    int (*msg_recv)(void *msg, void *socket, int flags);
    int (*msg_more)(const void *msg);
    int (*msg_close)(void *msg);
} md_zmq;

/* Takes and drops at most `most` parts, without waiting; how many it took. *last: the last of them ends the
 * message. Fewer, and none that ends it: libzmq refused to give one. The socket's thread only. */
int64_t md_drop_parts(const md_zmq *zmq, void *socket, int64_t most, int *last);

#endif
