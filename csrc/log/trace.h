/* The trace: one record for each event, written as the event ends (--trace). */
#ifndef FTRMA_TRACE_H
#define FTRMA_TRACE_H

#include "internal.h"

extern struct ftrma_trace_record ftrma_trace; /* record of the event that is under way */
extern int ftrma_tracing;

/* Write this record; the process's own fields are filled in here. */
void ftrma_trace_write(struct ftrma_trace_record *record);
void ftrma_trace_begin(int what, int window); /* window: number in this slot's program order */
/* The number of a window in traces, equal at all of its members: slot of the first, and number
   there. */
static inline int32_t ftrma_trace_window(uint64_t name_number)
{
    return (int32_t)(name_number >> 32 << 16 | (name_number & 0xffff));
}
/* Write an additional record for an event: the one under way, or the last one. */
void ftrma_trace_beside(int what, int target, uint64_t event);
void ftrma_trace_end(int mode, uint64_t event, uint64_t clock);

#endif
