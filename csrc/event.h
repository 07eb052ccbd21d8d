/* Events: the numbering of what a slot does, and whether it is done or only replayed.
 *
 * Every data access, synchronization call, collective on the slots' world, window creation and
 * safepoint of a slot is one event, numbered in program order.  The number of the last complete
 * one, the horizon, lies in shared memory beside the slot's clock, which counts the events that can
 * order others' accesses, when they *begin*: all but puts and gets.  After a death the replacement
 * executes the program again: events up to the horizon have taken effect and are answered from
 * logs; the first one above it is executed, and from there on the slot is live.
 *
 * Why a clock.  An access to a slot's part takes down the owner's clock.  If a local access of the
 * owner between its events c and c+1 happens before it, the origin read a clock above c; if it
 * happens before a local access after event d, the origin read a clock of at most d.  So applying
 * what is logged with clocks up to d when event d is complete gives every local access of a
 * race-free program what it saw.
 */
#ifndef FTRMA_EVENT_H
#define FTRMA_EVENT_H

#include "internal.h"
#include "trace.h"

enum ftrma_what {
    FTRMA_WHAT_PUT,
    FTRMA_WHAT_GET,
    FTRMA_WHAT_ACCUMULATE,
    FTRMA_WHAT_GET_ACCUMULATE,
    FTRMA_WHAT_FETCH_AND_OP,
    FTRMA_WHAT_COMPARE_AND_SWAP,
    FTRMA_WHAT_FENCE,
    FTRMA_WHAT_LOCK,
    FTRMA_WHAT_UNLOCK,
    FTRMA_WHAT_LOCK_ALL,
    FTRMA_WHAT_UNLOCK_ALL,
    FTRMA_WHAT_FLUSH,
    FTRMA_WHAT_FLUSH_ALL,
    FTRMA_WHAT_SYNC,
    FTRMA_WHAT_POST,
    FTRMA_WHAT_START,
    FTRMA_WHAT_COMPLETE,
    FTRMA_WHAT_WAIT,
    FTRMA_WHAT_COLLECTIVE,
    FTRMA_WHAT_WINDOW,
    FTRMA_WHAT_FREE,
    FTRMA_WHAT_SAFEPOINT,
    FTRMA_WHAT_CHECKPOINT,
    FTRMA_WHAT_COMMIT,
    FTRMA_WHAT_APPLY,
    FTRMA_WHAT_RECOVERY,
    FTRMA_WHAT_ROLLBACK,
    FTRMA_WHAT_END,
    FTRMA_WHAT_DEMAND,
    FTRMA_WHAT_REPLAY
};

struct ftrma_tape {
    int on;                  /* events are counted: there may be a replay */
    int mode;                /* FTRMA_LIVE, _REPLAY or _PROLOGUE */
    int logging;             /* FTRMA_LOG_*: what is recorded now */
    struct ftrma_slot *slot; /* this slot's words in the control file */
    uint64_t clock, events, hash, signature;
    uint64_t dropped;        /* bytes not logged since the budget was spent */
    uint64_t first;          /* number of the first event after the newest mark */
};
extern struct ftrma_tape ftrma_tape;

/* Events have an order only within one thread, the one that runs the program.  Calls of others are
   done and not counted, and the slot cannot be replayed past them. */
extern _Thread_local int ftrma_counted __attribute__((tls_model("initial-exec")));

/* Whether what this call does is counted; and logged. */
static inline int ftrma_counts(void)
{
    return ftrma_tape.on && ftrma_counted;
}

static inline int ftrma_logs(void)
{
    return ftrma_tape.logging && ftrma_counted;
}

/* Take note that another thread makes a call; 1 if that is new since the checkpoint. */
int ftrma_uncounted(void);

static inline uint64_t ftrma_mix(uint64_t h, uint64_t x)
{
    h = (h ^ x) * 0x9e3779b97f4a7c15ull;
    return h ^ (h >> 29);
}

/* replay.c: what begins now is or is not to be done, in a mode other than live.  access: it moves
   data; ticks: it advances the clock. */
int ftrma_replay_begin(int access, int ticks);
void ftrma_replay_end(void);
void ftrma_note_first(void);

/* Begin a synchronization event.  0: do it; 1: it is below the horizon, its results are in the log;
   else an MPI code to return.  window: number in program order or -1; detail: what else tells this
   call from others. */
static inline int ftrma_sync_begin(int what, int window, int target, uint64_t detail)
{
    struct ftrma_tape *t = &ftrma_tape;
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
        int skip = ftrma_replay_begin(0, 1);
        if (skip)
            return skip;
    }
    STORE(&t->slot->clock, ++t->clock);
    return 0;
}

/* Begin a data access.  The same, for `span` bytes from offset `at` of the target's part.  An
   accumulate or atomic is visible at once and may be another slot's signal: it advances the clock. */
static inline int ftrma_access_begin(int what, int window, int target, uint64_t at, uint64_t span,
                                     uint64_t sample)
{
    struct ftrma_tape *t = &ftrma_tape;
    if (!ftrma_counts()) {
        if (unlikely(t->on))
            ftrma_uncounted();
        return 0;
    }
    if (unlikely(ftrma_tracing))
        ftrma_trace_begin(what, window);
    t->signature = ftrma_mix(ftrma_mix((uint64_t)what << 48 | (uint64_t)(uint16_t)window << 32
                                       | (uint32_t)target, at), span ^ sample);
    int ticks = what >= FTRMA_WHAT_ACCUMULATE;
    if (unlikely(t->mode)) {
        int skip = ftrma_replay_begin(1, ticks);
        if (skip)
            return skip;
    }
    if (ticks)
        STORE(&t->slot->clock, ++t->clock);
    return 0;
}

/* End the event that was begun. */
static inline void ftrma_event_end(void)
{
    struct ftrma_tape *t = &ftrma_tape;
    if (!ftrma_counts())
        return;
    if (unlikely(ftrma_tracing))
        ftrma_trace_end(ftrma_in_prefix() ? FTRMA_PROLOGUE : t->mode, t->events + 1, t->clock);
    if (unlikely(t->mode)) {
        ftrma_replay_end();
        return;
    }
    t->hash = ftrma_mix(t->hash, t->signature);
    uint64_t event = ++t->events;
    t->slot->hash[event & 1] = t->hash; /* of the event before, the other one is kept */
    __atomic_store_n(&t->slot->events, event, __ATOMIC_RELEASE);
    if (unlikely(event == t->first))
        ftrma_note_first();
}

/* What this event has learned from outside, in order; and the same back, from the log. */
void ftrma_result_log(const void *bytes, size_t n);
int ftrma_result_read(void *bytes, size_t n);

/* The program makes a call that no replay can repeat. */
void ftrma_foreign(const char *call);
/* From here on the program has something that no log covers, made by this call. */
void ftrma_hold(const char *call);

#endif
