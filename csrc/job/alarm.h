/* The alarm: it tells whether a failure waits to be handled (alarm.c). */
#ifndef FTRMA_ALARM_H
#define FTRMA_ALARM_H

#include "control.h"

extern uint64_t ftrma_round; /* the repair round that this process left last; only this process
                                writes it */

/* Make all waits of this process end, since the watching thread has seen a new alarm. */
void ftrma_alarm_seen(void);

/* 1 if a process has died since repair `round` began, so that a later round handles its death. */
int ftrma_died_since(uint64_t round);

/* 1 if a failure waits to be handled, so that calls of the program must not go on. */
static inline int ftrma_pending(void)
{
    if (ftrma_ctl == NULL)
        return 0;
    uint64_t alarm = LOAD(&ftrma_ctl->alarm);
    return unlikely(alarm != ftrma_round) && alarm != FTRMA_ENDED;
}

#endif
