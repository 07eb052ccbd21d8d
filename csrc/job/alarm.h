/* The alarm: it tells whether a failure waits to be handled (alarm.c). */
#ifndef FTRMA_ALARM_H
#define FTRMA_ALARM_H

#include "control.h"

extern uint64_t ftrma_round; /* the repair round that this process left last; it alone writes
                                this */

/* Have all waits of this process end: the watching thread has seen another alarm than before. */
void ftrma_alarm_seen(void);

/* 1 if a failure waits to be handled: calls of the user's program go no further. */
static inline int ftrma_pending(void)
{
    if (ftrma_ctl == NULL)
        return 0;
    uint64_t alarm = LOAD(&ftrma_ctl->alarm);
    return unlikely(alarm != ftrma_round) && alarm != FTRMA_ENDED;
}

#endif
