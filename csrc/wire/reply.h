/* Replies of the agent (reply.c). */
#ifndef FTRMA_REPLY_H
#define FTRMA_REPLY_H

#include "agent_state.h"

/* Reply to a request. operand: its meaning depends on the kind, see wire.h. */
void ftrma_reply(struct ftrma_peer *peer, const struct ftrma_wire_head *to, int kind,
                 uint64_t operand, const void *payload, size_t bytes);
/* Reply to a GET or GETV with bytes and their sum; 0: the sum is not known. */
void ftrma_reply_data(struct ftrma_peer *peer, const struct ftrma_wire_head *to,
                      const void *payload, size_t bytes, uint64_t sum);
/* Reject a request, and drop the following ones to its target until RESEND. why: an enum
   ftrma_wire_why; reached: the last number that is done. */
void ftrma_reply_reject(struct ftrma_peer *peer, const struct ftrma_wire_head *to, int why,
                        uint64_t reached);
/* Tell a peer why its message cannot be carried out. */
void ftrma_reply_broken(struct ftrma_peer *peer, const char *why);

/* Note that a put is applied; it is acknowledged at the next flush, or soon. 0 or -ENOMEM. */
int ftrma_reply_note_put(struct ftrma_peer *peer, const struct ftrma_wire_head *put, uint64_t clock,
                         uint64_t seq);
/* Acknowledge all puts to a target. token: of the FLUSH; 0: unasked, and only if there are puts. */
void ftrma_reply_acks(struct ftrma_peer *peer, uint32_t target, uint64_t token);
/* Acknowledge none of the puts so far: a rollback has made them void. */
void ftrma_reply_forget_puts(struct ftrma_peer *peer);

#endif
