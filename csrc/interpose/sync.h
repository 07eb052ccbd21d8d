/* Definitions that sync.c and lock.c share. */
#ifndef FTRMA_SYNC_H
#define FTRMA_SYNC_H

#include "errors.h"
#include "window.h"

#define MEMORY_FENCE() __atomic_thread_fence(__ATOMIC_SEQ_CST)

/* Wait until all members of the window have arrived. An MPI code. */
int ftrma_window_barrier(struct window *w);

/* Refuse assertions that a call does not know. An MPI code. */
static inline int ftrma_bad_assert(struct window *w, int assert, int known, const char *call)
{
    if (likely(!(assert & ~known)))
        return MPI_SUCCESS;
    return ftrma_window_fail(w, MPI_ERR_ASSERT, "%s: assertion %d is none of its own", call,
                             assert);
}

static inline void ftrma_close_epoch(struct window *w, int target)
{
    MEMORY_FENCE();
    w->ec[target]++;
}

#endif
