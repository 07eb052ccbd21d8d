/* A pending failure: each call asks whether it goes on or unwinds (interrupt.c). */
#ifndef FTRMA_INTERRUPT_H
#define FTRMA_INTERRUPT_H

#include "attempt.h"
#include "control.h"

/* Give up this thread, which is not the program's main one: it unwinds from a call and is lost, so
   nothing can be repaired in place. */
void ftrma_lose_thread(void);
/* Decide whether this thread's call goes on (0), perhaps after a repair in place, or unwinds
   (1). */
int ftrma_interrupted(void);

static inline int ftrma_unwinding(void)
{
    return ftrma_ctl && unlikely(LOAD(&ftrma_ctl->alarm) != ftrma_thread.round)
           && ftrma_interrupted();
}

#endif
