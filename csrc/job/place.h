/* Named places, where a --kill rule can strike (place.c). */
#ifndef FTRMA_PLACE_H
#define FTRMA_PLACE_H

#include "control.h"

/* A bit per place where a rule waits for this process; written when it joins and when its role
   changes. */
extern uint32_t ftrma_armed;

static inline void ftrma_place(int place)
{
    if (unlikely(ftrma_armed & (1u << place)))
        ftrma_visit(place);
}

/* The same place at a window of the library's own, which only a job over several nodes protects. */
static inline void ftrma_native_place(int place)
{
    if (unlikely(ftrma_link >= 0))
        ftrma_place(place);
}

#endif
