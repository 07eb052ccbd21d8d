/* Parts of a node's windows (parts.c); wire.h has the functions that place and find them. */
#ifndef FTRMA_PARTS_H
#define FTRMA_PARTS_H

#include "ledger.h"

/* The part's file, which is mapped if necessary; NULL: the file does not agree with the part's
   place. */
char *ftrma_parts_map(struct ftrma_ledger *ledger, uint32_t part);
/* Unmap the files of parts that were released or placed anew. */
void ftrma_parts_unmap_released(struct ftrma_ledger *ledger);
/* Copy bytes out of a part and into it, in a file or in the memory of a process. 0 or -errno. */
int ftrma_parts_read(struct ftrma_ledger *ledger, uint32_t part, uint64_t offset, void *to, size_t n);
int ftrma_parts_write(struct ftrma_ledger *ledger, uint32_t part, uint64_t offset, const void *from,
                      size_t n);

/* Undo atomics that the previous agent has left half done. */
void ftrma_parts_undo_unfinished(struct ftrma_ledger *ledger);

/* Put new roles in force. forget: clear numbers, answers, undos and locks (a rollback). between:
   called when the roles are in force and not everything is cleared yet. */
void ftrma_parts_roles(struct ftrma_ledger *ledger, uint64_t roles_number, int forget,
                       void (*between)(void *arg), void *arg);
/* Finish the clearing of a rollback that the previous agent has left half done. */
void ftrma_parts_finish_roles(struct ftrma_ledger *ledger);

/* Raise a word in the head of the part's file, and wake the processes that wait there. */
void ftrma_parts_set(struct ftrma_ledger *ledger, uint32_t part, uint64_t word, uint64_t value);
/* Wake processes of the node that wait at one bell. */
void ftrma_parts_ring(struct ftrma_bell *bell);
/* Wake processes of the node that wait at the bells of the part's file. */
void ftrma_parts_wake(struct ftrma_ledger *ledger, uint32_t part);
/* 1: a process of the node sleeps at the part's bells. */
int ftrma_parts_sleepers(struct ftrma_ledger *ledger, uint32_t part);
/* Make the lock word of a part agree with `holds`. Wakes the processes of the node that wait. */
void ftrma_parts_refresh_lock(struct ftrma_ledger *ledger, uint32_t part);

#endif
