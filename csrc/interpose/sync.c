/* Synchronization of protected windows: fence, post-start-complete-wait (locks and
 * flushes: lock.c).
 *
 * All of it runs on words in the window's shared header. Each wait ends when its condition holds or
 * when a failure is noticed, whichever comes first. The library's own synchronization can wait for
 * a dead process for ever.
 *
 * Accesses are complete in memory when their call returns (access.c), so a flush only closes an
 * epoch: it orders memory and counts. Puts to members on other nodes are under way until a flush
 * has waited for them (farbytes.c), and the words at which such a member waits lie on its node
 * (far.c). Counters follow section 4.1 of the paper: EC per target, incremented when an epoch
 * toward it closes; GC, incremented by every flush or unlock; GNC by every fence; SC of a target,
 * fetched and incremented with its lock in one atomic word.
 */
#include <string.h>

#include "errors.h"
#include "event.h"
#include "far.h"
#include "farbytes.h"
#include "interrupt.h"
#include "killrules.h"
#include "results.h"
#include "sync.h"
#include "window.h"
#include "world.h"

static int all_arrived(const struct window *w, int *first)
{
    while (*first < w->n
           && __atomic_load_n(&w->members[*first].arrived, __ATOMIC_SEQ_CST) >= w->barriers)
        ++*first;
    return *first == w->n;
}

/* Arrive at a barrier. Nobody learns of the arrival before all that this member has written is at
   its target. */
static int arrive(struct window *w)
{
    uint64_t *arrived = &w->members[w->me].arrived, now = ++w->barriers;
    int rc = w->far ? ftrma_far_flush_all(w) : MPI_SUCCESS;
    if (unlikely(rc))
        return rc;
    STORE(arrived, now);
    if (likely(!w->far))
        return MPI_SUCCESS;
    rc = ftrma_far_tell(w, arrived, now);
    return rc ? rc : ftrma_far_flush_all(w);
}

/* Each member's word has one writer, which stores the number of the barrier: arriving once more
   changes nothing. A member that finds at its arrival that all have arrived rings the bell; the
   last one does so in any case. */
int ftrma_window_barrier(struct window *w)
{
    struct ftrma_bell *bell = &w->header->barrier;
    int first = 0;
    if (ftrma_unwinding())
        return ftrma_code_unwind;
    int rc = arrive(w);
    if (unlikely(rc))
        return rc;
    if (all_arrived(w, &first)) {
        if (w->n > 1)
            ftrma_wake(bell);
        return MPI_SUCCESS;
    }
    uint32_t seen = LOAD(&bell->word);
    for (unsigned step = 0; !all_arrived(w, &first); seen = LOAD(&bell->word)) {
        if (ftrma_unwinding())
            return ftrma_code_unwind;
        ftrma_wait_step(&step, bell, seen, ftrma_awaits(FTRMA_WHAT_FENCE, w->members[first].slot));
    }
    return MPI_SUCCESS;
}

/* Wait while *word, masked, is below `goal`; unwind at a failure. awaits: see ftrma_awaits. */
static int wait_at_least(struct window *w, const uint64_t *word, uint64_t goal, uint64_t awaits)
{
    uint32_t seen = LOAD(&w->header->bell.word);
    for (unsigned step = 0; LOAD(word) < goal; seen = LOAD(&w->header->bell.word)) {
        if (ftrma_unwinding())
            return ftrma_code_unwind;
        ftrma_wait_step(&step, &w->header->bell, seen, awaits);
    }
    return MPI_SUCCESS;
}

/* ---- fence ---------------------------------------------------------------------------------- */

int MPI_Win_fence(int assert, MPI_Win win)
{
    struct window *w = ftrma_window(win);
    if (!w)
        return GUARDED(PMPI_Win_fence(assert, win));
    if (unlikely(ftrma_finalized))
        return ftrma_after_finalize();
    ftrma_failpoint(FTRMA_FAILPOINT_FENCE);
    if (ftrma_unwinding())
        return ftrma_code_unwind;
    int rc = ftrma_bad_assert(w, assert, MPI_MODE_NOSTORE | MPI_MODE_NOPUT | MPI_MODE_NOPRECEDE
                                   | MPI_MODE_NOSUCCEED, "Fence");
    if (rc)
        return rc;
    rc = ftrma_sync_begin(FTRMA_WHAT_FENCE, w->ordinal, -1, 0);
    if (rc == 1) {
        w->barriers++;
        ftrma_far_pass_tell(w);
    } else if (!rc)
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

/* Trace the slots that a Post or Start names, each in a record beside its own. */
static void trace_peers(const struct window *w, const unsigned char *set)
{
    for (int i = 0; ftrma_tracing && i < w->n; i++)
        if (set[i])
            ftrma_trace_beside(FTRMA_WHAT_PEER, w->members[i].slot, ftrma_event_clock.events + 1);
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
    int rc = ftrma_bad_assert(w, assert, MPI_MODE_NOCHECK | MPI_MODE_NOSTORE | MPI_MODE_NOPUT, "Post");
    if (!rc)
        rc = members_of(w, group, w->exposed);
    if (!rc)
        rc = ftrma_sync_begin(FTRMA_WHAT_POST, w->ordinal, -1, 0);
    if (rc > 1)
        return rc;
    for (int o = 0; o < w->n; o++)
        if (w->exposed[o]) {
            w->posted[o]++;
            if (rc == 1 && is_far(w, o))
                ftrma_far_pass(w, o);
            if (!rc && is_far(w, o))
                rc = ftrma_far_set(w, o, &pair(w, o, w->me)->posted, w->posted[o]);
            else if (!rc)
                STORE(&pair(w, o, w->me)->posted, w->posted[o]);
        }
    if (!rc && w->far)
        rc = ftrma_far_flush_all(w);
    if (rc > 1)
        return rc;
    if (!rc)
        ftrma_wake(&w->header->bell);
    w->exposure_open = 1;
    trace_peers(w, w->exposed);
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
    int rc = ftrma_bad_assert(w, assert, MPI_MODE_NOCHECK, "Start");
    if (!rc)
        rc = members_of(w, group, w->started);
    if (!rc)
        rc = ftrma_sync_begin(FTRMA_WHAT_START, w->ordinal, -1, 0);
    for (int t = 0; t < w->n && !rc; t++)
        if (w->started[t])
            rc = wait_at_least(w, &pair(w, w->me, t)->posted, w->completed[t] + 1,
                               ftrma_awaits(FTRMA_WHAT_START, w->members[t].slot));
    if (rc > 1)
        return rc;
    w->access_open = 1;
    trace_peers(w, w->started);
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
    if (!rc && w->far)
        rc = ftrma_far_flush_all(w); /* before this member tells the others that it is done */
    if (rc > 1)
        return rc;
    w->access_open = 0;
    for (int t = 0; t < w->n; t++)
        if (w->started[t]) {
            ftrma_close_epoch(w, t);
            w->started[t] = 0;
            w->completed[t]++;
            if (rc == 1 && is_far(w, t))
                ftrma_far_pass(w, t);
            if (!rc && is_far(w, t))
                rc = ftrma_far_set(w, t, &pair(w, w->me, t)->completed, w->completed[t]);
            else if (!rc)
                STORE(&pair(w, w->me, t)->completed, w->completed[t]);
        }
    if (!rc && w->far)
        rc = ftrma_far_flush_all(w);
    if (rc > 1)
        return rc;
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
            rc = wait_at_least(w, &pair(w, o, w->me)->completed, w->posted[o],
                               ftrma_awaits(FTRMA_WHAT_WAIT, w->members[o].slot));
    if (rc > 1)
        return rc;
    end_exposure(w);
    ftrma_trace.value[0] = 1;
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
    ftrma_trace.value[0] = (uint64_t)*flag;
    ftrma_event_end();
    return MPI_SUCCESS;
}
