/* Records of puts to other nodes that the agent has not acknowledged yet (pending.c). */
#ifndef FTRMA_PENDING_H
#define FTRMA_PENDING_H

#include "chunks.h"

#define FTRMA_UNKNOWN UINT64_MAX /* clock and seq of such a record */

/* What is appended to the put log from here on goes to this slot and is pending ... */
int ftrma_pending_open(int target);
/* ... up to here, until the put with this number is acknowledged. */
void ftrma_pending_close(int target, uint64_t number);
/* The agent has told clock and seq of all puts up to this number: those of the last one. */
void ftrma_pending_acked(int target, uint64_t number, uint64_t clock, uint64_t seq);
/* What is pending toward some slot begins in this chunk, by its number + 1, or perhaps in any. */
int ftrma_pending_since(uint32_t chunk);
/* The logs begin anew. */
void ftrma_pending_clear(void);

#endif
