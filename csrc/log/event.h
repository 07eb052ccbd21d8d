/* Events: the numbering of a slot's calls, and whether a call is done or only replayed.
 *
 * Every data access, synchronization call, collective on the slots' world, window creation and
 * safepoint of a slot is one event, numbered in program order. The number of the last complete
 * event, the horizon, lies in shared memory beside the slot's clock. The clock counts, when they
 * *begin*, the events that can order others' accesses: all but puts and gets (FTRMA_TICKS). After a
 * death the replacement executes the program again: events up to the horizon have taken effect and
 * are answered from logs; the first event above it is executed, and from there on the slot is live.
 *
 * The reason for a clock. An access to a slot's part reads the owner's clock. If a local access of
 * the owner between its events c and c+1 happens before the access, its origin read a clock above
 * c; if the access happens before a local access after event d, its origin read a clock of at most
 * d. So a replay applies all accesses that are logged with clocks up to d when event d is complete,
 * and every local access of a race-free program sees the same bytes as before.
 */
#ifndef FTRMA_EVENT_H
#define FTRMA_EVENT_H

#include "control.h"
#include "event_clock.h"
#include "event_kinds.h"
#include "replay.h"
#include "trace.h"

/* Begin a synchronization event. 0: do it; 1: it is within the horizon, and its results are in the
   log; else an MPI code to return. window: number in program order or -1; detail: further data that
   distinguishes this call from others. */
static inline int ftrma_sync_begin(int what, int window, int target, uint64_t detail)
{
    struct ftrma_event_clock *t = &ftrma_event_clock;
    if (!ftrma_counts()) {
        if (unlikely(t->on))
            ftrma_uncounted();
        else if (ftrma_ctl)
            ftrma_ctl->proc[ftrma_me].syncs++;
        return 0;
    }
    t->signature = ftrma_mix((uint64_t)what << 48 | (uint64_t)(uint16_t)window << 32
                             | (uint32_t)target, detail);
    if (unlikely(ftrma_tracing))
        ftrma_trace_begin(what, window);
    if (unlikely(t->mode)) {
        int skip = ftrma_replay_begin(what);
        if (skip)
            return skip;
    }
    STORE(&t->slot->clock, ++t->clock);
    return 0;
}

/* Begin a data access to `span` bytes from offset `at` of the target's part; results as for
   ftrma_sync_begin. An accumulate or atomic is visible at once and may be a signal for another
   slot, so it advances the clock. */
static inline int ftrma_access_begin(int what, int window, int target, uint64_t at, uint64_t span,
                                     uint64_t sample)
{
    struct ftrma_event_clock *t = &ftrma_event_clock;
    if (!ftrma_counts()) {
        if (unlikely(t->on))
            ftrma_uncounted();
        return 0;
    }
    if (unlikely(ftrma_tracing))
        ftrma_trace_begin(what, window);
    t->signature = ftrma_mix(ftrma_mix((uint64_t)what << 48 | (uint64_t)(uint16_t)window << 32
                                       | (uint32_t)target, at), span ^ sample);
    if (unlikely(t->mode)) {
        int skip = ftrma_replay_begin(what);
        if (skip)
            return skip;
    }
    if (ftrma_kind_is(what, FTRMA_TICKS))
        STORE(&t->slot->clock, ++t->clock);
    return 0;
}

/* End the event that was begun. */
static inline void ftrma_event_end(void)
{
    struct ftrma_event_clock *t = &ftrma_event_clock;
    if (!ftrma_counts())
        return;
    if (unlikely(ftrma_tracing))
        ftrma_trace_end(ftrma_in_prefix() ? FTRMA_PROLOGUE : t->mode, t->events + 1, t->clock);
    if (unlikely(t->mode)) {
        ftrma_replay_end();
        return;
    }
    t->hash = ftrma_mix(t->hash, t->signature);
    t->ended = t->clock;
    uint64_t event = ++t->events;
    t->slot->hash[event & 1] = t->hash; /* the other one, of the event before, is kept */
    __atomic_store_n(&t->slot->events, event, __ATOMIC_RELEASE);
    if (unlikely(event == t->first))
        ftrma_note_first();
}

#endif
