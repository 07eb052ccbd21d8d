/* Common definitions of all C files of the data plane: words in shared memory, and branches. */
#ifndef FTRMA_INTERNAL_H
#define FTRMA_INTERNAL_H

#include <stdint.h>

#include "ftrma.h"

#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

#define LOAD(p) __atomic_load_n((p), __ATOMIC_ACQUIRE)
#define STORE(p, v) __atomic_store_n((p), (v), __ATOMIC_SEQ_CST)

#endif
