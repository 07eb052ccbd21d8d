/* Waiting for other processes (meet.c). */
#ifndef FTRMA_MEET_H
#define FTRMA_MEET_H

#include "internal.h"

/* The number of barriers of all slots that this process has passed; the thread that runs the
   program writes it. */
extern uint64_t ftrma_barriers;

/* Begin to count barriers from 0. */
void ftrma_slots_barrier_reset(void);
/* Wait until a slot that is being replayed is live. An MPI code. */
int ftrma_await_live(int slot);

#endif
