/* Parts of a node's windows, and what is done with all of them (parts.c). */
#ifndef FTRMA_PARTS_H
#define FTRMA_PARTS_H

#include "ledger.h"

/* Its file, mapped if need be; NULL: it is not as it was said. */
char *ftrma_parts_map(struct ftrma_ledger *ledger, uint32_t part);
/* Let the memory of parts that are gone, or somewhere else by now, go. */
void ftrma_parts_unmap_released(struct ftrma_ledger *ledger);
/* Copy bytes out of a part and into it, wherever it lies. 0 or -errno. */
int ftrma_parts_read(struct ftrma_ledger *ledger, uint32_t part, uint64_t offset, void *to, size_t n);
int ftrma_parts_write(struct ftrma_ledger *ledger, uint32_t part, uint64_t offset, const void *from,
                      size_t n);

/* Take back the atomics that the agent before was inside of. */
void ftrma_parts_undo_unfinished(struct ftrma_ledger *ledger);

/* New roles. forget: numbers, answers, undos and locks of before mean nothing any more.
   between: called when the roles are in force and not all is forgotten. */
void ftrma_parts_roles(struct ftrma_ledger *ledger, uint64_t roles_number, int forget,
                       void (*between)(void *arg), void *arg);
/* Forget what an agent was killed amid forgetting. */
void ftrma_parts_finish_roles(struct ftrma_ledger *ledger);

/* Raise a word in the head of the part's file, and wake who waits for one. */
void ftrma_parts_set(struct ftrma_ledger *ledger, uint32_t part, uint64_t word, uint64_t value);
/* Wake processes of the node that wait at one bell. */
void ftrma_parts_ring(struct ftrma_bell *bell);
/* Wake processes of the node that wait at the bells of the part's file. */
void ftrma_parts_wake(struct ftrma_ledger *ledger, uint32_t part);
/* Somebody of the node sleeps there. */
int ftrma_parts_sleepers(struct ftrma_ledger *ledger, uint32_t part);
/* Make the lock word of a part say what `holds` says. Whoever of this node waits is woken. */
void ftrma_parts_refresh_lock(struct ftrma_ledger *ledger, uint32_t part);

#endif
