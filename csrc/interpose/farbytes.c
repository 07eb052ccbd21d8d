/* Bytes of members on other nodes.
 *
 * Gets are done when they return. Puts may still be under way when they return, and a flush waits
 * for them. Their records are pending until the agent has told their numbers among the target's
 * changes (pending.c).
 */
#include "farbytes.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "far.h"
#include "origin_lock.h"
#include "pending.h"

/* ---- puts and gets -------------------------------------------------------------------------- */

/* The number of the last put that each agent has. Puts may have been lost with the process, in its
   send buffer: by this number a replay knows which. */
struct reached {
    uint64_t number;
    int known;
};
static struct reached reached[FTRMA_MAX_PROCS]; /* [slot] */

/* Pass over the next put if it was done before: [out] *done: 1 if so. */
static int pass_put(uint32_t slot, int *done)
{
    int result = FTRMA_OK;
    if (!reached[slot].known)
        WITH_ORIGIN(result, ftrma_origin_reached(ORIGIN, slot, &reached[slot].number));
    reached[slot].known = !result;
    *done = !result && ftrma_origin_last_number(ORIGIN, slot) < reached[slot].number;
    if (*done)
        ftrma_origin_continue(ORIGIN, slot, ftrma_origin_last_number(ORIGIN, slot) + 1);
    return result;
}

/* Put bytes, message by message. A message that is begun again after an interruption was not sent
   before, so a replay counts as many messages. */
static int put(const struct reach *r, uint64_t at, const void *local, size_t n)
{
    uint32_t slot = slot_of(r->w, r->target);
    int done = 0, result = is_replayed() ? pass_put(slot, &done) : FTRMA_OK;
    if (!result && !done)
        WITH_ORIGIN(result, ftrma_origin_put(ORIGIN, slot, r->w->wire, at, local, n));
    return result;
}

static int put_runs(const struct reach *r, const struct ftrma_wire_run *runs, size_t n,
                    const void *packed)
{
    uint32_t slot = slot_of(r->w, r->target);
    int done = 0, result = is_replayed() ? pass_put(slot, &done) : FTRMA_OK;
    if (!result && !done)
        WITH_ORIGIN(result, ftrma_origin_putv(ORIGIN, slot, r->w->wire, runs, n, packed));
    return result;
}

int ftrma_far_move(const struct reach *r, void *local, int write)
{
    uint32_t target = slot_of(r->w, r->target);
    uint64_t at = (uint64_t)((int64_t)r->at + r->low);
    int result = FTRMA_OK;
    if (!write)
        WITH_ORIGIN(result, ftrma_origin_get(ORIGIN, target, r->w->wire, at, local, r->span));
    for (size_t done = 0, n; write && !result && done < r->span; done += n) {
        n = r->span - done < FTRMA_WIRE_PAYLOAD_BYTES ? r->span - done : FTRMA_WIRE_PAYLOAD_BYTES;
        result = put(r, at + done, (const char *)local + done, n);
    }
    return judge(r->w, r->target, result);
}

/* Runs of bytes that are sent together. */
struct bundle {
    struct ftrma_wire_run runs[FTRMA_WIRE_SENT_RUNS];
    size_t n, bytes;
    char *packed;
};
#define BUNDLE (FTRMA_WIRE_PAYLOAD_BYTES - FTRMA_WIRE_SENT_RUNS * sizeof(struct ftrma_wire_run))

/* Add as much of a run as fits; [out] its length. */
static size_t add(struct bundle *b, uint64_t offset, const char *from, size_t bytes)
{
    size_t n = bytes < BUNDLE - b->bytes ? bytes : BUNDLE - b->bytes;
    b->runs[b->n++] = (struct ftrma_wire_run){offset, n};
    memcpy(b->packed + b->bytes, from, n);
    b->bytes += n;
    return n;
}

static int send(const struct reach *r, struct bundle *b)
{
    int result = b->n ? put_runs(r, b->runs, b->n, b->packed) : FTRMA_OK;
    b->n = b->bytes = 0;
    return result;
}

int ftrma_far_runs(const struct reach *r, const char *local, const char *mask)
{
    struct bundle b = {.packed = malloc(BUNDLE)};
    int result = b.packed ? FTRMA_OK : -ENOMEM;
    uint64_t first = (uint64_t)((int64_t)r->at + r->low);
    for (size_t at = 0, end; !result && at < r->span; at = end) {
        const char *run = memchr(mask + at, 1, r->span - at);
        at = run ? (size_t)(run - mask) : r->span;
        const char *hole = at < r->span ? memchr(mask + at, 0, r->span - at) : NULL;
        end = hole ? (size_t)(hole - mask) : r->span;
        while (!result && at < end) {
            at += add(&b, first + at, local + at, end - at);
            if (b.n == FTRMA_WIRE_SENT_RUNS || b.bytes == BUNDLE)
                result = send(r, &b);
        }
    }
    if (!result)
        result = send(r, &b);
    free(b.packed);
    return judge(r->w, r->target, result);
}

/* ---- records of puts ------------------------------------------------------------------------ */

static void take_acks(void *unused, int target, const struct ftrma_wire_ack *acks, size_t n)
{
    (void)unused;
    for (size_t i = 0; i < n && target < (int)ftrma_ctl->nslots; i++)
        ftrma_pending_acked(target, acks[i].number + acks[i].count - 1, acks[i].clock,
                            acks[i].seq + acks[i].count - 1);
}

int ftrma_far_log_open(const struct reach *r)
{
    lock_origin();
    ftrma_origin_set_acked(ORIGIN, take_acks);
    int error = ftrma_pending_open(r->w->members[r->target].slot);
    unlock_origin(FTRMA_OK);
    return error ? MPI_ERR_NO_MEM : MPI_SUCCESS;
}

void ftrma_far_log_close(const struct reach *r)
{
    uint32_t slot = slot_of(r->w, r->target);
    lock_origin();
    ftrma_pending_close((int)slot, ftrma_origin_last_number(ORIGIN, slot));
    unlock_origin(FTRMA_OK);
}

/* ---- flushes -------------------------------------------------------------------------------- */

int ftrma_far_flush(struct window *w, int target)
{
    RETURN_WITH_ORIGIN(w, target, ftrma_origin_flush(ORIGIN, slot_of(w, target)));
}

int ftrma_windows_flush(void)
{
    return ORIGIN ? ftrma_far_flush_all(NULL) : MPI_SUCCESS;
}

int ftrma_far_flush_all(struct window *w)
{
    RETURN_WITH_ORIGIN(w, -1, ftrma_origin_flush_all(ORIGIN));
}

/* Wait until nothing is under way to slots that are live. An agent takes words for a slot in a
   replay, such as an arrival at a fence, only when the slot is live, which may be after this
   repair. A lost node takes nothing any more: its slots move to other nodes, and all slots go
   back. */
static int quiet(void)
{
    uint32_t slots = ftrma_ctl->nslots, end = slots + (uint32_t)LOAD(&ftrma_ctl->nodes), n = 0;
    uint32_t targets[2 * FTRMA_MAX_PROCS];
    for (uint32_t t = 0; t < end; t++)
        if ((t >= slots || !LOAD(&ftrma_ctl->slots[t].replaying)) && !ftrma_is_lost(t))
            targets[n++] = t;
    return ftrma_origin_flush_each(ORIGIN, targets, n);
}

int ftrma_far_quiet(uint64_t round)
{
    return ORIGIN ? ftrma_originlock_retry(round, quiet) : FTRMA_OK;
}
