/* Demand checkpoints (demand.c). */
#ifndef FTRMA_DEMAND_H
#define FTRMA_DEMAND_H

#include "chunks.h"

/* The access of slot `source` is in the demand checkpoint with this cut. */
int ftrma_cut_holds(const uint64_t *cut, uint64_t words, const struct ftrma_record *record,
                    int source);

/* Of a window's accesses those up to number seq are held, in one word: the window's name and the number
   plus one; 0: that does not fit. */
static inline uint64_t ftrma_held_word(uint64_t name_number, uint64_t seq)
{
    _Static_assert(FTRMA_MAX_PROCS <= 1 << 10, "a slot fits ten bits");
    uint64_t slot = name_number >> 32, ordinal = (uint32_t)name_number;
    return ordinal >> 14 || (seq + 1) >> 40 ? 0 : slot << 54 | ordinal << 40 | (seq + 1);
}

/* Such words say that another slot's demand checkpoint holds this access. */
static inline int ftrma_is_held(const uint64_t *words, uint64_t name_number, uint64_t seq)
{
    uint64_t mine = ftrma_held_word(name_number, seq);
    for (int i = 0; mine && i < FTRMA_HELD_WINDOWS; i++) {
        uint64_t word = LOAD(&words[i]);
        if (word >> 40 == mine >> 40 && mine <= word)
            return 1;
    }
    return 0;
}

#endif
