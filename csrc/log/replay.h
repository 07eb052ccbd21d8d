/* Replay: the part that events, windows and communicators use (replay.c). */
#ifndef FTRMA_REPLAY_H
#define FTRMA_REPLAY_H

#include <stddef.h>

#include "internal.h"

/* Begin an event of kind `what` in a mode other than live. 0: do it; 1: it was done; else an MPI
   code. */
int ftrma_replay_begin(int what);
void ftrma_replay_end(void);
/* Read from the log the next bytes that this event has learned from outside. An MPI code. */
int ftrma_result_read(void *bytes, size_t n);

#endif
