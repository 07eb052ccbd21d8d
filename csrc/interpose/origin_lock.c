/* The lock of this process's origin, and calls of the origin without success.
 *
 * A call of the origin ends early when another thread rings the origin's alarm, to have the origin
 * itself.  The origin refuses a call while the target owes another thread an answer.  In both cases
 * the caller makes the call again.  All other results become an MPI code.
 */
#define _GNU_SOURCE
#include "origin_lock.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#include "board.h"
#include "interrupt.h"

struct ftrma_originlock ftrma_originlock = {.mutex = PTHREAD_MUTEX_INITIALIZER,
                                              .changing = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP};

void ftrma_set_nodes(void *origin, void *ledger)
{
    ftrma_boards_reach(ledger, ftrma_ctl->nslots + (uint32_t)ftrma_node_here());
    ftrma_wire_reach(origin, ledger);
}

static void nap(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
}

int ftrma_originlock_release(int result)
{
    /* First clear the alarm, then check for a failure, so that the failure's ring is not lost. */
    if (unlikely(result == FTRMA_ALARM))
        ftrma_origin_clear_alarm(ORIGIN);
    /* This is read under the lock, since another thread may get its answer right afterwards. */
    int busy = result == -EBUSY && LOAD(&ftrma_originlock.unanswered);
    pthread_mutex_unlock(&ftrma_originlock.mutex);
    int again = busy || (result == FTRMA_ALARM && !ftrma_unwinding());
    if (unlikely(again))
        nap();
    return again;
}

int ftrma_originlock_error(struct window *w, int target, int result)
{
    if (result == FTRMA_ALARM && ftrma_unwinding())
        return ftrma_code_unwind;
    if (result == -ENOMEM)
        return MPI_ERR_NO_MEM;
    const char *why = result < 0 ? strerror(-result) : ftrma_origin_reason(ORIGIN);
    if (!w)
        return ftrma_error_code(MPI_ERR_OTHER, "another node cannot be reached: %s", why);
    if (target < 0)
        return ftrma_window_fail(w, MPI_ERR_OTHER, "another node's part of the window cannot be "
                                 "reached: %s", why);
    return ftrma_window_fail(w, MPI_ERR_OTHER, "the part of rank %d, on another node, cannot be "
                             "reached: %s", target, why);
}

void ftrma_originlock_hold(int mine)
{
    if (mine)
        lock_origin();
    else
        pthread_mutex_unlock(&ftrma_originlock.mutex);
}

/* Nothing in this may check for an interruption, since a repair calls it. */
int ftrma_originlock_retry(uint64_t round, int (*call)(void))
{
    int result = FTRMA_OK;
    do {
        pthread_mutex_lock(&ftrma_originlock.mutex);
        if (result == FTRMA_ALARM)
            ftrma_origin_clear_alarm(ORIGIN);
        result = LOAD(&ftrma_ctl->alarm) == round ? call() : FTRMA_ALARM;
        pthread_mutex_unlock(&ftrma_originlock.mutex);
    } while (result == FTRMA_ALARM && LOAD(&ftrma_ctl->alarm) == round);
    return result;
}
