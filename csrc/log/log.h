/* Appending to the logs (log.c); what they are: chunks.h. */
#ifndef FTRMA_LOG_H
#define FTRMA_LOG_H

#include <string.h>

#include "chunks.h"
#include "tape.h"

int ftrma_log_wanted(void); /* FTRMA_LOG_* that the user asked for */
/* A safepoint: what was logged since the last one tells what will be before the next. */
void ftrma_log_step(void);
void ftrma_log_pace_reset(void); /* the program is entered */
/* The user is told, see ftrma_set_full. */
void ftrma_log_tell_full(uint64_t needed_bytes);

/* Go on to another chunk.  0: the budget is spent, logging ends until the next checkpoint. */
int ftrma_log_turn(int log);

/* Append a record with `bytes` of payload, in pieces where it does not fit; and write the payload to
   `also`, unless that is NULL, in one pass with the log (`both` as of ftrma_copy_past). */
void ftrma_log_append(int log, const struct ftrma_record *record, const void *payload,
                      size_t bytes, char *also, int both);

/* Take back what was appended since the pen was `before`, if that is at hand. */
static inline void ftrma_log_pop(int log, const struct ftrma_pen *before)
{
    struct ftrma_pen *pen = &ftrma_pens[log];
    if (!before->at || pen->chunk != before->chunk)
        return;
    struct ftrma_chunk *chunk = &ftrma_log->chunk[pen->chunk];
    __atomic_store_n(&chunk->fill, chunk->fill - (uint32_t)(pen->at - before->at),
                     __ATOMIC_RELEASE);
    *pen = *before;
}

/* The fast path of small ones. */
static inline void ftrma_log_small(int log, const struct ftrma_record *record,
                                   const void *payload, size_t bytes)
{
    struct ftrma_pen *pen = &ftrma_pens[log];
    uint32_t size = (uint32_t)(sizeof *record + ((bytes + 7) & ~(size_t)7));
    if (unlikely(bytes > 64 || size > pen->room)) {
        ftrma_log_append(log, record, payload, bytes, NULL, 0);
        return;
    }
    struct ftrma_record *to = (struct ftrma_record *)(void *)pen->at;
    *to = *record;
    to->size = size;
    to->bytes = (uint32_t)bytes;
    memcpy(pen->at + sizeof *record, payload, bytes);
    pen->at += size;
    pen->room -= size;
    __atomic_store_n(&ftrma_log->chunk[pen->chunk].fill,
                     ftrma_log->chunk[pen->chunk].fill + size, __ATOMIC_RELEASE);
}

#endif
