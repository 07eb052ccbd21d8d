/* Members of a window or communicator on other nodes: how they find each other's parts, their
 * locks, and the words at which they wait (far.c). For bytes see farbytes.h, for atomics
 * faratomic.h.
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

/* Tell the node's agent where this slot's part lies, so that others can reach it. 0, or -EMFILE:
   there are too many parts. */
int ftrma_far_announce(struct window *w);
void ftrma_far_withdraw(struct window *w); /* from here on nobody reaches this slot's part */

/* Take and give back a lock; how: enum ftrma_wire_lock. */
int ftrma_far_lock(struct window *w, int target, int how);
int ftrma_far_unlock(struct window *w, int target, int how);
/* Take and give back the right to change a part, which excludes other processes and other threads
   of this process. */
int ftrma_far_begin_change(struct window *w, int target);
void ftrma_far_end_change(struct window *w, int target);
/* Take and give back a lock in two steps, ask and finish, so that requests to several targets are
   under way at the same time. Nothing else may be asked of a target between the two. [out] sc: SC
   of the part, if it is not NULL. */
int ftrma_far_ask_lock(struct window *w, int target, int how);
int ftrma_far_ask_unlock(struct window *w, int target, int how);
int ftrma_far_finish(struct window *w, int target, uint64_t *sc);
/* Wake this node's agent: a lock of this node is free, and other nodes wait for it. */
void ftrma_far_ring(void);

/* Raise a word of the window's header at another member, after everything that was written there; a
   flush waits for it. */
int ftrma_far_set(struct window *w, int target, const uint64_t *word, uint64_t value);
/* Raise a word of the window's header at all other nodes, once at each. */
int ftrma_far_tell(struct window *w, const uint64_t *word, uint64_t value);

/* Up to the horizon requests have the same numbers as before, and all but puts have taken
   effect. */
static inline int is_replayed(void)
{
    return unlikely(ftrma_event_clock.mode == FTRMA_REPLAY) && ftrma_counted && !ftrma_in_prefix();
}

/* In a replay: count as done a request, other than a put, that was sent to this member before the
   death; and the requests of ftrma_far_tell(). */
void ftrma_far_pass(struct window *w, int target);
void ftrma_far_pass_tell(struct window *w);

/* Find the other nodes with members, as targets of the wire: [out] targets, with room for spec->n.
   Returns their number. */
int ftrma_far_others(const struct ftrma_spec *spec, uint32_t *targets);
/* Copy bytes of this node's board to the boards of the other nodes, then raise the word there. The
   second function waits until all of it has arrived. */
int ftrma_far_show(const struct communicator *c, const void *from, size_t bytes,
                   const uint64_t *word, uint64_t value);
int ftrma_far_shown(const struct communicator *c);

#endif
