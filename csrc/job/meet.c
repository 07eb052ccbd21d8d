/* Waiting for other processes: in a repair, at a checkpoint, in barriers, at the end.
 *
 * A waiter reads words in the control file, each of which has one writer, sleeps on a bell, and
 * returns FTRMA_ALARM when a failure is pending.
 */
#include "meet.h"

#include "alarm.h"
#include "control.h"
#include "errors.h"
#include "interrupt.h"
#include "types.h"

static int holders_live(void)
{
    const struct ftrma_roles *roles = ftrma_roles(ftrma_ctl);
    for (uint32_t s = 0; s < ftrma_ctl->nslots; s++)
        if (LOAD(&ftrma_ctl->proc[roles->slot_proc[s]].state) != FTRMA_ALIVE)
            return 0;
    for (uint32_t k = 0; k < ftrma_ctl->nchecksums; k++)
        if (LOAD(&ftrma_ctl->proc[roles->checksum_proc[k]].state) != FTRMA_ALIVE)
            return 0;
    return 1;
}

/* 1 if all processes of a node are dead, and either a round that has ended has seen the last that
   they stored, or they had no role. The node's agent may be gone, too. */
static int is_deserted(uint64_t node)
{
    uint64_t repaired = LOAD(&ftrma_ctl->repaired);
    for (uint32_t i = 0; i < ftrma_ctl->nprocs; i++) {
        const struct ftrma_proc *p = &ftrma_ctl->proc[i];
        if ((uint64_t)p->node == node
            && (LOAD(&p->state) != FTRMA_DEAD || LOAD(&p->death_round) > repaired))
            return 0;
    }
    return 1;
}

/* 1 if the agents of all nodes have sent all that their processes, even dead ones, had stored when
   the alarm was raised. */
static int agents_scanned(uint64_t round)
{
    uint64_t nodes = LOAD(&ftrma_ctl->nodes), y = 0;
    while (y < nodes && (LOAD(&ftrma_ctl->scanned[y]) >= round || is_deserted(y)))
        y++;
    return nodes == 1 || y == nodes;
}

/* Decide a meeting for all processes of this node, unless it is decided: the first that finds all
   there lets all go on, and the first that turns back lets all turn back. Otherwise one process
   would begin a call of the library that waits for another (a shrink, in ftrma_comm_build), which
   has turned back. Returns 1 if all go on. */
static int decide(uint64_t mark, int together)
{
    uint64_t *meeting = &ftrma_ctl->meeting, newest = LOAD(meeting);
    while (newest >> 1 < mark && !ftrma_cas(meeting, newest, mark << 1 | (uint64_t)together))
        newest = LOAD(meeting);
    newest = LOAD(meeting);
    if (newest >> 1 != mark)
        return newest >> 9 == mark >> 8; /* a later phase: whoever is there went on from here */
    return (int)(newest & 1);
}

int ftrma_meet(uint64_t round, int phase, int check_holders)
{
    struct ftrma_ctl *c = ftrma_ctl;
    uint64_t mark = round << 8 | (uint64_t)phase;
    STORE(&c->proc[ftrma_me].met, mark);
    ftrma_ring();
    unsigned step = 0;
    for (;;) {
        uint32_t seen = LOAD(&c->bell.word);
        uint64_t alarm = LOAD(&c->alarm);
        /* The end comes after the last phase of a round, when all have met there; slots whose
           programs had ended before may still be leaving it. Over several nodes it may also come
           while this node begins a round: a death was noticed here when all slots had ended, and
           the news had not reached another node. Then nobody there comes to the round. */
        int over = alarm == FTRMA_ENDED;
        if (alarm != round && !(over && (!round || phase >= FTRMA_LAST_PHASE)))
            return decide(mark, 0) ? FTRMA_OK : FTRMA_ALARM;
        if (check_holders && !over && !holders_live()) {
            ftrma_raise(round);
            return decide(mark, 0) ? FTRMA_OK : FTRMA_ALARM;
        }
        uint32_t i = 0;
        while (i < c->nprocs
               && (LOAD(&c->proc[i].state) != FTRMA_ALIVE || LOAD(&c->proc[i].met) >= mark))
            i++;
        if (i == c->nprocs && agents_scanned(round))
            return decide(mark, 1) ? FTRMA_OK : FTRMA_ALARM;
        /* Another process may not get here before the library has refused, on this side, a
           message that it has begun to send on a revoked communicator. With a window of the
           library's own, the library crashes here on requests of a dead process over TCP; that
           job is relaunched anyway. */
        if (step >= FTRMA_PATIENCE && !LOAD(&c->dynamic))
            ftrma_progress();
        ftrma_wait_step(&step, &c->bell, seen, ftrma_awaits(FTRMA_WHAT_RECOVERY, -1));
    }
}

uint64_t ftrma_barriers;

void ftrma_slots_barrier_reset(void)
{
    int slot;
    ftrma_barriers = 0;
    if (ftrma_my_role(&slot) == FTRMA_ROLE_SLOT)
        STORE(&ftrma_ctl->slots[slot].arrived, 0);
}

int ftrma_arrive(uint64_t ordinal, int targeted)
{
    struct ftrma_ctl *c = ftrma_ctl;
    const struct ftrma_roles *roles = ftrma_roles(c);
    uint32_t seen = LOAD(&c->barrier.word);
    STORE(&c->proc[ftrma_me].arrived, ordinal);
    ftrma_wake(&c->barrier);
    for (unsigned step = 0;; seen = LOAD(&c->barrier.word)) {
        uint32_t here = 0;
        int ended = 0, lacks = -1;
        if (ftrma_pending())
            return FTRMA_ALARM;
        for (uint32_t s = 0; s < c->nslots; s++) {
            const struct ftrma_proc *p = &c->proc[roles->slot_proc[s]];
            /* Read this before `arrived`: a process that arrived and then ended has arrived. */
            int end = LOAD(&p->finished) == LOAD(&c->attempt);
            int arrived = LOAD(&p->arrived) >= ordinal;
            here += (uint32_t)arrived;
            ended |= end && !arrived;
            lacks = lacks < 0 && !arrived ? (int)s : lacks;
        }
        /* Read the target after `arrived`: a slot that is beyond this safepoint may have come to
           the next target instead. */
        int moved = targeted && LOAD(&c->target) != ordinal;
        if (here == c->nslots && !moved)
            return FTRMA_OK;
        if (ended || moved)
            return FTRMA_TIMEOUT;
        ftrma_wait_step(&step, &c->barrier, seen, ftrma_awaits(FTRMA_WHAT_SAFEPOINT, lacks));
    }
}

int ftrma_await_staged(uint64_t version)
{
    struct ftrma_ctl *c = ftrma_ctl;
    uint32_t seen = LOAD(&c->barrier.word);
    ftrma_wake(&c->barrier);
    for (unsigned step = 0;; seen = LOAD(&c->barrier.word)) {
        const struct ftrma_roles *roles = ftrma_roles(c);
        uint32_t s = 0;
        if (ftrma_pending())
            return FTRMA_ALARM;
        while (s < c->nslots && LOAD(&c->proc[roles->slot_proc[s]].staged) >= version)
            s++;
        if (s == c->nslots)
            return FTRMA_OK;
        ftrma_wait_step(&step, &c->barrier, seen, ftrma_awaits(FTRMA_WHAT_CHECKPOINT, (int)s));
    }
}

/* 1 if no parity hinders slots from staging a version. A parity of the previous version that is
   still to be computed does not: its rebuild begins when nobody writes. Read `rebuilding` first: if
   it is not set, the words that the checksum rank stored before are visible. */
static int parities_admit(uint64_t version)
{
    const struct ftrma_ctl *c = ftrma_ctl;
    const struct ftrma_roles *roles = ftrma_roles(ftrma_ctl);
    for (uint32_t k = 0; k < c->nchecksums; k++) {
        const struct ftrma_proc *p = &c->proc[roles->checksum_proc[k]];
        int rebuilding = LOAD(&p->rebuilding) != 0;
        uint64_t at = LOAD(&p->ready) ? LOAD(&p->folded) : LOAD(&c->commit) >> 1;
        if (rebuilding || LOAD(&p->state) != FTRMA_ALIVE || at + 1 < version)
            return 0;
    }
    return 1;
}

/* A checksum rank that takes a vacant seat computes the parity from its members' copies, and must
   not read one that is being written. Both sides announce what they begin before they look at the
   other side: the slot its staging, the checksum rank its rebuild. The side that finds the other's
   announcement takes its own back. */
int ftrma_admit(uint64_t version, int wait)
{
    struct ftrma_ctl *c = ftrma_ctl;
    struct ftrma_proc *me = &c->proc[ftrma_me];
    uint32_t seen = LOAD(&c->bell.word);
    for (unsigned step = 0;; seen = LOAD(&c->bell.word)) {
        STORE(&me->staging, version);
        if (parities_admit(version))
            return FTRMA_OK;
        STORE(&me->staging, 0);
        if (ftrma_pending())
            return FTRMA_ALARM;
        if (!wait)
            return FTRMA_TIMEOUT;
        ftrma_wait_step(&step, &c->bell, seen, ftrma_awaits(FTRMA_WHAT_COMMIT, -1));
    }
}

int ftrma_await_live(int slot)
{
    struct ftrma_bell *bell = &ftrma_ctl->live;
    uint32_t seen = LOAD(&bell->word);
    for (unsigned step = 0; LOAD(&ftrma_ctl->slots[slot].replaying); seen = LOAD(&bell->word)) {
        if (ftrma_unwinding())
            return ftrma_code_unwind;
        ftrma_wait_step(&step, bell, seen, ftrma_awaits(FTRMA_WHAT_REPLAY, slot));
    }
    return MPI_SUCCESS;
}

/* ---- what other nodes have seen --------------------------------------------------------------- */

/* Set once by ftrma_set_scans, before the program runs. */
static const uint64_t *scans, *ordered;

void ftrma_set_scans(const void *begun, const void *newest_ordered)
{
    scans = begun;
    ordered = newest_ordered;
}

/* A scan of the agent that begins from now on sees all that this process has stored. */
int ftrma_synchronize(void)
{
    if (!ordered)
        return FTRMA_OK;
    uint64_t goal = __atomic_load_n(scans, __ATOMIC_SEQ_CST) + 1;
    struct ftrma_bell *bell = &ftrma_ctl->bell;
    uint32_t seen = LOAD(&bell->word);
    ftrma_tell_agent();
    for (unsigned step = 0; LOAD(ordered) < goal; seen = LOAD(&bell->word)) {
        if (ftrma_pending())
            return FTRMA_ALARM;
        ftrma_wait_step(&step, bell, seen, ftrma_awaits(FTRMA_WHAT_ACK, -1));
    }
    return FTRMA_OK;
}
