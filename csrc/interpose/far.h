/* Members of a window that are on other nodes: reached by the wire (far.c).
 *
 * In a job on one node nobody is far, and none of this is called.  Functions return MPI codes.
 */
#ifndef FTRMA_FAR_H
#define FTRMA_FAR_H

#include "window.h"

/* The node of a slot; all are on one, until ftrma_set_nodes() says otherwise. */
int ftrma_far_node(int slot);
int ftrma_far_here(void); /* of this process */

/* Say where the own part lies, so that it can be reached.  0, or -EMFILE: there are too many. */
int ftrma_far_place(struct window *w);
void ftrma_far_leave(struct window *w); /* nobody reaches it any more */

/* Move bytes between `local` and the touched stretch of a far part; of those that are written, the ones
   that `mask` marks (NULL: all). */
int ftrma_far_move(const struct reach *r, void *local, int write);
int ftrma_far_runs(const struct reach *r, const char *local, const char *mask);
/* Wait until all that was written is there, at one member, or at all. */
int ftrma_far_flush(struct window *w, int target);
int ftrma_far_flush_all(struct window *w);

/* Whether the agent can do this to elements of a type that lie there. */
int ftrma_far_can(const struct reach *r, int kind, MPI_Op op, MPI_Datatype type);
/* Have it done; [out] result: what was there before, where it is not NULL. kind: ACC, FOP or CAS. */
int ftrma_far_atomic(const struct reach *r, int kind, MPI_Op op, MPI_Datatype type,
                     const void *origin, const void *compare, void *result);

/* Take and give a lock; how: enum ftrma_wire_lock. */
int ftrma_far_lock(struct window *w, int target, int how);
int ftrma_far_unlock(struct window *w, int target, int how);
/* The same in two steps, so that those of several targets are under way at once.  Nothing may be asked
   of a target between them.  [out] sc: of the part, where it is not NULL. */
int ftrma_far_ask_lock(struct window *w, int target, int how);
int ftrma_far_ask_unlock(struct window *w, int target, int how);
int ftrma_far_finish(struct window *w, int target, uint64_t *sc);
/* Wake this node's agent: a lock of the own node is free that others wait for. */
void ftrma_far_ring(void);

/* Raise a word of the window's header at another member, behind what was written there; a flush waits
   for it. */
int ftrma_far_set(struct window *w, int target, const uint64_t *word, uint64_t value);
/* The same at all other nodes, each told once. */
int ftrma_far_tell(struct window *w, const uint64_t *word, uint64_t value);

#endif
