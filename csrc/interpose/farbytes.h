/* Bytes of members on other nodes: reading, writing, and waiting for writes (farbytes.c).
 *
 * Functions return MPI codes.
 */
#ifndef FTRMA_FARBYTES_H
#define FTRMA_FARBYTES_H

#include "window.h"

/* Move bytes between `local` and the touched stretch of a far part; or write the bytes that
   `mask` marks (NULL: all). */
int ftrma_far_move(const struct reach *r, void *local, int write);
int ftrma_far_runs(const struct reach *r, const char *local, const char *mask);
/* Wait until everything that was written to one member, or to all, has arrived. */
int ftrma_far_flush(struct window *w, int target);
int ftrma_far_flush_all(struct window *w);

/* Mark the records that are appended to the put log between these two calls as puts to a far
   part. */
int ftrma_far_log_open(const struct reach *r);
void ftrma_far_log_close(const struct reach *r);

#endif
