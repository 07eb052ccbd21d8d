/* Replay: what events, windows and communicators ask of it (replay.c). */
#ifndef FTRMA_REPLAY_H
#define FTRMA_REPLAY_H

#include <stddef.h>

#include "internal.h"

/* An event of this kind advances the clock: all but puts and gets. */
static inline int ftrma_ticks(int what)
{
    return what >= FTRMA_WHAT_ACCUMULATE;
}

/* The event that begins now, of kind `what`, is or is not to be done, in a mode other than live. */
int ftrma_replay_begin(int what);
void ftrma_replay_end(void);
/* What this event has learned from outside, in order, from the log. */
int ftrma_result_read(void *bytes, size_t n);

#endif
