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
    return ordinal >> 14 || seq >= (1ull << 40) - 1 ? 0 : slot << 54 | ordinal << 40 | (seq + 1);
}

/* What such words say of a window: up to which number; -1: nothing, although they speak of others. */
static inline int64_t ftrma_held_up_to(const uint64_t *words, uint64_t name_number)
{
    uint64_t name = ftrma_held_word(name_number, 0), any = 0;
    for (int i = 0; i < FTRMA_HELD_WINDOWS; i++) {
        uint64_t word = LOAD(&words[i]);
        any |= word;
        if (name && word && word >> 40 == name >> 40)
            return (int64_t)(word & ((1ull << 40) - 1)) - 1;
    }
    return any || !name ? -1 : 0;
}

#endif
