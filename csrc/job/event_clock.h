/* The event clock: the number of events that this slot has begun and ended (event.h), and the calls
 * among them that no replay can repeat. */
#ifndef FTRMA_EVENT_CLOCK_H
#define FTRMA_EVENT_CLOCK_H

#include "internal.h"

/* Only the thread that runs the program writes this: `on`, `mode` and `logging` when the program is
   entered (ftrma_log_start), in a replay and when the budget of logs is spent; the counters at each
   event; `slot` when its log is mapped. */
struct ftrma_event_clock {
    int on;                  /* events are counted: there may be a replay */
    int mode;                /* FTRMA_LIVE, _REPLAY or _PROLOGUE */
    int logging;             /* FTRMA_LOG_*: what is recorded now */
    struct ftrma_slot *slot; /* this slot's words in the control file */
    uint64_t clock, events, hash, signature;
    uint64_t ended;          /* the clock when the newest event ended; a call that is waiting has
                                only begun */
    uint64_t dropped;        /* bytes not logged since the budget was spent */
    uint64_t first;          /* number of the first event after the newest mark */
    uint64_t messages, unfollowed; /* calls that no replay repeats and that may wait for others;
                                      those of them since the last record about them in the trace */
};
extern struct ftrma_event_clock ftrma_event_clock;

/* Events are ordered only within one thread, which runs the program. Calls of other threads are
   done but not counted, and the slot cannot be replayed past them. */
extern _Thread_local int ftrma_counted __attribute__((tls_model("initial-exec")));

/* 1 if events of this thread are counted; 1 if they are logged. */
static inline int ftrma_counts(void)
{
    return ftrma_event_clock.on && ftrma_counted;
}

static inline int ftrma_logs(void)
{
    return ftrma_event_clock.logging && ftrma_counted;
}

static inline uint64_t ftrma_mix(uint64_t h, uint64_t x)
{
    h = (h ^ x) * 0x9e3779b97f4a7c15ull;
    return h ^ (h >> 29);
}

/* Note that the program makes a call that may wait for another slot's message. */
static inline void ftrma_note_wait(void)
{
    ftrma_event_clock.unfollowed += ftrma_event_clock.messages > 0;
}

/* Note that the first event after the newest mark is complete. */
void ftrma_note_first(void);

/* Add a reason to a mark. A spare that takes a checksum rank's seat may add a reason at the same
   time as the slot adds another: with a load and a store one of the two would be lost. */
static inline void ftrma_mark_break(struct ftrma_mark *mark, uint32_t why)
{
    __atomic_fetch_or(&mark->broken, why, __ATOMIC_SEQ_CST);
}

/* Break both marks for this reason, so that no replay can start from them. The second function
   breaks one mark, and notes the call. */
void ftrma_break(uint32_t why);
void ftrma_blame(struct ftrma_mark *mark, uint32_t why, const char *call);
/* Note that the program makes a call that no replay can repeat. */
void ftrma_foreign(const char *call);
/* Note that from here on the program has an object that no log covers, made by this call. */
void ftrma_hold(const char *call);
/* Note that another thread makes a call of MPI; 1 if that is new since the checkpoint. */
int ftrma_uncounted(void);

#endif
