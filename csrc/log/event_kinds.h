/* The table of event kinds, and the flags of each. */
#ifndef FTRMA_EVENT_KINDS_H
#define FTRMA_EVENT_KINDS_H

#include "internal.h"

/* All kinds: FTRMA_WHAT_x has FTRMA_FLAGS_x (shared.h). */
#define FTRMA_KINDS(KIND)                                                                         \
    KIND(PUT) KIND(GET) KIND(ACCUMULATE) KIND(GET_ACCUMULATE) KIND(FETCH_AND_OP)                  \
    KIND(COMPARE_AND_SWAP) KIND(FENCE) KIND(LOCK) KIND(UNLOCK) KIND(LOCK_ALL) KIND(UNLOCK_ALL)    \
    KIND(FLUSH) KIND(FLUSH_ALL) KIND(SYNC) KIND(POST) KIND(START) KIND(COMPLETE) KIND(WAIT)       \
    KIND(PROBE) KIND(COLLECTIVE) KIND(WINDOW) KIND(FREE) KIND(SAFEPOINT) KIND(CHECKPOINT)         \
    KIND(COMMIT) KIND(APPLY) KIND(RECOVERY) KIND(ROLLBACK) KIND(END) KIND(DEMAND) KIND(REPLAY)    \
    KIND(ACK) KIND(MADE) KIND(PEER) KIND(REQUEST) KIND(MESSAGE) KIND(SPAN)                 \
    KIND(SPANNED) KIND(MARK)

#define FTRMA_COUNT(name) +1
_Static_assert(FTRMA_KINDS(FTRMA_COUNT) == FTRMA_WHATS, "each kind has its flags");
_Static_assert(FTRMA_WHATS <= 64, "a word has a bit for each kind");

/* 1 if the kind has this flag: FTRMA_EVENT, FTRMA_ACCESS, ...  The flag is constant, so this is one bit of
   a constant word; of a constant kind it is a constant. */
#define FTRMA_BIT(name) | (uint64_t)((FTRMA_FLAGS_##name & flag) != 0) << FTRMA_WHAT_##name
static inline __attribute__((always_inline)) int ftrma_kind_is(int what, const int flag)
{
    return (int)((0 FTRMA_KINDS(FTRMA_BIT)) >> what & 1);
}

#endif
