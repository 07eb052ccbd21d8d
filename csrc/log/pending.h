/* Pending records: puts to other nodes that the agent has not acknowledged yet (pending.c). */
#ifndef FTRMA_PENDING_H
#define FTRMA_PENDING_H

#include "chunks.h"

#define FTRMA_UNKNOWN UINT64_MAX /* clock and seq of a pending record */

/* Records that are appended to the put log from here on go to this slot and are pending ... */
int ftrma_pending_open(int target);
/* ... up to this call, until the put with this number is acknowledged. */
void ftrma_pending_close(int target, uint64_t number);
/* Note that the agent has told clock and seq of all puts up to this number; the arguments are those
   of the last one. */
void ftrma_pending_acked(int target, uint64_t number, uint64_t clock, uint64_t seq);
/* 1 if records that are pending begin in this chunk, given by its number + 1, or if they may
   begin anywhere. */
int ftrma_pending_since(uint32_t chunk);
/* Forget all pending records, since the logs begin anew. */
void ftrma_pending_clear(void);

#endif
