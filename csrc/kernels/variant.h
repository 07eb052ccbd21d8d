/* The choice among the instruction sets (variant.c). */
#ifndef FTRMA_VARIANT_H
#define FTRMA_VARIANT_H

#include <stdatomic.h>

#include "kernel_table.h"

/* The variant in use. variant.c writes it when the library is loaded, ftrma_kernel_select later. */
extern _Atomic(const struct kernels *) ftrma_kernels_chosen;

static inline const struct kernels *ftrma_kernels(void)
{
    return atomic_load_explicit(&ftrma_kernels_chosen, memory_order_relaxed);
}

/*
 * Returns the name of the instruction set in use: "gfni512" (AVX-512 with GFNI), "avx512", "gfni256"
 * (AVX2 with GFNI), "avx2", "ssse3" or "portable".
 */
const char *ftrma_kernel_name(void);

/*
 * Chooses the instruction set for all later calls, in every thread; for tests and measurements.
 *   name  [in] one of the names above, or NULL for the best one the processor offers
 * Returns 0, or -1 if the name is unknown or the processor lacks the instructions; the choice
 * then stays as it was.
 */
int ftrma_kernel_select(const char *name);

#endif
