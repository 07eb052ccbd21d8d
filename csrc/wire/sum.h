/* A sum of bytes, which reveals that a message was changed on its way (sum.c). */
#ifndef FTRMA_SUM_H
#define FTRMA_SUM_H

#include <stddef.h>
#include <stdint.h>

uint64_t ftrma_sum(const void *data, size_t bytes);
/* Copy bytes and sum the copy, which costs little more than copying. Others may store to the source
   meanwhile. */
uint64_t ftrma_sum_copy(void *to, const void *data, size_t bytes);

#endif
