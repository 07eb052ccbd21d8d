/* Common definitions of all C files of the data plane: words in shared memory, and branches. */
#ifndef FTRMA_INTERNAL_H
#define FTRMA_INTERNAL_H

#include <stdint.h>

#include "ftrma.h"

#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

/* Loads and stores of words that several processes share are sequentially consistent: two processes
   that each store a word and then load the other's must not both miss the other's store (meet.c,
   alarm.c, the bells), and an acquiring load could come before the store. On x86 and ARM a load costs
   the same either way. */
#define LOAD(p) __atomic_load_n((p), __ATOMIC_SEQ_CST)
#define STORE(p, v) __atomic_store_n((p), (v), __ATOMIC_SEQ_CST)

#endif
