/* Replay: what events, windows and communicators ask of it (replay.c). */
#ifndef FTRMA_REPLAY_H
#define FTRMA_REPLAY_H

#include <stddef.h>

/* What begins now is or is not to be done, in a mode other than live.  access: it moves data; ticks:
   it advances the clock. */
int ftrma_replay_begin(int access, int ticks);
void ftrma_replay_end(void);
/* What this event has learned from outside, in order, from the log. */
int ftrma_result_read(void *bytes, size_t n);

#endif
