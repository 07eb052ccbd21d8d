/* The event clock: the number of events that this slot has completed, and why it cannot be
 * replayed; see event_clock.h. */
#include "event_clock.h"

#include <stdio.h>

#include "alarm.h"
#include "attempt.h"
#include "control.h"

struct ftrma_event_clock ftrma_event_clock;
_Thread_local int ftrma_counted;

void ftrma_note_first(void)
{
    struct ftrma_slot *s = ftrma_event_clock.slot;
    struct ftrma_mark *marks[] = {&s->marks[0], &s->marks[1], &s->demand_marks[0],
                                  &s->demand_marks[1]};
    for (int i = 0; i < 4; i++)
        if (marks[i]->events + 1 == ftrma_event_clock.first)
            marks[i]->first_hash = ftrma_event_clock.hash;
}

/* ---- why a slot cannot be replayed ---------------------------------------------------------- */

void ftrma_keep_refusal(const char *reason)
{
    if (!ftrma_ctl->refusal[0])
        snprintf(ftrma_ctl->refusal, sizeof ftrma_ctl->refusal, "%s", reason);
}

void ftrma_refuse(const char *reason)
{
    ftrma_keep_refusal(reason);
    ftrma_raise(ftrma_round);
}

void ftrma_break(uint32_t why)
{
    for (int i = 0; i < 2; i++)
        ftrma_mark_break(&ftrma_event_clock.slot->marks[i], why);
}

void ftrma_blame(struct ftrma_mark *mark, uint32_t why, const char *call)
{
    if (!(mark->broken & (FTRMA_BROKEN_FOREIGN | FTRMA_BROKEN_HELD)))
        snprintf(mark->call, sizeof mark->call, "%s", call);
    ftrma_mark_break(mark, why);
}

static void blame_all(uint32_t why, const char *call)
{
    struct ftrma_event_clock *t = &ftrma_event_clock;
    if (!t->on || ftrma_stale())
        return;
    if (t->mode) {
        char words[128];
        snprintf(words, sizeof words, "its program calls %s, which a replay cannot repeat", call);
        ftrma_refuse(words);
        return;
    }
    for (int i = 0; i < 2; i++)
        ftrma_blame(&t->slot->marks[i], why, call);
}

void ftrma_foreign(const char *call)
{
    ftrma_event_clock.messages++;
    ftrma_event_clock.unfollowed++;
    blame_all(FTRMA_BROKEN_FOREIGN, call);
}

void ftrma_hold(const char *call)
{
    blame_all(FTRMA_BROKEN_HELD, call);
}

int ftrma_uncounted(void)
{
    const struct ftrma_mark *marks = ftrma_event_clock.slot->marks;
    if (marks[0].broken & marks[1].broken & FTRMA_BROKEN_FOREIGN)
        return 0;
    ftrma_foreign("MPI from a second thread");
    return 1;
}
