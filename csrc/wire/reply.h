/* What the agent sends (reply.c). */
#ifndef FTRMA_REPLY_H
#define FTRMA_REPLY_H

#include "agent_state.h"

/* The head of a reply to a request; operand as its kind has it. */
void ftrma_reply(struct ftrma_peer *peer, const struct ftrma_wire_head *to, int kind,
                 uint64_t operand, const void *payload, size_t bytes);
/* It is refused, and what follows it to this target is dropped until RESEND. */
void ftrma_reply_reject(struct ftrma_peer *peer, const struct ftrma_wire_head *to, int why,
                        uint64_t reached);
void ftrma_reply_broken(struct ftrma_peer *peer, const char *why);

/* A put is applied: it is acknowledged at the next flush, or soon. -ENOMEM: it cannot be noted. */
int ftrma_reply_note_put(struct ftrma_peer *peer, const struct ftrma_wire_head *put, uint64_t clock,
                         uint64_t seq);
/* Acknowledge all that is owed of a target; token 0: only if there is something. */
void ftrma_reply_acks(struct ftrma_peer *peer, uint32_t target, uint64_t token);
void ftrma_reply_forget_puts(struct ftrma_peer *peer); /* what is owed: the roles are new */

#endif
