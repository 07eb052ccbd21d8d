/* Marks (marks.c). */
#ifndef FTRMA_MARKS_H
#define FTRMA_MARKS_H

#include "internal.h"

/* Forget the own put log, and what the result log has behind `spot`; go on writing there. */
void ftrma_log_resume(struct ftrma_spot spot);
/* Mark both logs for a demand checkpoint of this number. */
const struct ftrma_mark *ftrma_mark_demand(uint64_t number);

#endif
