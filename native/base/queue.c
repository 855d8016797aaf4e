#include "base/queue.h"

#include "base/md_alloc.h"

typedef struct slot {
    uint64_t train_id;
    uint64_t nbytes;
} slot;

typedef struct cursor {
    uint64_t position; /* of the next train to read */
    uint32_t number;
} cursor;

struct md_queue {
    uint64_t bytes_max, trains_max;
    uint64_t head, tail;
    uint64_t bytes;
    slot *slots;
    uint64_t capacity; /* 0 or a power of two */
    cursor *readers;   /* few: found by looking at each */
    uint32_t reader_count, reader_capacity;
    uint32_t reader_next; /* the number of the next reader */
};

md_rc md_queue_new(uint64_t bytes_max, uint64_t trains_max, md_queue **out, md_error *err) {
    if (bytes_max < 1) return md_fail(err, MD_BADARG, "bytes_max must be at least 1");
    if (trains_max < 1 || trains_max > (uint64_t)1 << 32)
        return md_fail(err, MD_BADARG, "trains_max must be in [1, 2^32]");
    md_queue *q = md_calloc(1, sizeof *q);
    if (q == NULL) return md_nomem(err);
    q->bytes_max = bytes_max;
    q->trains_max = trains_max;
    *out = q;
    return MD_OK;
}

void md_queue_free(md_queue *q) {
    if (q == NULL) return;
    md_free(q->slots);
    md_free(q->readers);
    md_free(q);
}

static slot *at(const md_queue *q, uint64_t position) { return &q->slots[position & (q->capacity - 1)]; }

/* Twice the room; positions keep their meaning, so each train moves to its slot of the new ring. */
static md_rc grow(md_queue *q, md_error *err) {
    uint64_t capacity = q->capacity != 0 ? 2 * q->capacity : 16;
    size_t size;
    if (!md_mul_size(capacity, sizeof(slot), &size)) return md_nomem(err);
    slot *slots = md_malloc(size);
    if (slots == NULL) return md_nomem(err);
    for (uint64_t p = q->head; p != q->tail; p++) slots[p & (capacity - 1)] = *at(q, p);
    md_free(q->slots);
    q->slots = slots;
    q->capacity = capacity;
    return MD_OK;
}

md_rc md_queue_push(md_queue *q, uint64_t train_id, uint64_t nbytes, md_error *err) {
    uint64_t trains = q->tail - q->head;
    bool fits = q->bytes <= q->bytes_max && nbytes <= q->bytes_max - q->bytes;
    if (trains == q->trains_max || (trains != 0 && !fits)) return MD_FULL;
    if (trains == q->capacity) {
        md_rc rc = grow(q, err);
        if (rc != MD_OK) return rc;
    }
    *at(q, q->tail) = (slot){train_id, nbytes};
    q->tail++;
    q->bytes += nbytes;
    return MD_OK;
}

md_rc md_queue_reader(md_queue *q, uint32_t *reader, md_error *err) {
    if (q->reader_next == UINT32_MAX) return md_fail(err, MD_BADARG, "the numbers for readers are used up");
    if (q->reader_count == q->reader_capacity) {
        uint32_t capacity = q->reader_capacity != 0 ? 2 * q->reader_capacity : 4;
        cursor *bigger = md_realloc(q->readers, (size_t)capacity * sizeof *bigger);
        if (bigger == NULL) return md_nomem(err);
        q->readers = bigger;
        q->reader_capacity = capacity;
    }
    q->readers[q->reader_count++] = (cursor){.position = q->head, .number = q->reader_next};
    *reader = q->reader_next++;
    return MD_OK;
}

static cursor *find(md_queue *q, uint32_t reader, md_error *err) {
    for (uint32_t i = 0; i < q->reader_count; i++)
        if (q->readers[i].number == reader) return &q->readers[i];
    md_fail(err, MD_BADARG, "the queue has no open reader %lu", (unsigned long)reader);
    return NULL;
}

md_rc md_queue_next(md_queue *q, uint32_t reader, uint64_t *train_id, md_error *err) {
    cursor *c = find(q, reader, err);
    if (c == NULL) return MD_BADARG;
    if (c->position == q->tail) return MD_EMPTY;
    *train_id = at(q, c->position)->train_id;
    c->position++;
    return MD_OK;
}

md_rc md_queue_close(md_queue *q, uint32_t reader, md_error *err) {
    cursor *c = find(q, reader, err);
    if (c == NULL) return MD_BADARG;
    *c = q->readers[--q->reader_count];
    return MD_OK;
}

uint64_t md_queue_passed(const md_queue *q) {
    uint64_t least = q->tail;
    for (uint32_t i = 0; i < q->reader_count; i++)
        if (q->readers[i].position < least) least = q->readers[i].position;
    return least - q->head;
}

md_rc md_queue_trim(md_queue *q, uint64_t n, uint64_t *train_ids, md_error *err) {
    if (n > md_queue_passed(q)) return md_fail(err, MD_BADARG, "a reader has not passed these trains yet");
    for (uint64_t i = 0; i < n; i++) {
        const slot *oldest = at(q, q->head++);
        train_ids[i] = oldest->train_id;
        q->bytes -= oldest->nbytes;
    }
    return MD_OK;
}

uint64_t md_queue_bytes(const md_queue *q) { return q->bytes; }
uint64_t md_queue_trains(const md_queue *q) { return q->tail - q->head; }
