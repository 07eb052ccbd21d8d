/* Synchronization of protected windows: fence, locks, flushes, post-start-complete-wait.
 *
 * All of it runs on words in the window's shared header, and no wait looks at one condition alone:
 * it ends when the condition holds or when a failure is noticed, whichever comes first.  The
 * library's own synchronization can wait for a dead process for ever.
 *
 * Accesses are complete in memory when their call returns (access.c), so a flush only closes an
 * epoch: it orders memory and counts.  Counters follow section 4.1 of the paper: EC per target,
 * incremented when an epoch toward it closes; GC, incremented by every flush or unlock; GNC by
 * every fence; SC of a target, fetched and incremented with its lock in one atomic word.
 */
#include <string.h>

#include "log.h"
#include "window.h"

#define FENCE() __atomic_thread_fence(__ATOMIC_SEQ_CST)

static int all_arrived(const struct window *w, int *first)
{
    while (*first < w->n
           && __atomic_load_n(&w->members[*first].arrived, __ATOMIC_SEQ_CST) >= w->barriers)
        ++*first;
    return *first == w->n;
}

/* Each member's word has one writer and holds an absolute value: arriving once more changes nothing.
   Whoever finds all arrived as it arrives rings; the last one does in any case. */
int ftrma_window_barrier(struct window *w)
{
    struct ftrma_bell *bell = &w->header->barrier;
    int first = 0;
    if (ftrma_unwinding())
        return ftrma_code_unwind;
    STORE(&w->members[w->me].arrived, ++w->barriers);
    if (all_arrived(w, &first)) {
        if (w->n > 1)
            ftrma_wake(bell);
        return MPI_SUCCESS;
    }
    uint32_t seen = LOAD(&bell->word);
    for (unsigned step = 0; !all_arrived(w, &first); seen = LOAD(&bell->word)) {
        if (ftrma_unwinding())
            return ftrma_code_unwind;
        ftrma_wait_step(&step, bell, seen);
    }
    return MPI_SUCCESS;
}

/* Wait while *word, masked, differs from what is wanted; unwinds at a failure. */
static int wait_at_least(struct window *w, const uint64_t *word, uint64_t goal)
{
    uint32_t seen = LOAD(&w->header->bell.word);
    for (unsigned step = 0; LOAD(word) < goal; seen = LOAD(&w->header->bell.word)) {
        if (ftrma_unwinding())
            return ftrma_code_unwind;
        ftrma_wait_step(&step, &w->header->bell, seen);
    }
    return MPI_SUCCESS;
}

static int bad_rank(struct window *w, int rank, const char *call)
{
    if (rank >= 0 && rank < w->n)
        return MPI_SUCCESS;
    return ftrma_window_fail(w, MPI_ERR_RANK, "%s: rank %d is not in this window's group of %d",
                             call, rank, w->n);
}

/* Assertions that a call does not know. */
static int bad_assert(struct window *w, int assert, int known, const char *call)
{
    if (likely(!(assert & ~known)))
        return MPI_SUCCESS;
    return ftrma_window_fail(w, MPI_ERR_ASSERT, "%s: assertion %d is none of its own", call,
                             assert);
}

/* ---- fence ---------------------------------------------------------------------------------- */

int MPI_Win_fence(int assert, MPI_Win win)
{
    struct window *w = ftrma_window(win);
    if (!w) {
        ftrma_native_place(FTRMA_PLACE_FENCE);
        return GUARDED(PMPI_Win_fence(assert, win));
    }
    if (unlikely(ftrma_finalized))
        return ftrma_after_finalize();
    ftrma_place(FTRMA_PLACE_FENCE);
    if (ftrma_unwinding())
        return ftrma_code_unwind;
    int rc = bad_assert(w, assert, MPI_MODE_NOSTORE | MPI_MODE_NOPUT | MPI_MODE_NOPRECEDE
                                   | MPI_MODE_NOSUCCEED, "Fence");
    if (rc)
        return rc;
    rc = ftrma_sync_begin(FTRMA_WHAT_FENCE, w->ordinal, -1, 0);
    if (rc == 1)
        w->barriers++;
    else if (!rc)
        rc = ftrma_window_barrier(w);
    if (rc < 0 || rc > 1)
        return rc;
    w->gnc++;
    for (int t = 0; t < w->n; t++)
        w->ec[t]++;
    w->fence_open = !(assert & MPI_MODE_NOSUCCEED);
    ftrma_event_end();
    return MPI_SUCCESS;
}

/* ---- locks ---------------------------------------------------------------------------------- */

/* Nothing of a replay depends on SC, so it is in no log; the pair keeps it over a death. */
static void note_sc(struct window *w, int target, uint64_t word)
{
    w->sc[target] = LOCK_SC(word);
    __atomic_store_n(&pair(w, w->me, target)->sc, w->sc[target], __ATOMIC_RELAXED);
}

/* Take the lock in one atomic step together with SC; the holder's name is in the word (exclusive)
   and in its pair (both kinds).  The pair also says when the step is being taken, so that repair can
   settle a death in the middle; the replacement then finds itself holding the lock, or not. */
static int take(struct window *w, int target, int exclusive)
{
    uint64_t *lock = &w->members[target].lock, *holds = &pair(w, w->me, target)->holds;
    uint32_t seen = LOAD(&w->header->bell.word);
    for (unsigned step = 0; !LOAD(holds); seen = LOAD(&w->header->bell.word)) {
        uint64_t word = LOAD(lock), next = word + (1ull << 32);
        if (!LOCK_OWNER(word) && (!exclusive || !LOCK_SHARED(word))) {
            next += exclusive ? (uint64_t)w->me + 1 : 1ull << 16;
            STORE(holds, HOLDS_TAKING);
            if (ftrma_cas(lock, word, next)) {
                note_sc(w, target, next);
                STORE(holds, exclusive ? HOLDS_EXCLUSIVE : HOLDS_SHARED);
                return MPI_SUCCESS;
            }
            STORE(holds, HOLDS_NONE);
            continue;
        }
        if (ftrma_unwinding())
            return ftrma_code_unwind;
        ftrma_wait_step(&step, &w->header->bell, seen);
    }
    note_sc(w, target, LOAD(lock));
    return MPI_SUCCESS;
}

static void give(struct window *w, int target, int exclusive)
{
    uint64_t *lock = &w->members[target].lock, *holds = &pair(w, w->me, target)->holds;
    if (!LOAD(holds))
        return;
    STORE(holds, HOLDS_GIVING);
    __atomic_sub_fetch(lock, exclusive ? (uint64_t)w->me + 1 : 1ull << 16, __ATOMIC_SEQ_CST);
    STORE(holds, HOLDS_NONE);
    ftrma_wake(&w->header->bell);
}

static int lock_event(struct window *w, int what, int rank, int exclusive)
{
    int rc = ftrma_sync_begin(what, w->ordinal, rank, (uint64_t)exclusive);
    if (rc)
        return rc == 1 ? MPI_SUCCESS : rc;
    ftrma_trace.value[0] = (uint64_t)exclusive;
    return take(w, rank, exclusive);
}

int MPI_Win_lock(int type, int rank, int assert, MPI_Win win)
{
    struct window *w = ftrma_window(win);
    if (!w) {
        int native_rc = GUARDED(PMPI_Win_lock(type, rank, assert, win));
        ftrma_native_place(FTRMA_PLACE_LOCK_HELD);
        return native_rc;
    }
    if (unlikely(ftrma_finalized))
        return ftrma_after_finalize();
    if (ftrma_unwinding())
        return ftrma_code_unwind;
    int rc = bad_rank(w, rank, "Lock");
    if (!rc)
        rc = bad_assert(w, assert, MPI_MODE_NOCHECK, "Lock");
    if (rc)
        return rc;
    if (type != MPI_LOCK_SHARED && type != MPI_LOCK_EXCLUSIVE)
        return ftrma_window_fail(w, MPI_ERR_LOCKTYPE, "Lock: %d is no lock type", type);
    if (w->locked[rank] || w->all_locked)
        return ftrma_window_fail(w, MPI_ERR_RMA_SYNC, "Lock: rank %d is locked already; Unlock it "
                                 "first", rank);
    w->nocheck[rank] = (assert & MPI_MODE_NOCHECK) != 0;
    if (!w->nocheck[rank]) {
        rc = lock_event(w, FTRMA_WHAT_LOCK, rank, type == MPI_LOCK_EXCLUSIVE);
        if (rc)
            return rc;
    }
    w->locked[rank] = (unsigned char)type;
    w->lc++;
    if (!w->nocheck[rank])
        ftrma_event_end();
    ftrma_place(FTRMA_PLACE_LOCK_HELD);
    return MPI_SUCCESS;
}

static void close_epoch(struct window *w, int target)
{
    FENCE();
    w->ec[target]++;
}

int MPI_Win_unlock(int rank, MPI_Win win)
{
    struct window *w = ftrma_window(win);
    if (!w)
        return GUARDED(PMPI_Win_unlock(rank, win));
    if (ftrma_unwinding())
        return ftrma_code_unwind;
    int rc = bad_rank(w, rank, "Unlock");
    if (rc)
        return rc;
    if (!w->locked[rank])
        return ftrma_window_fail(w, MPI_ERR_RMA_SYNC, "Unlock: rank %d is not locked", rank);
    rc = ftrma_sync_begin(FTRMA_WHAT_UNLOCK, w->ordinal, rank, 0);
    if (rc > 1)
        return rc;
    close_epoch(w, rank);
    w->gc++;
    w->lc--;
    if (!w->nocheck[rank] && !rc)
        give(w, rank, w->locked[rank] == MPI_LOCK_EXCLUSIVE);
    w->locked[rank] = 0;
    ftrma_event_end();
    return MPI_SUCCESS;
}

int MPI_Win_lock_all(int assert, MPI_Win win)
{
    struct window *w = ftrma_window(win);
    if (!w) {
        int native_rc = GUARDED(PMPI_Win_lock_all(assert, win));
        ftrma_native_place(FTRMA_PLACE_LOCK_HELD);
        return native_rc;
    }
    if (unlikely(ftrma_finalized))
        return ftrma_after_finalize();
    if (ftrma_unwinding())
        return ftrma_code_unwind;
    if (w->all_locked || w->lc)
        return ftrma_window_fail(w, MPI_ERR_RMA_SYNC, "Lock_all: this window is locked already");
    int rc = bad_assert(w, assert, MPI_MODE_NOCHECK, "Lock_all");
    if (rc)
        return rc;
    rc = ftrma_sync_begin(FTRMA_WHAT_LOCK_ALL, w->ordinal, -1, (uint64_t)assert);
    if (rc > 1)
        return rc;
    for (int t = 0; t < w->n && !rc; t++) {
        rc = assert & MPI_MODE_NOCHECK ? MPI_SUCCESS : take(w, t, 0);
        if (rc)
            return rc;
    }
    w->all_locked = assert & MPI_MODE_NOCHECK ? 2 : 1;
    w->lc++;
    ftrma_event_end();
    ftrma_place(FTRMA_PLACE_LOCK_HELD);
    return MPI_SUCCESS;
}

int MPI_Win_unlock_all(MPI_Win win)
{
    struct window *w = ftrma_window(win);
    if (!w)
        return GUARDED(PMPI_Win_unlock_all(win));
    if (ftrma_unwinding())
        return ftrma_code_unwind;
    if (!w->all_locked)
        return ftrma_window_fail(w, MPI_ERR_RMA_SYNC, "Unlock_all: this window is not locked");
    int rc = ftrma_sync_begin(FTRMA_WHAT_UNLOCK_ALL, w->ordinal, -1, 0);
    if (rc > 1)
        return rc;
    for (int t = 0; t < w->n; t++) {
        close_epoch(w, t);
        if (w->all_locked == 1 && !rc)
            give(w, t, 0);
    }
    w->gc++;
    w->lc--;
    w->all_locked = 0;
    ftrma_event_end();
    return MPI_SUCCESS;
}

/* ---- flushes -------------------------------------------------------------------------------- */

static int flush(struct window *w, int rank, int remote)
{
    ftrma_place(FTRMA_PLACE_FLUSH);
    if (ftrma_unwinding())
        return ftrma_code_unwind;
    if (rank == MPI_PROC_NULL)
        return MPI_SUCCESS;
    int rc = bad_rank(w, rank, "Flush");
    if (rc)
        return rc;
    if (unlikely(!w->all_locked && !w->locked[rank]))
        return ftrma_window_fail(w, MPI_ERR_RMA_SYNC, "Flush: rank %d is not locked; flushes "
                                 "belong between Lock and Unlock", rank);
    rc = ftrma_sync_begin(FTRMA_WHAT_FLUSH, w->ordinal, rank, (uint64_t)remote);
    if (unlikely(rc > 1))
        return rc;
    if (remote) {
        close_epoch(w, rank);
        w->gc++;
    }
    ftrma_event_end();
    return MPI_SUCCESS;
}

static int flush_all(struct window *w, int remote)
{
    ftrma_place(FTRMA_PLACE_FLUSH);
    if (ftrma_unwinding())
        return ftrma_code_unwind;
    if (!w->all_locked && !w->lc)
        return ftrma_window_fail(w, MPI_ERR_RMA_SYNC, "Flush_all: this window is not locked; "
                                 "flushes belong between Lock and Unlock");
    int rc = ftrma_sync_begin(FTRMA_WHAT_FLUSH_ALL, w->ordinal, -1, (uint64_t)remote);
    if (rc > 1)
        return rc;
    for (int t = 0; remote && t < w->n; t++)
        close_epoch(w, t);
    w->gc += (uint64_t)remote;
    ftrma_event_end();
    return MPI_SUCCESS;
}

int MPI_Win_flush(int rank, MPI_Win win)
{
    struct window *w = ftrma_window(win);
    if (!w)
        ftrma_native_place(FTRMA_PLACE_FLUSH);
    return w ? flush(w, rank, 1) : GUARDED(PMPI_Win_flush(rank, win));
}

int MPI_Win_flush_local(int rank, MPI_Win win)
{
    struct window *w = ftrma_window(win);
    if (!w)
        ftrma_native_place(FTRMA_PLACE_FLUSH);
    return w ? flush(w, rank, 0) : GUARDED(PMPI_Win_flush_local(rank, win));
}

int MPI_Win_flush_all(MPI_Win win)
{
    struct window *w = ftrma_window(win);
    if (!w)
        ftrma_native_place(FTRMA_PLACE_FLUSH);
    return w ? flush_all(w, 1) : GUARDED(PMPI_Win_flush_all(win));
}

int MPI_Win_flush_local_all(MPI_Win win)
{
    struct window *w = ftrma_window(win);
    if (!w)
        ftrma_native_place(FTRMA_PLACE_FLUSH);
    return w ? flush_all(w, 0) : GUARDED(PMPI_Win_flush_local_all(win));
}

int MPI_Win_sync(MPI_Win win)
{
    struct window *w = ftrma_window(win);
    if (!w)
        return GUARDED(PMPI_Win_sync(win));
    FENCE();
    if (ftrma_unwinding())
        return ftrma_code_unwind;
    int rc = ftrma_sync_begin(FTRMA_WHAT_SYNC, w->ordinal, -1, 0);
    if (rc > 1)
        return rc;
    ftrma_event_end();
    return MPI_SUCCESS;
}

/* ---- post, start, complete, wait ------------------------------------------------------------ */

/* Mark the members of `group` in `set`; returns an MPI code. */
static int members_of(struct window *w, MPI_Group group, unsigned char *set)
{
    int n, rc = PMPI_Group_size(group, &n);
    for (int i = 0; i < n && !rc; i++) {
        int member;
        rc = PMPI_Group_translate_ranks(group, 1, &i, w->group, &member);
        if (!rc && member == MPI_UNDEFINED) {
            int slot = ftrma_slot_in(group, i);
            for (int m = 0; slot != MPI_UNDEFINED && m < w->n; m++)
                member = w->members[m].slot == slot ? m : member;
        }
        if (!rc && member == MPI_UNDEFINED)
            rc = ftrma_window_fail(w, MPI_ERR_GROUP, "Post or Start: rank %d of the group is not "
                                   "in the window's group", i);
        else if (!rc)
            set[member] = 1;
    }
    if (rc)
        memset(set, 0, (size_t)w->n); /* the epoch was not opened */
    return rc;
}

int MPI_Win_post(MPI_Group group, int assert, MPI_Win win)
{
    struct window *w = ftrma_window(win);
    if (!w)
        return GUARDED(PMPI_Win_post(group, assert, win));
    if (ftrma_unwinding())
        return ftrma_code_unwind;
    if (w->exposure_open)
        return ftrma_window_fail(w, MPI_ERR_RMA_SYNC, "Post: an exposure epoch is open already; "
                                 "Wait for it first");
    int rc = bad_assert(w, assert, MPI_MODE_NOCHECK | MPI_MODE_NOSTORE | MPI_MODE_NOPUT, "Post");
    if (!rc)
        rc = members_of(w, group, w->exposed);
    if (!rc)
        rc = ftrma_sync_begin(FTRMA_WHAT_POST, w->ordinal, -1, 0);
    if (rc > 1)
        return rc;
    for (int o = 0; o < w->n; o++)
        if (w->exposed[o]) {
            w->posted[o]++;
            if (!rc)
                STORE(&pair(w, o, w->me)->posted, w->posted[o]);
        }
    if (!rc)
        ftrma_wake(&w->header->bell);
    w->exposure_open = 1;
    ftrma_event_end();
    return MPI_SUCCESS;
}

int MPI_Win_start(MPI_Group group, int assert, MPI_Win win)
{
    struct window *w = ftrma_window(win);
    if (!w)
        return GUARDED(PMPI_Win_start(group, assert, win));
    if (unlikely(ftrma_finalized))
        return ftrma_after_finalize();
    if (ftrma_unwinding())
        return ftrma_code_unwind;
    if (w->access_open)
        return ftrma_window_fail(w, MPI_ERR_RMA_SYNC, "Start: an access epoch is open already; "
                                 "Complete it first");
    int rc = bad_assert(w, assert, MPI_MODE_NOCHECK, "Start");
    if (!rc)
        rc = members_of(w, group, w->started);
    if (!rc)
        rc = ftrma_sync_begin(FTRMA_WHAT_START, w->ordinal, -1, 0);
    for (int t = 0; t < w->n && !rc; t++)
        if (w->started[t])
            rc = wait_at_least(w, &pair(w, w->me, t)->posted, w->completed[t] + 1);
    if (rc > 1)
        return rc;
    w->access_open = 1;
    ftrma_event_end();
    return MPI_SUCCESS;
}

int MPI_Win_complete(MPI_Win win)
{
    struct window *w = ftrma_window(win);
    if (!w)
        return GUARDED(PMPI_Win_complete(win));
    if (ftrma_unwinding())
        return ftrma_code_unwind;
    if (!w->access_open)
        return ftrma_window_fail(w, MPI_ERR_RMA_SYNC, "Complete: no access epoch is open; Start one "
                                 "first");
    int rc = ftrma_sync_begin(FTRMA_WHAT_COMPLETE, w->ordinal, -1, 0);
    if (rc > 1)
        return rc;
    w->access_open = 0;
    for (int t = 0; t < w->n; t++)
        if (w->started[t]) {
            close_epoch(w, t);
            w->started[t] = 0;
            w->completed[t]++;
            if (!rc)
                STORE(&pair(w, w->me, t)->completed, w->completed[t]);
        }
    w->gc++;
    if (!rc)
        ftrma_wake(&w->header->bell);
    ftrma_event_end();
    return MPI_SUCCESS;
}

static int not_exposed(struct window *w, const char *call)
{
    if (w->exposure_open)
        return MPI_SUCCESS;
    return ftrma_window_fail(w, MPI_ERR_RMA_SYNC, "%s: no exposure epoch is open; Post one first",
                             call);
}

static void end_exposure(struct window *w)
{
    memset(w->exposed, 0, (size_t)w->n);
    w->exposure_open = 0;
}

int MPI_Win_wait(MPI_Win win)
{
    struct window *w = ftrma_window(win);
    if (!w)
        return GUARDED(PMPI_Win_wait(win));
    if (unlikely(ftrma_finalized))
        return ftrma_after_finalize();
    if (ftrma_unwinding())
        return ftrma_code_unwind;
    int rc = not_exposed(w, "Wait");
    if (!rc)
        rc = ftrma_sync_begin(FTRMA_WHAT_WAIT, w->ordinal, -1, 0);
    for (int o = 0; o < w->n && !rc; o++)
        if (w->exposed[o])
            rc = wait_at_least(w, &pair(w, o, w->me)->completed, w->posted[o]);
    if (rc > 1)
        return rc;
    end_exposure(w);
    ftrma_event_end();
    return MPI_SUCCESS;
}

int MPI_Win_test(MPI_Win win, int *flag)
{
    struct window *w = ftrma_window(win);
    if (!w)
        return GUARDED(PMPI_Win_test(win, flag));
    if (ftrma_unwinding())
        return ftrma_code_unwind;
    int rc = not_exposed(w, "Test");
    if (!rc)
        rc = ftrma_sync_begin(FTRMA_WHAT_WAIT, w->ordinal, -1, 1);
    *flag = 1;
    for (int o = 0; o < w->n && !rc; o++)
        if (w->exposed[o] && LOAD(&pair(w, o, w->me)->completed) < w->posted[o])
            *flag = 0;
    if (!rc)
        ftrma_result_log(flag, sizeof *flag);
    else if (rc == 1)
        rc = ftrma_result_read(flag, sizeof *flag);
    if (rc > 1)
        return rc;
    if (*flag)
        end_exposure(w);
    ftrma_event_end();
    return MPI_SUCCESS;
}
