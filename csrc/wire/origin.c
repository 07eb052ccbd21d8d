/* An origin: the accesses of a process to parts on other nodes.
 *
 * A put returns at once and is kept until it is acknowledged; a flush waits for that. A get waits
 * for its bytes, an atomic for its answer. A lock or unlock is begun by one call and finished by
 * another, so that several can be under way. An unlock is sent when all puts before it are
 * acknowledged: otherwise a death could lose puts up to the horizon.
 *
 * A call that ends with FTRMA_ALARM or FTRMA_TIMEOUT may be made again.  Some bytes of a put may then
 * be sent twice, which does no harm.
 */
#include "origin_state.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "await.h"
#include "message.h"
#include "retransmit.h"
#include "sum.h"

#define MOST_KEPT (4u << 20) /* bytes that may wait for an acknowledgement of one target */

static int is_acknowledged(const struct ftrma_origin *o, uint32_t target)
{
    return o->targets[target].kept.from == o->targets[target].kept.to;
}

static int has_room(const struct ftrma_origin *o, uint32_t target)
{
    return o->targets[target].kept.to - o->targets[target].kept.from < MOST_KEPT;
}

static int is_answered(const struct ftrma_origin *o, uint32_t target)
{
    return !o->targets[target].asked;
}

static int check(const struct ftrma_origin *o, uint32_t target)
{
    if (target >= o->ntargets)
        return -EINVAL;
    /* Another request now could make the agent see a gap in the numbers. */
    return o->targets[target].asked || o->targets[target].answered ? -EBUSY : 0;
}

/* ---- puts and gets ---- */

/* Take as many runs from a list as fit into one message. [in/out] i, skip: the run with which to go
   on, and its bytes that were taken before. [out] bytes: of all runs taken. Returns the number of
   runs taken. */
static size_t cut(const struct ftrma_wire_run *runs, size_t n, size_t *i, uint64_t *skip,
                  struct ftrma_wire_run *taken, size_t most, size_t *bytes)
{
    size_t count = 0;
    for (*bytes = 0; *i < n && count < FTRMA_WIRE_SENT_RUNS && *bytes < most; count++) {
        uint64_t left = runs[*i].bytes - *skip, room = most - *bytes;
        taken[count] = (struct ftrma_wire_run){runs[*i].offset + *skip, left < room ? left : room};
        *bytes += taken[count].bytes;
        *skip += taken[count].bytes;
        if (*skip == runs[*i].bytes) {
            ++*i;
            *skip = 0;
        }
    }
    return count;
}

/* Send one PUT, PUTV or SET. Its payload is `ahead` bytes of runs, then the data. */
static int put(struct ftrma_origin *o, uint32_t target, struct ftrma_wire_head *head,
               const void *runs, size_t ahead, const void *data, size_t bytes)
{
    int result = has_room(o, target)
                     ? FTRMA_OK
                     : ftrma_await(o, o->targets[target].node, has_room, target);
    if (result)
        return result;
    if (!o->nodes[o->targets[target].node].connection)
        ftrma_await_connect(o, o->targets[target].node, ftrma_await_deadline(o));
    head->length = (uint32_t)(ahead + bytes);
    char *payload;
    struct ftrma_wire_head *kept = ftrma_retransmit_add(o, target, head, &payload);
    if (!kept)
        return -ENOMEM;
    if (ahead) {
        memcpy(payload, runs, ahead);
        memcpy(payload + ahead, data, bytes);
    } else if (bytes) {
        kept->payload_sum = ftrma_sum_copy(payload, data, bytes);
    }
    ftrma_retransmit_send(o, target, kept, payload);
    return FTRMA_OK;
}

int ftrma_origin_put(struct ftrma_origin *o, uint32_t target, uint32_t window, uint64_t offset,
                     const void *data, size_t bytes)
{
    int result = check(o, target);
    for (size_t at = 0, n; !result && at < bytes; at += n) {
        n = bytes - at < FTRMA_WIRE_PAYLOAD_BYTES ? bytes - at : FTRMA_WIRE_PAYLOAD_BYTES;
        struct ftrma_wire_head head = {
            .kind = FTRMA_WIRE_PUT, .window = window, .offset = offset + at};
        result = put(o, target, &head, NULL, 0, (const char *)data + at, n);
    }
    return result;
}

int ftrma_origin_putv(struct ftrma_origin *o, uint32_t target, uint32_t window,
                      const struct ftrma_wire_run *runs, size_t n, const void *data)
{
    struct ftrma_wire_run taken[FTRMA_WIRE_SENT_RUNS];
    int result = check(o, target);
    uint64_t skip = 0;
    for (size_t i = 0, bytes; !result && i < n; data = (const char *)data + bytes) {
        size_t count =
            cut(runs, n, &i, &skip, taken, FTRMA_WIRE_PAYLOAD_BYTES - sizeof taken, &bytes);
        struct ftrma_wire_head head = {
            .kind = FTRMA_WIRE_PUTV, .window = window, .operand = count};
        result = put(o, target, &head, taken, count * sizeof *taken, data, bytes);
    }
    return result;
}

int ftrma_origin_get(struct ftrma_origin *o, uint32_t target, uint32_t window, uint64_t offset,
                     void *data, size_t bytes)
{
    int result = check(o, target);
    for (size_t at = 0, n; !result && at < bytes; at += n) {
        n = bytes - at < FTRMA_WIRE_PAYLOAD_BYTES ? bytes - at : FTRMA_WIRE_PAYLOAD_BYTES;
        struct ftrma_wire_head head = {.kind = FTRMA_WIRE_GET, .target = target, .window = window,
                                       .offset = offset + at, .operand = n};
        result = ftrma_await_query(o, o->targets[target].node, &head, NULL, (char *)data + at, n);
    }
    return result;
}

int ftrma_origin_getv(struct ftrma_origin *o, uint32_t target, uint32_t window,
                      const struct ftrma_wire_run *runs, size_t n, void *data)
{
    struct ftrma_wire_run taken[FTRMA_WIRE_SENT_RUNS];
    int result = check(o, target);
    uint64_t skip = 0;
    for (size_t i = 0, bytes; !result && i < n; data = (char *)data + bytes) {
        size_t count = cut(runs, n, &i, &skip, taken, FTRMA_WIRE_PAYLOAD_BYTES, &bytes);
        struct ftrma_wire_head head = {.kind = FTRMA_WIRE_GETV, .target = target, .window = window,
                                       .length = (uint32_t)(count * sizeof *taken)};
        result = ftrma_await_query(o, o->targets[target].node, &head, taken, data, bytes);
    }
    return result;
}

static void begin_flush(struct ftrma_origin *o, uint32_t target)
{
    o->targets[target].flushing = 1;
    ftrma_retransmit_flush(o, target);
}

static int end_flush(struct ftrma_origin *o, uint32_t target)
{
    int result = ftrma_await(o, o->targets[target].node, is_acknowledged, target);
    o->targets[target].flushing = 0;
    return result;
}

int ftrma_origin_flush(struct ftrma_origin *o, uint32_t target)
{
    int result = check(o, target);
    if (result || is_acknowledged(o, target))
        return result;
    begin_flush(o, target);
    return end_flush(o, target);
}

static void begin_one(struct ftrma_origin *o, uint32_t target)
{
    if (!is_acknowledged(o, target) && !check(o, target))
        begin_flush(o, target);
}

/* Wait for a flush that was begun. result: that of the flushes before; after a failure this does
   not wait. */
static int end_one(struct ftrma_origin *o, uint32_t target, int result)
{
    if (o->targets[target].flushing && !result)
        result = end_flush(o, target);
    o->targets[target].flushing = 0;
    return result;
}

int ftrma_origin_flush_all(struct ftrma_origin *o)
{
    int result = FTRMA_OK;
    for (uint32_t t = 0; t < o->ntargets; t++)
        begin_one(o, t);
    for (uint32_t t = 0; t < o->ntargets; t++)
        result = end_one(o, t, result);
    return result;
}

int ftrma_origin_flush_each(struct ftrma_origin *o, const uint32_t *targets, size_t n)
{
    int result = FTRMA_OK;
    for (size_t i = 0; i < n; i++)
        if (targets[i] >= o->ntargets)
            return -EINVAL;
    for (size_t i = 0; i < n; i++)
        begin_one(o, targets[i]);
    for (size_t i = 0; i < n; i++)
        result = end_one(o, targets[i], result);
    return result;
}

int ftrma_origin_set(struct ftrma_origin *o, uint32_t target, uint32_t window, uint64_t word,
                     uint64_t value)
{
    struct ftrma_wire_head head = {
        .kind = FTRMA_WIRE_SET, .window = window, .offset = word, .operand = value};
    int result = check(o, target);
    return result ? result : put(o, target, &head, NULL, 0, NULL, 0);
}

int ftrma_origin_file(struct ftrma_origin *o, uint32_t target, uint32_t window, int how,
                      uint64_t bytes, const char *name, int64_t *told)
{
    size_t length = strlen(name);
    struct ftrma_wire_head head = {.kind = FTRMA_WIRE_FILE, .target = target, .window = window,
                                   .length = (uint32_t)length, .offset = (uint64_t)how,
                                   .operand = bytes};
    int result = length < FTRMA_WIRE_NAME_BYTES ? check(o, target) : -EINVAL;
    if (!result)
        result = ftrma_await_query(o, o->targets[target].node, &head, name, NULL, 0);
    if (!result)
        *told = (int64_t)o->query.told;
    return result;
}

size_t ftrma_origin_pending(struct ftrma_origin *o, uint32_t target)
{
    return target < o->ntargets ? o->targets[target].kept.to - o->targets[target].kept.from : 0;
}

/* ---- atomics and locks ---- */

int ftrma_origin_finish(struct ftrma_origin *o, uint32_t target, struct ftrma_wire_answer *answer)
{
    if (target >= o->ntargets)
        return -EINVAL;
    struct ftrma_origin_target *t = &o->targets[target];
    if (!t->asked && !t->answered)
        return -ENOENT;
    int result = ftrma_await(o, t->node, is_answered, target);
    if (result)
        return result;
    if (answer)
        memcpy(answer, &t->answer,
               offsetof(struct ftrma_wire_answer, data) + 2 * t->answer.bytes);
    t->answered = 0;
    return FTRMA_OK;
}

/* Send a request that has an answer. */
static int begin(struct ftrma_origin *o, uint32_t target, const struct ftrma_wire_head *head,
                 const void *data)
{
    char *payload;
    struct ftrma_wire_head *kept = ftrma_retransmit_add(o, target, head, &payload);
    if (!kept)
        return -ENOMEM;
    if (data)
        memcpy(payload, data, head->length);
    o->targets[target].asked = 1;
    ftrma_retransmit_send(o, target, kept, payload);
    return FTRMA_OK;
}

int ftrma_origin_atomic_begin(struct ftrma_origin *o, int kind, int op, int type, uint32_t target,
                              uint32_t window, uint64_t offset, uint64_t compare, const void *data,
                              size_t bytes)
{
    struct ftrma_wire_head head = {.kind = (uint16_t)kind,
                                   .format = FTRMA_WIRE_FORMAT,
                                   .operation = (uint8_t)(op << 4 | type),
                                   .length = (uint32_t)bytes,
                                   .number = 1,
                                   .window = window,
                                   .offset = offset,
                                   .operand = compare};
    int result = check(o, target);
    if (result)
        return result;
    if (kind < FTRMA_WIRE_ACC || kind > FTRMA_WIRE_CAS || bytes > FTRMA_WIRE_ATOMIC_BYTES || op < 0
        || op > 15 || type < 0 || type > 15
        || ftrma_message_broken_rule(&head, FTRMA_WIRE_REQUESTS))
        return -EINVAL;
    return begin(o, target, &head, data);
}

int ftrma_origin_atomic(struct ftrma_origin *o, int kind, int op, int type, uint32_t target,
                        uint32_t window, uint64_t offset, uint64_t compare, const void *data,
                        size_t bytes, struct ftrma_wire_answer *answer)
{
    int result =
        ftrma_origin_atomic_begin(o, kind, op, type, target, window, offset, compare, data, bytes);
    return result ? result : ftrma_origin_finish(o, target, answer);
}

uint64_t ftrma_origin_damaged(const struct ftrma_origin *o)
{
    return o->damaged;
}

int ftrma_origin_answered(struct ftrma_origin *o, uint32_t target)
{
    return target < o->ntargets && o->targets[target].answered;
}

int ftrma_origin_lock(struct ftrma_origin *o, uint32_t target, uint32_t window, int how)
{
    struct ftrma_wire_head head = {
        .kind = FTRMA_WIRE_LOCK, .window = window, .operand = (uint64_t)how};
    int result = check(o, target);
    return result ? result : begin(o, target, &head, NULL);
}

int ftrma_origin_unlock(struct ftrma_origin *o, uint32_t target, uint32_t window, int how)
{
    struct ftrma_wire_head head = {
        .kind = FTRMA_WIRE_UNLOCK, .window = window, .operand = (uint64_t)how};
    int result = ftrma_origin_flush(o, target);
    return result ? result : begin(o, target, &head, NULL);
}
