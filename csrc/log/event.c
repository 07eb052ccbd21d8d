/* Events that Python begins and ends; the barrier of all slots, and the end of their programs. */
#include "event.h"

#include "alarm.h"
#include "control.h"
#include "interrupt.h"
#include "log.h"
#include "meet.h"
#include "types.h"

int ftrma_event_begin(int what, uint64_t detail)
{
    if (what == FTRMA_WHAT_SAFEPOINT && ftrma_logs())
        ftrma_log_step();
    return ftrma_sync_begin(what, -1, -1, detail);
}

void ftrma_event_finish(void)
{
    ftrma_event_end();
}

int ftrma_flags_of(int what)
{
    const int flags[] = {FTRMA_EVENT, FTRMA_ACCESS, FTRMA_TICKS, FTRMA_WRITES, FTRMA_COMBINES,
                         FTRMA_FETCHES, FTRMA_PASSIVE};
    int found = 0;
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        found |= what >= 0 && what < FTRMA_WHATS && ftrma_kind_is(what, flags[i]) ? flags[i] : 0;
    return what >= 0 && what < FTRMA_WHATS ? found : -1;
}

/* ---- barrier and end of all slots ----------------------------------------------------------- */

/* The first slot that has not arrived; -1 if all have. */
static int who_lacks(void)
{
    for (uint32_t s = 0; s < ftrma_ctl->nslots; s++)
        if (__atomic_load_n(&ftrma_ctl->slots[s].arrived, __ATOMIC_SEQ_CST) < ftrma_barriers)
            return (int)s;
    return -1;
}

/* Each word has one writer, which stores the number of the barrier: arriving once more changes
   nothing. */
int ftrma_slots_barrier(void)
{
    struct ftrma_ctl *c = ftrma_ctl;
    if (ftrma_unwinding())
        return FTRMA_ALARM;
    int slot, rc = ftrma_sync_begin(FTRMA_WHAT_COLLECTIVE, -1, -1, 0);
    if (rc) {
        ftrma_trace.seq = ++ftrma_barriers;
        ftrma_event_end();
        return rc == 1 ? FTRMA_OK : FTRMA_ALARM;
    }
    ftrma_trace.seq = ftrma_barriers + 1;
    ftrma_my_role(&slot);
    uint32_t seen = LOAD(&c->barrier.word);
    STORE(&c->slots[slot].arrived, ++ftrma_barriers);
    int lacks = who_lacks();
    if (lacks < 0)
        ftrma_wake(&c->barrier);
    else
        ftrma_tell_agent();
    for (unsigned step = 0; (lacks = who_lacks()) >= 0; seen = LOAD(&c->barrier.word)) {
        if (ftrma_unwinding())
            return FTRMA_ALARM;
        ftrma_wait_step(&step, &c->barrier, seen, ftrma_awaits(FTRMA_WHAT_COLLECTIVE, lacks));
    }
    ftrma_event_end();
    return FTRMA_OK;
}

static int has_finished(int proc)
{
    return LOAD(&ftrma_ctl->proc[proc].finished) == LOAD(&ftrma_ctl->attempt);
}

/* 1 if all slots have finished. If a framework is told of deaths, the dead are not awaited, but
   living spares are, since they run the program, too. [out] *lacks: the first slot that has not
   finished. */
static int all_finished(int *lacks)
{
    const struct ftrma_roles *roles = ftrma_roles(ftrma_ctl);
    int index, told = LOAD(&ftrma_ctl->claim) & FTRMA_CLAIM_TOLD ? 1 : 0;
    for (uint32_t s = 0; s < ftrma_ctl->nslots; s++)
        if (!(told && LOAD(&ftrma_ctl->proc[roles->slot_proc[s]].state) == FTRMA_DEAD)
            && !has_finished(roles->slot_proc[s])) {
            *lacks = (int)s;
            return 0;
        }
    for (int p = 0; told && p < (int)ftrma_ctl->nprocs; p++)
        if (LOAD(&ftrma_ctl->proc[p].state) == FTRMA_ALIVE && !has_finished(p)
            && ftrma_role_of(ftrma_ctl, p, &index) == FTRMA_ROLE_SPARE)
            return 0;
    return 1;
}

/* A barrier alone would not do: a slot that sees a failure while it waits would stay for the
   repair, and one that sees the last slot arrive would leave. The alarm itself decides: it becomes
   either the next round or the end. The arrival of a process that died in here does not count: its
   replacement has to come here, too, so that the program's last writes are made. */
int ftrma_end(void)
{
    struct ftrma_bell *bell = &ftrma_ctl->barrier;
    int rc = ftrma_sync_begin(FTRMA_WHAT_END, -1, -1, 0);
    if (rc == 1) /* the dead process went on after this event: otherwise the job would be over */
        ftrma_refuse("its program ended earlier when it was executed again");
    if (rc)
        return FTRMA_ALARM;
    STORE(&ftrma_ctl->proc[ftrma_me].finished, LOAD(&ftrma_ctl->attempt));
    ftrma_wake(bell);
    uint32_t seen = LOAD(&bell->word);
    for (unsigned step = 0; LOAD(&ftrma_ctl->alarm) != FTRMA_ENDED; seen = LOAD(&bell->word)) {
        if (ftrma_unwinding())
            return FTRMA_ALARM;
        /* A message that was sent to another node may need a call of the library to get there. */
        if (step >= FTRMA_PATIENCE && LOAD(&ftrma_ctl->nodes) > 1)
            ftrma_progress();
        int lacks = -1;
        if (all_finished(&lacks))
            ftrma_cas(&ftrma_ctl->alarm, ftrma_round, FTRMA_ENDED);
        else
            ftrma_wait_step(&step, bell, seen, ftrma_awaits(FTRMA_WHAT_END, lacks));
    }
    ftrma_wake(bell);
    ftrma_ring();
    ftrma_trace_note(FTRMA_WHAT_END, 0, 0);
    return FTRMA_OK;
}
