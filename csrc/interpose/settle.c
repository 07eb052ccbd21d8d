/* Settling, after a death, the things that the dead slot left half done: words that all members of
 * a window share, and a put. */
#include <errno.h>
#include <string.h>

#include "chunks.h"
#include "control.h"
#include "event_clock.h"
#include "mover.h"
#include "putnote.h"
#include "record_sum.h"
#include "settle.h"

static int member_of(const struct window *w, int slot)
{
    for (int i = 0; i < w->n; i++)
        if (w->members[i].slot == slot)
            return i;
    return -1;
}

/* Settle a lock. All others wait at a place where their own words are settled, so a holder that is
   none of them is the dead slot. */
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

/* Settle an atomic. The dead slot had the lock of changes, so a change that it had begun is undone,
   unless it was complete. Returns 0 if the log is damaged. */
static int settle_atomic(struct window *w, const struct ftrma_log *log,
                         const struct ftrma_slot *slot, int dead, int target)
{
    struct ftrma_member *m = &w->members[target];
    if (m->atomic_owner != dead + 1)
        return 1;
    struct ftrma_reader reader = {.log = log, .head = log->head[FTRMA_RESULTS]};
    const struct ftrma_record *record;
    while (slot->atomic_done != slot->events + 1 && (record = ftrma_log_next_whole(&reader)))
        if (record->kind == FTRMA_RECORD_UNDO && record->event == slot->events + 1
            && record->window == w->name_number) {
            if (ftrma_is_inside(m, record->at, record->bytes))
                ftrma_part_write(w, target, record->at, record + 1, record->bytes);
            else
                reader.damaged = 1;
        }
    __atomic_store_n(&m->atomic_owner, 0, __ATOMIC_SEQ_CST);
    ftrma_wake(&w->header->bell);
    return !reader.damaged;
}

/* Forget a change of a part that is lost anyway, and is restored from logs. */
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

/* 1 if this slot settles the window: one survivor of the node does. If an agent or two processes
   undid one change, they could also undo a later change of others. */
static int is_settler(const struct window *w)
{
    int m = 0;
    while (m < w->n && (is_far(w, m) || LOAD(&ftrma_ctl->slots[w->members[m].slot].replaying)))
        m++;
    return m == w->me;
}

/* ---- a put ---------------------------------------------------------------------------------- */

/* 1 if all bytes of the dead slot's put are in this slot's part. */
static int is_in_place(const struct ftrma_log *log, const struct ftrma_slot *slot, uint64_t event)
{
    uint64_t from = slot->put_record;
    const struct ftrma_record *record =
        (const struct ftrma_record *)(const void *)((const char *)log + from);
    struct window *w;
    if (!from || from % 8 || from > log->file_bytes - sizeof *record - FTRMA_PUT_SMALL
        || record->event != event || record->bytes > FTRMA_PUT_SMALL)
        return 0;
    for (int i = 0; (w = ftrma_window_number(i)); i++) {
        struct reach r = {.w = w, .target = w->me, .at = record->at, .span = record->bytes};
        if (w->in_use && w->name_number == record->window)
            return ftrma_is_inside(&w->members[w->me], record->at, record->bytes)
                   && !memcmp(ftrma_direct(&r), record + 1, record->bytes);
    }
    return 0;
}

/* Settle a put of the dead slot to this one. All slots wait here, so no part changes meanwhile. If
   the bytes are in place, the put counts as done. Otherwise nobody knows if they have been there.
   The replay then makes the put, unless this slot may have acted upon it: it has come back from a
   call that began after the put, or the put is small and may be a flag, which a slot finds without
   a call. Returns 0 if all slots must go back. */
static int settle_put(const struct ftrma_log *log, struct ftrma_slot *slot)
{
    uint64_t put = slot->put, event = slot->events + 1;
    int me;
    ftrma_my_role(&me);
    if (FTRMA_PUT_EVENT(put) != event || FTRMA_PUT_TARGET(put) != me || slot->atomic_done == event)
        return 1;
    if (is_in_place(log, slot, event)) {
        STORE(&slot->atomic_done, event);
        return 1;
    }
    return !FTRMA_PUT_IS_SMALL(put) && ftrma_event_clock.ended <= slot->put_clock;
}

int ftrma_windows_settle(int slot)
{
    struct ftrma_log *log;
    int error = ftrma_log_view(slot, &log);
    if (error)
        return error;
    if (!settle_put(log, &ftrma_ctl->slots[slot])) {
        ftrma_keep_refusal("it died within a put, upon which its target may have acted: a replay would "
                           "make it once more");
        ftrma_log_close(log);
        return FTRMA_ALARM;
    }
    struct window *w;
    int sound = 1;
    for (int i = 0; (w = ftrma_window_number(i)); i++) {
        /* A window that is not in use yet counts, too, since another member may use it already. */
        int dead = w->map && w->name[0] && is_settler(w) ? member_of(w, slot) : -1;
        for (int t = 0; dead >= 0 && t < w->n; t++) {
            if (is_far(w, t))
                continue; /* the agent of its node knows the dead slot's words there */
            settle_lock(w, dead, t);
            if (t != dead)
                sound &= settle_atomic(w, log, &ftrma_ctl->slots[slot], dead, t);
            else
                forget_change(&w->members[t], dead);
        }
    }
    ftrma_log_close(log);
    if (!sound)
        ftrma_keep_refusal("its log is damaged, so a change that it had begun cannot be taken back");
    return sound ? 0 : FTRMA_ALARM;
}
