/* Requests that are kept until they are acknowledged, and sent again (retransmit.c). */
#ifndef FTRMA_RETRANSMIT_H
#define FTRMA_RETRANSMIT_H

#include "origin_state.h"

/* The oldest request that is kept, or NULL. */
static inline struct ftrma_wire_head *ftrma_retransmit_first(const struct ftrma_retransmit *s)
{
    return s->from == s->to ? NULL : (struct ftrma_wire_head *)(void *)(s->data + s->from);
}

/* The number of bytes that a kept request takes. */
static inline size_t ftrma_retransmit_size(const struct ftrma_wire_head *head)
{
    return sizeof *head + (((size_t)head->length + 7) & ~(size_t)7);
}

/* Give a request its number and keep it. [out] payload: room for its payload, which the caller
   fills before any other call. NULL: no memory. */
struct ftrma_wire_head *ftrma_retransmit_add(struct ftrma_origin *origin, uint32_t target,
                                             const struct ftrma_wire_head *head, char **payload);
/* Forget the oldest request, or all requests. */
void ftrma_retransmit_pop(struct ftrma_retransmit *kept);
void ftrma_retransmit_clear(struct ftrma_retransmit *kept);

/* Send a request with the present roles and generation, unless its target rejects requests. */
void ftrma_retransmit_send(struct ftrma_origin *origin, uint32_t target,
                           struct ftrma_wire_head *head, const void *payload);
/* Ask for the acknowledgement of all requests to a target. */
void ftrma_retransmit_flush(struct ftrma_origin *origin, uint32_t target);
/* Send the request with a token. */
void ftrma_retransmit_query(struct ftrma_origin *origin);

/* Send all requests to a target again, in their order. */
void ftrma_retransmit_target(struct ftrma_origin *origin, uint32_t target);
/* Send the request with a token again, since its target is now on another node, or on none. */
void ftrma_retransmit_query_again(struct ftrma_origin *origin, uint32_t node, uint32_t target);
/* Send all requests to the targets of a node again, over a new connection. */
void ftrma_retransmit_node(struct ftrma_origin *origin, uint32_t node);

#endif
