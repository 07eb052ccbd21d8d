/* Marks: the places in the logs to which versions belong (marks.c). */
#ifndef FTRMA_MARKS_H
#define FTRMA_MARKS_H

#include "internal.h"

/* Empty this slot's put log, and cut the result log after `spot`, where appending goes on. */
void ftrma_log_resume(struct ftrma_spot spot);
/* Mark both logs for a demand checkpoint of this number. */
const struct ftrma_mark *ftrma_mark_demand(uint64_t number);

#endif
