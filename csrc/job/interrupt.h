/* What a call asks first: does a --kill rule strike here (place.c), and does it go on or unwind
 * (interrupt.c)? */
#ifndef FTRMA_INTERRUPT_H
#define FTRMA_INTERRUPT_H

#include "attempt.h"
#include "control.h"

/* A bit per place where a rule waits for this process; written when it joins and when its role
   changes. */
extern uint32_t ftrma_armed;

static inline void ftrma_place(int place)
{
    if (unlikely(ftrma_armed & (1u << place)))
        ftrma_visit(place);
}

/* The calling thread, another one than the program's, unwinds from a call, which is lost with it: nothing
   can be repaired in place. */
void ftrma_lose_thread(void);
/* This thread's call goes on (0), perhaps after a repair in place, or unwinds (1). */
int ftrma_interrupted(void);

static inline int ftrma_unwinding(void)
{
    return ftrma_ctl && unlikely(LOAD(&ftrma_ctl->alarm) != ftrma_thread.round)
           && ftrma_interrupted();
}

#endif
