/* The mover, the one part that knows how bytes travel between windows.
 *
 * On one node a part from Allocate is mapped by every member, so a put is a copy; a part from
 * Create lies in its owner's private memory and is reached through process_vm_readv and
 * process_vm_writev, which fail at once when the owner is dead.  Either way an access is complete in
 * memory when its call returns, and no call can wait for a dead process.
 */
#ifndef FTRMA_MOVER_H
#define FTRMA_MOVER_H

#include "window.h"

/* A stretch of the target's part: where it is, and what of it an access touches. */
struct reach {
    struct window *w;
    int target;
    uint64_t at;      /* byte offset of the displacement in the part */
    MPI_Aint low;     /* touched bytes, relative to `at` */
    size_t span;
};

/* Find the stretch that `count` elements of a type touch at a displacement; call: its name in
   errors. */
int ftrma_reach(struct window *w, const char *call, int target, MPI_Aint disp, int count,
                MPI_Datatype type, struct reach *r);

/* Address of the part's memory if this process can touch it directly, else NULL. */
static inline char *ftrma_direct(const struct reach *r)
{
    struct window *w = r->w;
    if (likely(w->allocated))
        return part(w, r->target) + r->at;
    if (r->target == w->me)
        return (char *)(uintptr_t)w->members[r->target].base + r->at;
    return NULL;
}

/* Move bytes between `local` and the touched stretch of a part from Create. */
int ftrma_remote(const struct reach *r, void *local, int write);
/* Memory with the layout of the touched stretch: the part itself, or a private image of it that
   ftrma_put_back returns.  `address` corresponds to the displacement. */
int ftrma_image(const struct reach *r, char **address, char **owned);
int ftrma_put_back(const struct reach *r, char *owned, int count, MPI_Datatype type, int rc);
/* [out] *mask, to be freed: 1 for each byte of the touched stretch that the layout covers. */
int ftrma_make_mask(const struct reach *r, int count, MPI_Datatype type, char **mask);

/* Write to a member's part; for undoing. 0, or an MPI code. */
int ftrma_part_write(struct window *w, int member, uint64_t at, const void *bytes, size_t n);

#endif
