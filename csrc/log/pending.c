/* Pending records: puts to other nodes return before they have taken effect, and their clock and
 * seq are known only once they have.
 *
 * Any moment between the call and its flush is as good as another (event.h), so the agent reads
 * both when it copies the bytes, and the acknowledgement brings them. Until then the record lies in
 * the log without them. Nobody reads it earlier, since a repair begins with a flush of everything.
 *
 * A put of many bytes is several messages. Its records get the clock and seq of the last one.
 */
#include "pending.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "control.h"
#include "event_clock.h"
#include "record_sum.h"
#include "trace.h"

#define OPEN UINT64_MAX

struct put {
    struct ftrma_spot from; /* the records of the put begin here; all are of one event */
    uint64_t event, number;
};

/* The pending puts toward each slot, in the order of the calls. told: the newest clock and seq that
   an acknowledgement brought. */
static struct toward {
    struct put *puts;
    size_t first, n, room;
    uint64_t number, clock, seq;
} *pending;
static uint64_t count;

static struct put *last(struct toward *t)
{
    return &t->puts[t->first + t->n - 1];
}

static void fill_in(int target, const struct put *p, uint64_t clock, uint64_t seq)
{
    struct ftrma_reader reader = {.log = ftrma_log, .at = p->from,
                                  .head = ftrma_log->head[FTRMA_PUTS]};
    const struct ftrma_record *found;
    while ((found = ftrma_log_next(&reader)) && found->event == p->event) {
        struct ftrma_record *record = (struct ftrma_record *)(uintptr_t)found; /* the record lies in
                                                                                  this slot's own
                                                                                  log, which is
                                                                                  writable */
        if (record->target != target || record->clock != FTRMA_UNKNOWN)
            continue;
        struct ftrma_record known = {.clock = clock, .seq = seq};
        record->seq = seq;
        record->order = ftrma_record_order(&known);
        STORE(&record->clock, clock);
    }
}

static void trace_ack(int target, const struct put *p, uint64_t clock, uint64_t seq)
{
    struct ftrma_trace_record record = {.what = FTRMA_WHAT_ACK, .window = -1, .target = target,
                                        .event = p->event, .clock = clock, .seq = seq};
    ftrma_trace_write(&record);
}

static void settle(int target, struct toward *t)
{
    while (t->n && t->puts[t->first].number <= t->number) {
        const struct put *p = &t->puts[t->first];
        uint64_t seq = t->seq - (t->number - p->number);
        fill_in(target, p, t->clock, seq);
        if (unlikely(ftrma_tracing))
            trace_ack(target, p, t->clock, seq);
        t->n--; /* from here on its records can be moved (ftrma_pending_since) */
        t->first++;
        count--;
    }
    if (!t->n)
        t->first = 0;
}

int ftrma_pending_open(int target)
{
    const struct ftrma_pen *pen = &ftrma_pens[FTRMA_PUTS];
    if (!pending && !(pending = calloc(FTRMA_MAX_PROCS, sizeof *pending)))
        return -ENOMEM;
    struct toward *t = &pending[target];
    if (t->first > t->n && t->first + t->n == t->room) {
        memcpy(t->puts, t->puts + t->first, t->n * sizeof *t->puts);
        t->first = 0;
    }
    if (t->first + t->n == t->room) {
        size_t more = t->room ? 2 * t->room : 64;
        struct put *grown = realloc(t->puts, more * sizeof *grown);
        if (!grown)
            return -ENOMEM;
        t->puts = grown;
        t->room = more;
    }
    t->n++;
    *last(t) = (struct put){.event = ftrma_event_clock.events + 1, .number = OPEN};
    if (pen->at)
        last(t)->from = (struct ftrma_spot){pen->chunk + 1, ftrma_log->chunk[pen->chunk].fill};
    count++;
    return 0;
}

void ftrma_pending_close(int target, uint64_t number)
{
    struct toward *t = &pending[target];
    last(t)->number = number;
    settle(target, t);
}

void ftrma_pending_acked(int target, uint64_t number, uint64_t clock, uint64_t seq)
{
    if (!pending)
        return;
    struct toward *t = &pending[target];
    t->number = number;
    t->clock = clock;
    t->seq = seq;
    settle(target, t);
}

int ftrma_pending_since(uint32_t chunk)
{
    for (uint32_t i = 0; count && i < ftrma_ctl->nslots; i++) {
        const struct toward *t = &pending[i];
        uint32_t from = t->n ? t->puts[t->first].from.chunk : chunk + 1;
        if (from == chunk || !from)
            return 1;
    }
    return 0;
}

void ftrma_pending_clear(void)
{
    for (int i = 0; pending && i < FTRMA_MAX_PROCS; i++) {
        free(pending[i].puts);
        pending[i] = (struct toward){0};
    }
    count = 0;
}
