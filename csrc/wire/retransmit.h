/* What an origin has sent and nobody has acknowledged (retransmit.c). */
#ifndef FTRMA_RETRANSMIT_H
#define FTRMA_RETRANSMIT_H

#include "origin_state.h"

static inline struct ftrma_wire_head *ftrma_retransmit_first(const struct ftrma_retransmit *s)
{
    return s->from == s->to ? NULL : (struct ftrma_wire_head *)(void *)(s->data + s->from);
}

static inline size_t ftrma_retransmit_size(const struct ftrma_wire_head *head)
{
    return sizeof *head + (((size_t)head->length + 7) & ~(size_t)7);
}

/* Give a request its number and keep it; it is sent if its target takes requests. [out] payload: room
   for what is behind the head, which the caller fills before anything else. NULL: no memory. */
struct ftrma_wire_head *ftrma_retransmit_add(struct ftrma_origin *origin, uint32_t target,
                                             const struct ftrma_wire_head *head, char **payload);
void ftrma_retransmit_pop(struct ftrma_retransmit *kept);
void ftrma_retransmit_clear(struct ftrma_retransmit *kept);

/* Send one, with the roles and the generation of now, if it can be taken. */
void ftrma_retransmit_send(struct ftrma_origin *origin, uint32_t target,
                           struct ftrma_wire_head *head, const void *payload);
/* Ask for the acknowledgement of all that was sent to a target. */
void ftrma_retransmit_flush(struct ftrma_origin *origin, uint32_t target);
/* The same of the request without a number that is waited for. */
void ftrma_retransmit_query(struct ftrma_origin *origin);

/* Send all again that is for this target, in its order. */
void ftrma_retransmit_target(struct ftrma_origin *origin, uint32_t target);
/* The same of what a node was asked, where its target is somewhere else by now, or nowhere. */
void ftrma_retransmit_query_again(struct ftrma_origin *origin, uint32_t node, uint32_t target);
/* The same for all targets of a node, over a new connection. */
void ftrma_retransmit_node(struct ftrma_origin *origin, uint32_t node);

#endif
