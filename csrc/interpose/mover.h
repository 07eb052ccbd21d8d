/* The mover, the only module that knows how bytes travel between windows.
 *
 * On one node a part from Allocate is mapped by every member, so a put is a copy. A part from
 * Create lies in its owner's private memory and is reached through process_vm_readv and
 * process_vm_writev, which fail at once when the owner is dead. Either way an access is complete in
 * memory when its call returns, and no call can wait for a dead process. A part on another node is
 * reached by the wire (farbytes.h).
 */
#ifndef FTRMA_MOVER_H
#define FTRMA_MOVER_H

#include "window.h"

/* Move bytes between `local` and the touched stretch of a part that is not mapped here. */
int ftrma_remote(const struct reach *r, void *local, int write);
/* Provide memory with the layout of the touched stretch: the part itself, or a private image, which
   ftrma_put_back writes back. `address` corresponds to the displacement. */
int ftrma_image(const struct reach *r, char **address, char **owned);
int ftrma_put_back(const struct reach *r, char *owned, int count, MPI_Datatype type, int rc);
/* [out] *mask, to be freed: 1 for each byte of the touched stretch that the layout covers. */
int ftrma_make_mask(const struct reach *r, int count, MPI_Datatype type, char **mask);

/* Write to a member's part, to undo a change. 0, or an MPI code. */
int ftrma_part_write(struct window *w, int member, uint64_t at, const void *bytes, size_t n);

#endif
