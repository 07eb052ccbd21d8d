/* The numbers that a fuzzer draws: the same ones from the same seed. */
#ifndef FTRMA_FUZZ_H
#define FTRMA_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

static uint64_t rng_state;

/* Begin with a seed, as a word of the command line. */
static inline void seed(const char *word)
{
    rng_state = strtoull(word, NULL, 0) * 2 + 1;
}

static inline uint64_t any(void)
{
    rng_state ^= rng_state << 13;
    rng_state ^= rng_state >> 7;
    rng_state ^= rng_state << 17;
    return rng_state * 0x2545F4914F6CDD1Du;
}

static inline size_t below(size_t limit)
{
    return (size_t)((any() >> 11) % limit);
}

static inline int one_in(size_t n)
{
    return below(n) == 0;
}

#endif
