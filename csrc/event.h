/* Events: every exchange of a collective call is one.  Below the horizon of a slot that is being
 * replayed an event is answered from its result log; nothing is replayed yet, so today every event
 * is done, nothing is kept, and a pending failure unwinds. */
#ifndef FTRMA_EVENT_H
#define FTRMA_EVENT_H

#include <stddef.h>

#include "internal.h"

#define FTRMA_WHAT_COLLECTIVE 18

/* Begin an event. [in] what: FTRMA_WHAT_*; window: its ordinal, -1: none; target: a slot, -1: none;
   detail: a hash of what this event is, the same when it is done again.
   0: do it; 1: answer it from the log; else an MPI code to return. */
static inline int ftrma_sync_begin(int what, int window, int target, uint64_t detail)
{
    (void)what;
    (void)window;
    (void)target;
    (void)detail;
    return ftrma_pending() ? ftrma_code_unwind : 0;
}

/* Keep what this slot has learned from the others in this event, in order. */
static inline void ftrma_result_log(const void *bytes, size_t n)
{
    (void)bytes;
    (void)n;
}

/* The same, answered from the log. Returns an MPI code. */
static inline int ftrma_result_read(void *bytes, size_t n)
{
    (void)bytes;
    (void)n;
    return MPI_ERR_INTERN; /* no event is below a horizon */
}

static inline void ftrma_event_end(void)
{
}

/* 1: a wait of the user's program has to end because of a failure. */
static inline int ftrma_unwinding(void)
{
    return ftrma_pending();
}

#endif
