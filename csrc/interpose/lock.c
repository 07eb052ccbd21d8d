/* Synchronization of protected windows: locks and flushes. They wait as sync.c says. */
#include "errors.h"
#include "event.h"
#include "far.h"
#include "farbytes.h"
#include "interrupt.h"
#include "killrules.h"
#include "sync.h"

static int bad_rank(struct window *w, int rank, const char *call)
{
    if (rank >= 0 && rank < w->n)
        return MPI_SUCCESS;
    return ftrma_window_fail(w, MPI_ERR_RANK, "%s: rank %d is not in this window's group of %d",
                             call, rank, w->n);
}

/* ---- locks ---------------------------------------------------------------------------------- */

/* Note SC. No replay depends on it, so no log has it; the word in the pair survives a death. */
static void note_sc(struct window *w, int target, uint64_t sc)
{
    w->sc[target] = sc;
    __atomic_store_n(&pair(w, w->me, target)->sc, sc, __ATOMIC_RELAXED);
}

/* Wait until a lock on another node is granted. */
static int finish_far(struct window *w, int target)
{
    uint64_t sc;
    int rc = ftrma_far_finish(w, target, &sc);
    if (!rc)
        note_sc(w, target, sc);
    return rc;
}

/* Describe a wait for a lock to others, by the slot that holds it, or one of these slots. The
   holder is looked for only when the wait has been long. */
static uint64_t awaits_lock(struct window *w, int target, unsigned step)
{
    for (int m = 0; step >= FTRMA_PATIENCE && m < w->n; m++) {
        uint64_t holds = LOAD(&pair(w, m, target)->holds);
        if (m != w->me && (holds == HOLDS_EXCLUSIVE || holds == HOLDS_SHARED))
            return ftrma_awaits(FTRMA_WHAT_LOCK, w->members[m].slot);
    }
    return ftrma_awaits(FTRMA_WHAT_LOCK, -1);
}

/* Take the lock in one atomic step together with SC. The holder's name is in the word
   (exclusive) and in its pair (both kinds). The pair also says while the step is being taken, so
   that the repair can settle a death in the middle; the replacement then finds itself holding
   the lock, or not. */
static int take(struct window *w, int target, int exclusive)
{
    if (is_far(w, target)) {
        int rc = ftrma_far_ask_lock(w, target, exclusive ? FTRMA_WIRE_EXCLUSIVE : FTRMA_WIRE_SHARED);
        return rc ? rc : finish_far(w, target);
    }
    uint64_t *lock = &w->members[target].lock, *holds = &pair(w, w->me, target)->holds;
    uint32_t seen = LOAD(&w->header->bell.word);
    for (unsigned step = 0; !LOAD(holds); seen = LOAD(&w->header->bell.word)) {
        uint64_t word = LOAD(lock), next = word + (1ull << 32);
        if (!(word & (exclusive ? 0xffffffffu : FTRMA_LOCK_WAITS | FTRMA_LOCK_OWNER))) {
            next += exclusive ? (uint64_t)w->me + 1 : 1ull << 16;
            STORE(holds, HOLDS_TAKING);
            if (ftrma_cas(lock, word, next)) {
                note_sc(w, target, LOCK_SC(next));
                STORE(holds, exclusive ? HOLDS_EXCLUSIVE : HOLDS_SHARED);
                return MPI_SUCCESS;
            }
            STORE(holds, HOLDS_NONE);
            continue;
        }
        if (ftrma_unwinding())
            return ftrma_code_unwind;
        ftrma_wait_step(&step, &w->header->bell, seen, awaits_lock(w, target, step));
    }
    note_sc(w, target, LOCK_SC(LOAD(lock)));
    return MPI_SUCCESS;
}

static int give(struct window *w, int target, int exclusive)
{
    if (is_far(w, target))
        return ftrma_far_unlock(w, target, exclusive ? FTRMA_WIRE_EXCLUSIVE : FTRMA_WIRE_SHARED);
    uint64_t *lock = &w->members[target].lock, *holds = &pair(w, w->me, target)->holds, word;
    if (!LOAD(holds))
        return MPI_SUCCESS;
    STORE(holds, HOLDS_GIVING);
    word = __atomic_sub_fetch(lock, exclusive ? (uint64_t)w->me + 1 : 1ull << 16, __ATOMIC_SEQ_CST);
    STORE(holds, HOLDS_NONE);
    ftrma_wake(&w->header->bell);
    if (unlikely(word & FTRMA_LOCK_WAITS))
        ftrma_far_ring();
    return MPI_SUCCESS;
}

/* Complete all writes to a member, or (-1) to all. On one node they are complete when their
   calls return. */
static int complete(struct window *w, int target)
{
    if (likely(!w->far) || (target >= 0 && !w->far[target]))
        return MPI_SUCCESS;
    return target < 0 ? ftrma_far_flush_all(w) : ftrma_far_flush(w, target);
}

/* Take all locks shared, those on other nodes at once. */
static int take_all(struct window *w)
{
    int rc = MPI_SUCCESS;
    for (int t = 0; t < w->n && !rc; t++)
        rc = is_far(w, t) ? ftrma_far_ask_lock(w, t, FTRMA_WIRE_SHARED) : take(w, t, 0);
    for (int t = 0; t < w->n && !rc; t++)
        rc = is_far(w, t) ? finish_far(w, t) : MPI_SUCCESS;
    return rc;
}

static int give_all(struct window *w)
{
    int rc = MPI_SUCCESS;
    for (int t = 0; t < w->n && !rc; t++)
        rc = is_far(w, t) ? ftrma_far_ask_unlock(w, t, FTRMA_WIRE_SHARED) : give(w, t, 0);
    for (int t = 0; t < w->n && !rc; t++)
        rc = is_far(w, t) ? ftrma_far_finish(w, t, NULL) : MPI_SUCCESS;
    return rc;
}

/* In a replay, count all locks as asked for, each by itself. */
static void pass_all(struct window *w)
{
    for (int t = 0; t < w->n; t++)
        if (is_far(w, t))
            ftrma_far_pass(w, t);
}

/* Trace the part that the event is about. how: 1 for an exclusive lock, or for a flush that is
   remote. */
static __attribute__((noinline)) void trace_target(const struct window *w, int rank, int how)
{
    ftrma_trace.target = rank < 0 ? -1 : w->members[rank].slot;
    ftrma_trace.value[0] = (uint64_t)how;
}
/* Trace the part; without a trace the arguments are not even computed. */
#define TRACE_TARGET(w, rank, how)                                                                \
    do {                                                                                          \
        if (unlikely(ftrma_tracing))                                                              \
            trace_target(w, rank, how);                                                           \
    } while (0)

static int lock_event(struct window *w, int what, int rank, int exclusive)
{
    int rc = ftrma_sync_begin(what, w->ordinal, rank, (uint64_t)exclusive);
    TRACE_TARGET(w, rank, exclusive);
    if (rc == 1 && is_far(w, rank))
        ftrma_far_pass(w, rank);
    if (rc)
        return rc == 1 ? MPI_SUCCESS : rc;
    return take(w, rank, exclusive);
}

int MPI_Win_lock(int type, int rank, int assert, MPI_Win win)
{
    struct window *w = ftrma_window(win);
    if (!w)
        return GUARDED(PMPI_Win_lock(type, rank, assert, win));
    if (unlikely(ftrma_finalized))
        return ftrma_after_finalize();
    if (ftrma_unwinding())
        return ftrma_code_unwind;
    int rc = bad_rank(w, rank, "Lock");
    if (!rc)
        rc = ftrma_bad_assert(w, assert, MPI_MODE_NOCHECK, "Lock");
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
    __atomic_add_fetch(&w->lc, 1, __ATOMIC_RELAXED);
    if (!w->nocheck[rank])
        ftrma_event_end();
    ftrma_failpoint(FTRMA_FAILPOINT_LOCK_HELD);
    return MPI_SUCCESS;
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
    TRACE_TARGET(w, rank, 0);
    if (rc == 1 && is_far(w, rank) && !w->nocheck[rank])
        ftrma_far_pass(w, rank);
    if (!rc)
        rc = complete(w, rank);
    if (!rc && !w->nocheck[rank])
        rc = give(w, rank, w->locked[rank] == MPI_LOCK_EXCLUSIVE);
    if (rc > 1)
        return rc;
    ftrma_close_epoch(w, rank);
    w->gc++;
    __atomic_sub_fetch(&w->lc, 1, __ATOMIC_RELAXED);
    w->locked[rank] = 0;
    ftrma_event_end();
    return MPI_SUCCESS;
}

int MPI_Win_lock_all(int assert, MPI_Win win)
{
    struct window *w = ftrma_window(win);
    if (!w)
        return GUARDED(PMPI_Win_lock_all(assert, win));
    if (unlikely(ftrma_finalized))
        return ftrma_after_finalize();
    if (ftrma_unwinding())
        return ftrma_code_unwind;
    if (w->all_locked || w->lc)
        return ftrma_window_fail(w, MPI_ERR_RMA_SYNC, "Lock_all: this window is locked already");
    int rc = ftrma_bad_assert(w, assert, MPI_MODE_NOCHECK, "Lock_all");
    if (rc)
        return rc;
    rc = ftrma_sync_begin(FTRMA_WHAT_LOCK_ALL, w->ordinal, -1, (uint64_t)assert);
    if (rc > 1)
        return rc;
    if (rc == 1 && !(assert & MPI_MODE_NOCHECK))
        pass_all(w);
    if (!rc && !(assert & MPI_MODE_NOCHECK))
        rc = take_all(w);
    if (rc > 1)
        return rc;
    w->all_locked = assert & MPI_MODE_NOCHECK ? 2 : 1;
    __atomic_add_fetch(&w->lc, 1, __ATOMIC_RELAXED);
    ftrma_event_end();
    ftrma_failpoint(FTRMA_FAILPOINT_LOCK_HELD);
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
    if (!rc)
        rc = complete(w, -1);
    if (rc == 1 && w->all_locked == 1)
        pass_all(w);
    if (!rc && w->all_locked == 1)
        rc = give_all(w);
    if (rc > 1)
        return rc;
    for (int t = 0; t < w->n; t++)
        ftrma_close_epoch(w, t);
    w->gc++;
    __atomic_sub_fetch(&w->lc, 1, __ATOMIC_RELAXED);
    w->all_locked = 0;
    ftrma_event_end();
    return MPI_SUCCESS;
}

/* ---- flushes -------------------------------------------------------------------------------- */

static int flush(struct window *w, int rank, int remote)
{
    ftrma_failpoint(FTRMA_FAILPOINT_FLUSH);
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
    TRACE_TARGET(w, rank, remote);
    if (!rc && remote)
        rc = complete(w, rank);
    if (unlikely(rc > 1))
        return rc;
    if (remote) {
        ftrma_close_epoch(w, rank);
        w->gc++;
    }
    ftrma_event_end();
    return MPI_SUCCESS;
}

static int flush_all(struct window *w, int remote)
{
    ftrma_failpoint(FTRMA_FAILPOINT_FLUSH);
    if (ftrma_unwinding())
        return ftrma_code_unwind;
    if (!w->all_locked && !w->lc)
        return ftrma_window_fail(w, MPI_ERR_RMA_SYNC, "Flush_all: this window is not locked; "
                                 "flushes belong between Lock and Unlock");
    int rc = ftrma_sync_begin(FTRMA_WHAT_FLUSH_ALL, w->ordinal, -1, (uint64_t)remote);
    TRACE_TARGET(w, -1, remote);
    if (!rc && remote)
        rc = complete(w, -1);
    if (rc > 1)
        return rc;
    for (int t = 0; remote && t < w->n; t++)
        ftrma_close_epoch(w, t);
    w->gc += (uint64_t)remote;
    ftrma_event_end();
    return MPI_SUCCESS;
}

int MPI_Win_flush(int rank, MPI_Win win)
{
    struct window *w = ftrma_window(win);
    return w ? flush(w, rank, 1) : GUARDED(PMPI_Win_flush(rank, win));
}

int MPI_Win_flush_local(int rank, MPI_Win win)
{
    struct window *w = ftrma_window(win);
    return w ? flush(w, rank, 0) : GUARDED(PMPI_Win_flush_local(rank, win));
}

int MPI_Win_flush_all(MPI_Win win)
{
    struct window *w = ftrma_window(win);
    return w ? flush_all(w, 1) : GUARDED(PMPI_Win_flush_all(win));
}

int MPI_Win_flush_local_all(MPI_Win win)
{
    struct window *w = ftrma_window(win);
    return w ? flush_all(w, 0) : GUARDED(PMPI_Win_flush_local_all(win));
}

int MPI_Win_sync(MPI_Win win)
{
    struct window *w = ftrma_window(win);
    if (!w)
        return GUARDED(PMPI_Win_sync(win));
    MEMORY_FENCE();
    if (ftrma_unwinding())
        return ftrma_code_unwind;
    int rc = ftrma_sync_begin(FTRMA_WHAT_SYNC, w->ordinal, -1, 0);
    if (rc > 1)
        return rc;
    ftrma_event_end();
    return MPI_SUCCESS;
}
