#include "check.h"
#include "base/multipart.h"

/* A socket with so many parts left of its message, of which it gives some. */
typedef struct {
    int left, gives, flags;
} fake;

static int open_msgs;

static int init(void *msg) {
    open_msgs++;
    *(int *)msg = 0;
    return 0;
}

static int receive(void *msg, void *socket, int flags) {
    fake *from = socket;
    from->flags = flags;
    if (from->gives-- <= 0) return -1;
    *(int *)msg = --from->left > 0;
    return 1;
}

static int more(const void *msg) {
    return *(const int *)msg;
}

static int close_msg(void *msg) {
    (void)msg;
    open_msgs--;
    return 0;
}

static const md_zmq ZMQ = {init, receive, more, close_msg};

static int test_it_ends_with_the_last_part(void) {
    fake socket = {5, 100, 0};
    int last = 0;
    CHECK(md_drop_parts(&ZMQ, &socket, 10, &last) == 5);
    CHECK(last && socket.left == 0 && socket.flags == 1 && open_msgs == 0);
    return 0;
}

static int test_it_takes_no_more_than_it_may(void) {
    fake socket = {5, 100, 0};
    int last = 1;
    CHECK(md_drop_parts(&ZMQ, &socket, 4, &last) == 4);
    CHECK(!last && socket.left == 1);
    CHECK(md_drop_parts(&ZMQ, &socket, 0, &last) == 0);
    CHECK(!last && socket.left == 1);
    CHECK(md_drop_parts(&ZMQ, &socket, 1, &last) == 1);
    CHECK(last && open_msgs == 0);
    return 0;
}

static int test_a_part_that_is_refused_ends_it(void) {
    fake socket = {5, 2, 0};
    int last = 1;
    CHECK(md_drop_parts(&ZMQ, &socket, 10, &last) == 2);
    CHECK(!last && open_msgs == 0);
    return 0;
}

TEST_MAIN(TEST(test_it_ends_with_the_last_part), TEST(test_it_takes_no_more_than_it_may),
          TEST(test_a_part_that_is_refused_ends_it))
