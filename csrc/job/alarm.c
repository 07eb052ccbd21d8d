/* The alarm: deaths that are noticed, and the repair rounds that they ask for.
 *
 * The alarm is the number of the newest repair round asked for. A death is marked DEAD *before* the
 * alarm is read and raised; a repair round looks at the marks *after* it has read the alarm, and
 * once more just before it ends. So either the round sees the mark, or the death gets the number of
 * a later round: none is lost. Two processes that notice one death agree on its number, because the
 * first to write death_round wins.
 */
#include "alarm.h"

#include "control.h"
#include "mail.h"
#include "nodes.h"

uint64_t ftrma_round;

static void raise_to(uint64_t round)
{
    /* The program may end at any moment, and no round follows the end. */
    uint64_t seen = LOAD(&ftrma_ctl->alarm);
    while (seen < round && seen != FTRMA_ENDED && !ftrma_cas(&ftrma_ctl->alarm, seen, round))
        seen = LOAD(&ftrma_ctl->alarm);
    ftrma_ring();
}

void ftrma_raise(uint64_t round)
{
    raise_to(round + 1);
}

/* 1 if checksum ranks are dead, and there are fewer spares to take their seats. Spares may take
   seats meanwhile, so that a rank found dead here may have been replaced by a spare that is then
   not counted. So this counts again if the roles have changed. */
static int seat_stays_vacant(void)
{
    uint64_t seats;
    uint32_t vacant, spares;
    int index;
    do {
        seats = LOAD(&ftrma_ctl->roles_seq);
        const struct ftrma_roles *roles = ftrma_roles(ftrma_ctl);
        vacant = spares = 0;
        for (uint32_t k = 0; k < ftrma_ctl->nchecksums; k++)
            vacant += LOAD(&ftrma_ctl->proc[roles->checksum_proc[k]].state) == FTRMA_DEAD;
        for (uint32_t p = 0; p < ftrma_ctl->nprocs; p++)
            spares += LOAD(&ftrma_ctl->proc[p].state) == FTRMA_ALIVE
                      && ftrma_role_of(ftrma_ctl, (int)p, &index) == FTRMA_ROLE_SPARE;
        __atomic_thread_fence(__ATOMIC_ACQUIRE); /* the table is read before the check that
                                                    follows */
    } while (seats != LOAD(&ftrma_ctl->roles_seq));
    return vacant > spares;
}

/* The moment of a death. If a kill rule struck since the last death was noticed, it struck this
   process, and its moment is taken. */
static uint64_t when_it_died(void)
{
    uint64_t killed = LOAD(&ftrma_ctl->kill_ns), before = LOAD(&ftrma_ctl->death_ns);
    return killed > before ? killed : ftrma_now_ns();
}

void ftrma_note_death(int proc)
{
    if (LOAD(&ftrma_ctl->alarm) == FTRMA_ENDED || LOAD(&ftrma_ctl->request))
        return; /* everybody is ending */
    struct ftrma_proc *p = &ftrma_ctl->proc[proc];
    int32_t alive = FTRMA_ALIVE;
    if (__atomic_compare_exchange_n(&p->state, &alive, FTRMA_DEAD, 0, __ATOMIC_SEQ_CST,
                                    __ATOMIC_SEQ_CST))
        STORE(&ftrma_ctl->death_ns, when_it_died());
    uint64_t alarm = LOAD(&ftrma_ctl->alarm);
    int index;
    int repairing = alarm != LOAD(&ftrma_ctl->repaired);
    int role = ftrma_role_of(ftrma_ctl, proc, &index), slot = role == FTRMA_ROLE_SLOT;
    /* Over several nodes nobody takes a seat alone, since others may change the seating
       meanwhile. */
    int several = LOAD(&ftrma_ctl->nodes) > 1;
    int vacant = !slot && (several ? role == FTRMA_ROLE_CHECKSUM : seat_stays_vacant());
    int told = LOAD(&ftrma_ctl->claim) & FTRMA_CLAIM_TOLD && !(slot && index == 0);
    if (ftrma_ended_itself(proc)) {
        ftrma_ring();
        return;
    }
    if (told && role != FTRMA_ROLE_CHECKSUM)
        ftrma_mail_note(proc);
    if (told && !repairing) {
        ftrma_ring();
        return;
    }
    if (!slot && !repairing && !vacant && !LOAD(&ftrma_ctl->partitioned)) {
        ftrma_ring(); /* the others go on: the servers fill a server's seat */
        return;
    }
    ftrma_cas(&p->death_round, 0, alarm + 1);
    raise_to(LOAD(&p->death_round));
}

void ftrma_note_lost(int node)
{
    STORE(&ftrma_ctl->scanned[node], FTRMA_MIRROR_LOST);
    for (uint32_t p = 0; p < ftrma_ctl->nprocs; p++)
        if (ftrma_ctl->proc[p].node == node)
            ftrma_note_death((int)p);
}

int ftrma_died_since(uint64_t round)
{
    int died = 0;
    for (uint32_t p = 0; p < ftrma_ctl->nprocs && !died; p++)
        died = LOAD(&ftrma_ctl->proc[p].death_round) > round;
    return died;
}

/* Note the moment of a failure that another node has noticed: that node has announced only the
   failure. */
static void note_time(void)
{
    if (ftrma_pending() && LOAD(&ftrma_ctl->nodes) > 1
        && LOAD(&ftrma_ctl->death_ns) <= LOAD(&ftrma_ctl->repaired_ns))
        STORE(&ftrma_ctl->death_ns, ftrma_now_ns());
}

void ftrma_alarm_seen(void)
{
    note_time();
    ftrma_ring_origins();
    ftrma_mail_alarm();
}

void ftrma_set_round(uint64_t round)
{
    STORE(&ftrma_ctl->repaired_ns, ftrma_now_ns());
    STORE(&ftrma_round, round);
}

int ftrma_alarmed(void)
{
    return ftrma_pending();
}
