#include "base/multipart.h"

#define DONTWAIT 1 /* ZMQ_DONTWAIT */

/* zmq_msg_t, as zmq.h declares it. */
typedef union md_zmq_msg {
    unsigned char bytes[64];
    void *aligned;
} md_zmq_msg;

int64_t md_drop_parts(const md_zmq *zmq, void *socket, int64_t most, int *last) {
    md_zmq_msg msg;
    int64_t taken = 0;
    *last = 0;
    if (zmq->msg_init(&msg) != 0) return 0;
    while (taken < most && !*last) {
        if (zmq->msg_recv(&msg, socket, DONTWAIT) < 0) break;
        taken++;
        *last = zmq->msg_more(&msg) == 0;
    }
    zmq->msg_close(&msg);
    return taken;
}
