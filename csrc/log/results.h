/* Results: the bytes that a slot has learned from others (results.c). */
#ifndef FTRMA_RESULTS_H
#define FTRMA_RESULTS_H

#include "chunks.h"

/* Log bytes that this event has learned from outside; they are read back in this order. */
void ftrma_result_log(const void *bytes, size_t n);

#define FTRMA_REACH 256u /* a result may repeat one that came at most so many results before; a
                            power of two */

/* The newest results, to find those that repeat. */
struct ftrma_past {
    uint64_t n;
    struct {
        const void *bytes;
        size_t size;
    } of[FTRMA_REACH];
};

/* Append the result of an event, or count it if it repeats. */
void ftrma_result_append(const struct ftrma_record *record, const void *bytes, size_t size);
/* Count the result of an event while nothing is logged, since the budget was spent; NULL: do not
   look whether it repeats. */
void ftrma_result_drop(const void *bytes, size_t size);
/* Forget the newest results: a reader may begin here, or they are gone. No later one repeats any
   of them. */
void ftrma_results_break(void);

/* A reader of the results of a log. */
struct ftrma_answers {
    struct ftrma_reader reader;
    struct ftrma_record *repeat; /* the record of which the next result is one; NULL: it has a
                                    record of its own */
    uint64_t used;               /* results of `repeat` so far */
    struct ftrma_past past;
};
void ftrma_answers_begin(struct ftrma_answers *answers, struct ftrma_reader reader);
/* Read the next result. 0: it is not of this event, or there is none. */
int ftrma_answers_next(struct ftrma_answers *answers, uint64_t event, const void **bytes,
                       size_t *size);
/* Forget all results above the horizon. [out] end: the end of all other records. 0: not all
   results up to the horizon have been used. */
int ftrma_answers_end(struct ftrma_answers *answers, uint64_t horizon, struct ftrma_spot *end);

#endif
