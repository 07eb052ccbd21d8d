/* Whether a call goes on or unwinds (interrupt.c). */
#ifndef FTRMA_INTERRUPT_H
#define FTRMA_INTERRUPT_H

#include "attempt.h"
#include "control.h"

/* This thread's call goes on (0), perhaps after a repair in place, or unwinds (1). */
int ftrma_interrupted(void);

static inline int ftrma_unwinding(void)
{
    return ftrma_ctl && unlikely(LOAD(&ftrma_ctl->alarm) != ftrma_thread.round)
           && ftrma_interrupted();
}

#endif
