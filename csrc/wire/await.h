/* Waits for replies of agents (await.c). */
#ifndef FTRMA_AWAIT_H
#define FTRMA_AWAIT_H

#include "origin_state.h"

/* Wait until `done` returns 1 for a target; connects to the node if there is no connection. Returns
   FTRMA_OK, FTRMA_ALARM, FTRMA_TIMEOUT, FTRMA_WIRE_STALE, FTRMA_WIRE_REFUSED. */
int ftrma_await(struct ftrma_origin *origin, uint32_t node,
                int (*done)(const struct ftrma_origin *origin, uint32_t target), uint32_t target);
/* Send a request with a token, and wait for its reply, whose bytes go to data. */
int ftrma_await_query(struct ftrma_origin *origin, uint32_t node,
                      const struct ftrma_wire_head *head, const void *payload, void *data,
                      size_t bytes);

/* Connect if there is no connection and the pause after the last try is over. */
void ftrma_await_connect(struct ftrma_origin *origin, uint32_t node, uint64_t deadline);
/* The deadline of a call that begins now, by ftrma_engine_ns(); 0: it may wait for ever. */
uint64_t ftrma_await_deadline(const struct ftrma_origin *origin);

#endif
