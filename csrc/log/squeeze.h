/* What a slot does when its logs run short (squeeze.c). */
#ifndef FTRMA_SQUEEZE_H
#define FTRMA_SQUEEZE_H

#include <stdint.h>

/* Free the put log's records up to event `since`, and what demand checkpoints hold. 0: not behind
   what is pending, which is worth another try. */
int ftrma_squeeze_puts(uint64_t since);
/* Another value when more is held by then. */
uint64_t ftrma_held_so_far(void);
/* Have those slots checkpoint that free most of this slot's logs, or all where that does not help. */
void ftrma_demand_ask(void);

#endif
