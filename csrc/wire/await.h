/* Waiting for what agents reply (await.c). */
#ifndef FTRMA_AWAIT_H
#define FTRMA_AWAIT_H

#include "origin_state.h"

/* Wait until `done` holds of the origin and a target; connects to the node as long as nobody is
   there.  FTRMA_OK, FTRMA_ALARM, FTRMA_TIMEOUT, FTRMA_WIRE_STALE, FTRMA_WIRE_REFUSED. */
int ftrma_await(struct ftrma_origin *origin, uint32_t node,
                int (*done)(const struct ftrma_origin *origin, uint32_t target), uint32_t target);
/* Ask a node for something that needs no number, and wait for it; what comes goes to data. */
int ftrma_await_query(struct ftrma_origin *origin, uint32_t node,
                      const struct ftrma_wire_head *head, const void *payload, void *data,
                      size_t bytes);

/* Connect if there is no connection, and it is time to try. */
void ftrma_await_connect(struct ftrma_origin *origin, uint32_t node, uint64_t deadline);
/* Until when a call that begins now may wait, by the monotonic clock in ns; 0: for ever. */
uint64_t ftrma_await_deadline(const struct ftrma_origin *origin);

#endif
