/* What a dead slot left half done in the words that all members of a window share. */
#include <errno.h>

#include "chunks.h"
#include "control.h"
#include "mover.h"
#include "settle.h"

static int member_of(const struct window *w, int slot)
{
    for (int i = 0; i < w->n; i++)
        if (w->members[i].slot == slot)
            return i;
    return -1;
}

/* All others wait at a place where their own words are settled: who holds the lock but is not one of
   them is the dead. */
static void settle_lock(struct window *w, int dead, int target)
{
    uint64_t word = LOAD(&w->members[target].lock), *holds = &pair(w, dead, target)->holds, others = 0;
    for (int m = 0; m < w->n; m++)
        others += m != dead && LOAD(&pair(w, m, target)->holds) == HOLDS_SHARED;
    if (LOCK_OWNER(word) == (uint64_t)dead + 1)
        STORE(holds, HOLDS_EXCLUSIVE);
    else
        STORE(holds, LOCK_SHARED(word) > others ? HOLDS_SHARED : HOLDS_NONE);
}

/* It died with the lock of accumulates: what it had begun to change is put back, unless done. */
static void settle_atomic(struct window *w, const struct ftrma_log *log,
                          const struct ftrma_slot *slot, int dead, int target)
{
    struct ftrma_member *m = &w->members[target];
    if (m->atomic_owner != dead + 1)
        return;
    struct ftrma_reader reader = {log, {0, 0}, log->head[FTRMA_RESULTS]};
    const struct ftrma_record *record;
    while (slot->atomic_done != slot->events + 1 && (record = ftrma_log_next(&reader)))
        if (record->kind == FTRMA_RECORD_UNDO && record->event == slot->events + 1
            && record->window == w->name_number)
            ftrma_part_write(w, target, record->at, record + 1, record->bytes);
    __atomic_store_n(&m->atomic_owner, 0, __ATOMIC_SEQ_CST);
    ftrma_wake(&w->header->bell);
}

/* The part is lost and comes from logs. */
static void forget_change(struct ftrma_member *m, int dead)
{
    if (m->atomic_owner == dead + 1)
        m->atomic_owner = 0;
}

void ftrma_window_settle_own(struct window *w)
{
    settle_lock(w, w->me, w->me);
    forget_change(&w->members[w->me], w->me);
}

/* All survivors of the node are here: one of each window settles it, since an agent and two
   processes that put the same change back could undo a later one of others. */
static int is_settler(const struct window *w)
{
    int m = 0;
    while (m < w->n && (is_far(w, m) || LOAD(&ftrma_ctl->slots[w->members[m].slot].replaying)))
        m++;
    return m == w->me;
}

int ftrma_windows_settle(int slot)
{
    struct ftrma_log *log;
    int error = ftrma_log_view(slot, &log);
    if (error)
        return error;
    struct window *w;
    for (int i = 0; (w = ftrma_window_number(i)); i++) {
        /* Also one that is not in use yet, as another member may be past its making. */
        int dead = w->map && w->name[0] && is_settler(w) ? member_of(w, slot) : -1;
        for (int t = 0; dead >= 0 && t < w->n; t++) {
            if (is_far(w, t))
                continue; /* its agent knows what the dead had there */
            settle_lock(w, dead, t);
            if (t != dead)
                settle_atomic(w, log, &ftrma_ctl->slots[slot], dead, t);
            else
                forget_change(&w->members[t], dead);
        }
    }
    ftrma_log_close(log);
    return 0;
}
