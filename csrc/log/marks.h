/* Marks: the places in the logs to which versions belong (marks.c). */
#ifndef FTRMA_MARKS_H
#define FTRMA_MARKS_H

#include "internal.h"

/* Empty the own put log, and cut the result log behind `spot`; appending goes on there. */
void ftrma_log_resume(struct ftrma_spot spot);
/* Mark both logs for a demand checkpoint of this number. */
const struct ftrma_mark *ftrma_mark_demand(uint64_t number);

#endif
