/* What a slot has learned (results.c). */
#ifndef FTRMA_RESULTS_H
#define FTRMA_RESULTS_H

#include "chunks.h"

/* What this event has learned from outside, in order. */
void ftrma_result_log(const void *bytes, size_t n);

#define FTRMA_REACH 256u /* results that a repeated one may lie behind its like; a power of two */

/* The newest results. */
struct ftrma_past {
    uint64_t n;
    struct {
        const void *bytes;
        size_t size;
    } of[FTRMA_REACH];
};

/* Append what an event learned, or count it if it repeats. */
void ftrma_result_append(const struct ftrma_record *record, const void *bytes, size_t size);
/* The same where nothing is logged since the budget was spent; NULL: do not look whether it repeats. */
void ftrma_result_drop(const void *bytes, size_t size);
/* A reader may begin here, or what came so far is gone: nothing behind repeats anything before. */
void ftrma_results_break(void);

/* Steps through the results of a log. */
struct ftrma_answers {
    struct ftrma_reader reader;
    struct ftrma_record *repeat; /* that the next result is of; NULL: it has a record of its own */
    uint64_t used;               /* results of `repeat` so far */
    struct ftrma_past past;
};
void ftrma_answers_begin(struct ftrma_answers *answers, struct ftrma_reader reader);
/* The next result.  0: it is not of this event, or there is none. */
int ftrma_answers_next(struct ftrma_answers *answers, uint64_t event, const void **bytes,
                       size_t *size);
/* Forget what lies above the horizon.  [out] end: of all other records.  0: not all results up to the
   horizon have been used. */
int ftrma_answers_end(struct ftrma_answers *answers, uint64_t horizon, struct ftrma_spot *end);

#endif
