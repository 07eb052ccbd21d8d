/* Words of the control file in which a slot says which accesses to its parts its demand checkpoint
 * holds: one word for each window. */
#ifndef FTRMA_HELD_H
#define FTRMA_HELD_H

#include "internal.h"

/* The word that says that the window's accesses up to number seq are held. It contains the window's
   name and the number plus one; 0: they do not fit. */
static inline uint64_t ftrma_held_word(uint64_t name_number, uint64_t seq)
{
    _Static_assert(FTRMA_MAX_PROCS <= 1 << 10, "a slot fits ten bits");
    uint64_t slot = name_number >> 32, ordinal = (uint32_t)name_number;
    return ordinal >> 14 || seq >= (1ull << 40) - 1 ? 0 : slot << 54 | ordinal << 40 | (seq + 1);
}

/* The number up to which the window's accesses are held according to a slot's words; 0: the words
   say nothing at all; -1: they only mention other windows. */
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
