/* Appending to the logs (log.c); chunks.h has their layout. */
#ifndef FTRMA_LOG_H
#define FTRMA_LOG_H

#include <string.h>

#include "chunks.h"
#include "event_clock.h"
#include "record_sum.h"

int ftrma_log_wanted(void); /* FTRMA_LOG_* that the user asked for */
/* Note a safepoint: as much as was logged since the last one is expected before the next. */
void ftrma_log_step(void);
void ftrma_log_pace_reset(void); /* called when the program is entered */
/* Tell the user, by the function of ftrma_set_full. */
void ftrma_log_tell_full(uint64_t needed_bytes);

/* Go on to another chunk.  0: the budget is spent, logging ends until the next checkpoint. */
int ftrma_log_next_chunk(int log);

/* Append a record with `bytes` of payload, in pieces if it does not fit into a chunk. Also write
   the payload to `also` in the same pass, unless that is NULL (`both` as in ftrma_copy_past). */
void ftrma_log_append(int log, const struct ftrma_record *record, const void *payload,
                      size_t bytes, char *also, int both);

/* Remove everything that was appended since the pen was `before`, if it lies in one chunk. */
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

/* Append a small record: the fast path. */
static inline void ftrma_log_small(int log, const struct ftrma_record *record,
                                   const void *payload, size_t bytes)
{
    struct ftrma_pen *pen = &ftrma_pens[log];
    uint32_t size = (uint32_t)ftrma_record_size(bytes);
    if (unlikely(bytes > FTRMA_SUM_SHORT || size > pen->room)) {
        ftrma_log_append(log, record, payload, bytes, NULL, 0);
        return;
    }
    struct ftrma_record *to = (struct ftrma_record *)(void *)pen->at;
    *to = *record;
    to->bytes = (uint32_t)bytes;
    memcpy(pen->at + sizeof *record, payload, bytes);
    to->sum = ftrma_record_sum(to, ftrma_payload_sum(pen->at + sizeof *record, bytes));
    to->order = ftrma_record_order(to);
    pen->at += size;
    pen->room -= size;
    __atomic_store_n(&ftrma_log->chunk[pen->chunk].fill,
                     ftrma_log->chunk[pen->chunk].fill + size, __ATOMIC_RELEASE);
}

#endif
