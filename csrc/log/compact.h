/* Compaction: freeing records when a slot's logs run short (compact.c). */
#ifndef FTRMA_COMPACT_H
#define FTRMA_COMPACT_H

#include <stdint.h>

/* Free the put log's records up to event `since`, and those that demand checkpoints hold. 0:
   records after a pending one are left, so another try may free more. */
int ftrma_compact_puts(uint64_t since);
/* A hash of the accesses that demand checkpoints hold; it changes when they hold more. */
uint64_t ftrma_held_so_far(void);
/* Ask those slots for a demand checkpoint whose checkpoints would free most of this slot's logs; or
   ask for a coordinated checkpoint, if that does not help. */
void ftrma_demand_ask(void);

#endif
