/* Operations on elements (combine.c). */
#ifndef FTRMA_COMBINE_H
#define FTRMA_COMBINE_H

#include <stddef.h>

/* Compute to[i] = to[i] op with[i]. op and type: they fit each other (message.h). Any alignment. */
void ftrma_combine(int op, int type, void *to, const void *with, size_t bytes);

#endif
