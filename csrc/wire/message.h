/* Which messages there are, and which of them are well formed (message.c). */
#ifndef FTRMA_MESSAGE_H
#define FTRMA_MESSAGE_H

#include "wire.h"

enum ftrma_wire_side { FTRMA_WIRE_REQUESTS = 1, FTRMA_WIRE_REPLIES };

/* Why a head cannot be that of a message to this side; NULL: it can.  Looks at nothing but the head,
   so that a length is judged before memory is taken for it. */
const char *ftrma_message_fault(const struct ftrma_wire_head *head, int side);

/* Why what is behind a head that can be does not belong to it; NULL: it does. */
const char *ftrma_message_payload_fault(const struct ftrma_wire_head *head, const void *payload);

/* Whether it is what agents say to each other, and no origin says. */
int ftrma_message_among_agents(const struct ftrma_wire_head *head);

/* Whether a request has a number of its (origin, target), and is done once. */
int ftrma_message_numbered(const struct ftrma_wire_head *head);

/* Bytes of an element of an atomic's type; 0: there is no such type. */
size_t ftrma_message_element(int type);

static inline int ftrma_message_type(const struct ftrma_wire_head *head)
{
    return head->operation & 0xf;
}

static inline int ftrma_message_op(const struct ftrma_wire_head *head)
{
    return head->operation >> 4;
}

#endif
