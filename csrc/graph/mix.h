/* The finalizer of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014): each bit of z changes all bits. */
#ifndef FTRMA_GRAPH_MIX_H
#define FTRMA_GRAPH_MIX_H

#include <stdint.h>

static inline uint64_t mix(uint64_t z)
{
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

#endif
