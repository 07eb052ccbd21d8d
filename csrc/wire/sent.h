/* What an origin has sent and nobody has acknowledged (sent.c). */
#ifndef FTRMA_SENT_H
#define FTRMA_SENT_H

#include "origin.h"

/* Give a request its number and keep it; it is sent if its target takes requests. [out] payload: room
   for what is behind the head, which the caller fills before anything else. NULL: no memory. */
struct ftrma_wire_head *ftrma_sent_add(struct ftrma_origin *origin, uint32_t target,
                                       const struct ftrma_wire_head *head, char **payload);
void ftrma_sent_pop(struct ftrma_sent *sent);
void ftrma_sent_clear(struct ftrma_sent *sent);

/* Send one, with the roles and the generation of now, if it can be taken. */
void ftrma_sent_out(struct ftrma_origin *origin, uint32_t target, struct ftrma_wire_head *head,
                    const void *payload);
/* Ask for the acknowledgement of all that was sent to a target. */
void ftrma_sent_flush(struct ftrma_origin *origin, uint32_t target);
/* The same of the request without a number that is waited for. */
void ftrma_sent_ask(struct ftrma_origin *origin);

/* Send all again that is for this target, in its order. */
void ftrma_sent_again(struct ftrma_origin *origin, uint32_t target);
/* The same of what a node was asked, where its target is somewhere else by now, or nowhere. */
void ftrma_sent_ask_again(struct ftrma_origin *origin, uint32_t node, uint32_t target);
/* The same for all targets of a node, over a new connection. */
void ftrma_sent_anew(struct ftrma_origin *origin, uint32_t node);

#endif
