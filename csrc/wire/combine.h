/* Operations on elements (combine.c). */
#ifndef FTRMA_COMBINE_H
#define FTRMA_COMBINE_H

#include <stddef.h>

/* to[i] = to[i] op with[i], of a type and for an operation that fit (message.h); any alignment. */
void ftrma_combine(int op, int type, void *to, const void *with, size_t bytes);

#endif
