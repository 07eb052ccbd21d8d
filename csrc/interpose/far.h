/* Members of a window or communicator that are on other nodes: how they find each other's parts,
 * their locks, the words that they wait at (far.c).  Bytes: farbytes.h; atomics: faratomic.h.
 *
 * In a job on one node nobody is far, and none of this is called.  Functions return MPI codes.
 */
#ifndef FTRMA_FAR_H
#define FTRMA_FAR_H

#include "communicator_state.h"
#include "event_clock.h"
#include "window.h"

/* A member as a target of the wire. */
static inline uint32_t slot_of(const struct window *w, int target)
{
    return (uint32_t)w->members[target].slot;
}

/* Tell the node's agent where the own part lies, so that others can reach it. 0, or -EMFILE:
   there are too many parts. */
int ftrma_far_announce(struct window *w);
void ftrma_far_withdraw(struct window *w); /* from here on nobody reaches the own part */

/* Take and give a lock; how: enum ftrma_wire_lock. */
int ftrma_far_lock(struct window *w, int target, int how);
int ftrma_far_unlock(struct window *w, int target, int how);
/* Take and give the right to change a part: against other processes, and other threads of this
   one. */
int ftrma_far_begin_change(struct window *w, int target);
void ftrma_far_end_change(struct window *w, int target);
/* Take and give a lock in two steps, ask and finish, so that requests to several targets are
   under way at once. Nothing else may be asked of a target between them. [out] sc: SC of the
   part, where it is not NULL. */
int ftrma_far_ask_lock(struct window *w, int target, int how);
int ftrma_far_ask_unlock(struct window *w, int target, int how);
int ftrma_far_finish(struct window *w, int target, uint64_t *sc);
/* Wake this node's agent: a lock of this node is free, and other nodes wait for it. */
void ftrma_far_ring(void);

/* Raise a word of the window's header at another member, after all that was written there; a
   flush waits for it. */
int ftrma_far_set(struct window *w, int target, const uint64_t *word, uint64_t value);
/* Raise a word of the window's header at all other nodes, once at each. */
int ftrma_far_tell(struct window *w, const uint64_t *word, uint64_t value);

/* Below the horizon requests have the numbers that they had, and all but puts have taken effect. */
static inline int is_replayed(void)
{
    return unlikely(ftrma_event_clock.mode == FTRMA_REPLAY) && ftrma_counted && !ftrma_in_prefix();
}

/* In a replay: count a request as done that was sent to this member before the death, and is no
   put; and the requests of ftrma_far_tell(). */
void ftrma_far_pass(struct window *w, int target);
void ftrma_far_pass_tell(struct window *w);

/* The other nodes that members are on, as targets of the wire: [out] targets, room for spec->n.
   Returns their number. */
int ftrma_far_others(const struct ftrma_spec *spec, uint32_t *targets);
/* Copy bytes of the own board to the boards of the other nodes, then raise the word there; and
   wait until all of it is there. */
int ftrma_far_show(const struct communicator *c, const void *from, size_t bytes,
                   const uint64_t *word, uint64_t value);
int ftrma_far_shown(const struct communicator *c);

#endif
