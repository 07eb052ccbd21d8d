/* Running a pass (gf.c), also one that kernels.c has made. */
#ifndef FTRMA_GF_RUN_H
#define FTRMA_GF_RUN_H

#include "kernel_table.h"

/* Runs a pass over the bytes [at, end) with the variant in use, and past the caches if `stream` is
 * set and the outputs' alignment allows it. Sets pass->stream. */
void ftrma_gf_run(struct gf_pass *pass, size_t at, size_t end, int stream);

#endif
