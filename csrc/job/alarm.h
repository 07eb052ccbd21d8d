/* The alarm: whether a failure waits to be handled (alarm.c). */
#ifndef FTRMA_ALARM_H
#define FTRMA_ALARM_H

#include "control.h"

extern uint64_t ftrma_round; /* repair round last left; written when one is left */

/* The watching thread sees another alarm than before: have all waits of this process end. */
void ftrma_alarm_seen(void);

/* A failure is waiting to be handled: calls of the user's program go no further. */
static inline int ftrma_pending(void)
{
    if (ftrma_ctl == NULL)
        return 0;
    uint64_t alarm = LOAD(&ftrma_ctl->alarm);
    return unlikely(alarm != ftrma_round) && alarm != FTRMA_ENDED;
}

#endif
