/* How words that come and words that were changed here become one file (merge.c). */
#ifndef FTRMA_MERGE_H
#define FTRMA_MERGE_H

#include "mirror.h"

/* Copy words that have come of another node into the journal, which is not valid. NULL, or why
   they cannot be taken. */
const char *ftrma_merge_stage(struct ftrma_mirror *mirror, const void *words, uint64_t n);
/* Take n words that are staged, in their order; from: the node, number: its message's. */
void ftrma_merge_take(struct ftrma_mirror *mirror, uint32_t from, uint64_t number, uint64_t n);
/* Take the rest of what an agent was killed amid. */
void ftrma_merge_finish(struct ftrma_mirror *mirror);

/* Find the words that were changed here, or all that are mirrored: how many, in the order in which
   they are sent. */
uint64_t ftrma_merge_find(struct ftrma_mirror *mirror, int all);
/* Those of n found ones from `first` on are sent; number: 0 at the hub. */
void ftrma_merge_note(struct ftrma_mirror *mirror, uint64_t first, uint64_t n, uint64_t number);

/* Say which look's words are ordered; at the hub they are when they are sent. */
void ftrma_merge_note_ordered(struct ftrma_mirror *mirror);

int ftrma_merge_alarmed(const struct ftrma_mirror *mirror);

#endif
