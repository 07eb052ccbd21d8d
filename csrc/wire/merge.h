/* Words that come from other nodes, and words that were changed on this one (merge.c). */
#ifndef FTRMA_MERGE_H
#define FTRMA_MERGE_H

#include "mirror.h"

/* Copy words of another node into the journal while it is not valid. NULL, or why they cannot be
   taken, in words. */
const char *ftrma_merge_stage(struct ftrma_mirror *mirror, const void *words, uint64_t n);
/* Store the n words in the journal, in their order. from: their node; number: of its message. */
void ftrma_merge_take(struct ftrma_mirror *mirror, uint32_t from, uint64_t number, uint64_t n);
/* Store the rest of a message that the previous agent had stored in part when it was killed. */
void ftrma_merge_finish(struct ftrma_mirror *mirror);

/* Put the words that were changed on this node, or all words, into `found` in the order in which
   they are sent. Returns their number. */
uint64_t ftrma_merge_find(struct ftrma_mirror *mirror, int all);
/* Note that n words of `found` are about to be sent in one message. number: 0 at the hub. */
void ftrma_merge_note(struct ftrma_mirror *mirror, uint64_t first, uint64_t n, uint64_t number);

/* Store which scan's words are ordered by now; at the hub words are ordered once they are sent. */
void ftrma_merge_note_ordered(struct ftrma_mirror *mirror);

/* 1: the alarm is pending. */
int ftrma_merge_alarmed(const struct ftrma_mirror *mirror);

#endif
