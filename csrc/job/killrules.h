/* Failpoints: the places in the program where a --kill rule can strike (killrules.c). */
#ifndef FTRMA_KILLRULES_H
#define FTRMA_KILLRULES_H

#include "internal.h"

/* One bit for each failpoint at which a rule may strike this process; written when the process
   joins and when its role changes. */
extern uint32_t ftrma_armed;

static inline void ftrma_failpoint(int failpoint)
{
    if (unlikely(ftrma_armed & (1u << failpoint)))
        ftrma_failpoint_visit(failpoint);
}

#endif
