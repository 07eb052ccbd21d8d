/* The rules for messages (message.c). */
#ifndef FTRMA_MESSAGE_H
#define FTRMA_MESSAGE_H

#include "wire.h"

/* Sides of the wire, by the messages that arrive there: requests at agents, replies at origins. */
enum ftrma_wire_side { FTRMA_WIRE_REQUESTS = 1, FTRMA_WIRE_REPLIES };

/* The fault of a message that does not match its sums: it was changed on its way. Its sender has
   kept to the rules and is told nothing; the connection ends, and the next one gets the message
   again. */
extern const char *const ftrma_message_damaged;

/* Set the sums of a message that is sent; that of its payload is computed if it is 0. */
void ftrma_message_seal(struct ftrma_wire_head *head, const void *payload);

/* Say why an incoming head breaks the rules for messages to this side, in words, or return
   ftrma_message_damaged; NULL: neither. This looks only at the head, so that a length is checked
   before memory is allocated for it. */
const char *ftrma_message_fault(const struct ftrma_wire_head *head, int side);
/* Check only the rules, for a head that has no sums yet. */
const char *ftrma_message_broken_rule(const struct ftrma_wire_head *head, int side);

/* Say why an incoming payload does not fit its head, which has no fault, or return
   ftrma_message_damaged; NULL: neither. */
const char *ftrma_message_payload_fault(const struct ftrma_wire_head *head, const void *payload);

/* 1: the message is sent between agents, and not by origins. */
int ftrma_message_among_agents(const struct ftrma_wire_head *head);

/* 1: the message is a request with a number for its origin and target, which is carried out
   once. */
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
