/* Members of a window or communicator that are on other nodes: how they find each other's parts,
 * their locks, the words that they wait at (far.c).  Bytes: farbytes.h; atomics: faratomic.h.
 *
 * In a job on one node nobody is far, and none of this is called.  Functions return MPI codes.
 */
#ifndef FTRMA_FAR_H
#define FTRMA_FAR_H

#include "comm.h"
#include "tape.h"
#include "window.h"

/* A member as a target of the wire. */
static inline uint32_t slot_of(const struct window *w, int target)
{
    return (uint32_t)w->members[target].slot;
}

/* Say where the own part lies, so that it can be reached.  0, or -EMFILE: there are too many. */
int ftrma_far_place(struct window *w);
void ftrma_far_leave(struct window *w); /* nobody reaches it any more */

/* Take and give a lock; how: enum ftrma_wire_lock. */
int ftrma_far_lock(struct window *w, int target, int how);
int ftrma_far_unlock(struct window *w, int target, int how);
/* Alone with the changes of a part, in this process, too. */
int ftrma_far_begin_change(struct window *w, int target);
void ftrma_far_end_change(struct window *w, int target);
/* The same in two steps, so that those of several targets are under way at once.  Nothing may be
   asked of a target between them.  [out] sc: of the part, where it is not NULL. */
int ftrma_far_ask_lock(struct window *w, int target, int how);
int ftrma_far_ask_unlock(struct window *w, int target, int how);
int ftrma_far_finish(struct window *w, int target, uint64_t *sc);
/* Wake this node's agent: a lock of the own node is free that others wait for. */
void ftrma_far_ring(void);

/* Raise a word of the window's header at another member, behind what was written there; a flush
   waits for it. */
int ftrma_far_set(struct window *w, int target, const uint64_t *word, uint64_t value);
/* The same at all other nodes, each told once. */
int ftrma_far_tell(struct window *w, const uint64_t *word, uint64_t value);

/* Below the horizon requests have the numbers that they had, and all but puts have taken effect. */
static inline int is_replayed(void)
{
    return unlikely(ftrma_tape.mode == FTRMA_REPLAY) && ftrma_counted && !ftrma_in_prefix();
}

/* In a replay: one request, other than a put, that was sent to this member has been done before;
   and those of ftrma_far_tell(). */
void ftrma_far_pass(struct window *w, int target);
void ftrma_far_pass_tell(struct window *w);

/* Other nodes that members are on, as targets of the wire: [out] targets, room for spec->n. Returns
   how many. */
int ftrma_far_others(const struct ftrma_spec *spec, uint32_t *targets);
/* These bytes of the own board go to the same place on those of the other nodes, then the word
   there is raised; and wait until all of it is there. */
int ftrma_far_show(const struct communicator *c, const void *from, size_t bytes,
                   const uint64_t *word, uint64_t value);
int ftrma_far_shown(const struct communicator *c);

#endif
