/* The origin of this process: how it comes, and what becomes of calls that it does not do at once.
 *
 * Some of them end with the alarm, which others ring for their turn, too, or are refused as long as
 * the target has not answered another thread: they are made again.  What is left is an MPI code.
 */
#define _GNU_SOURCE
#include "turn.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#include "comm.h"
#include "interrupt.h"

struct ftrma_turn ftrma_turn = {.alone = PTHREAD_MUTEX_INITIALIZER,
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

int ftrma_turn_give(int result)
{
    /* Before the failure is looked for, whose ring is not to be lost. */
    if (unlikely(result == FTRMA_ALARM))
        ftrma_origin_clear_alarm(ORIGIN);
    int busy = result == -EBUSY && LOAD(&ftrma_turn.begun); /* maybe no more, once others have it */
    pthread_mutex_unlock(&ftrma_turn.alone);
    int again = busy || (result == FTRMA_ALARM && !ftrma_unwinding());
    if (unlikely(again))
        nap();
    return again;
}

int ftrma_turn_fail(struct window *w, int target, int result)
{
    if (result == FTRMA_ALARM && ftrma_unwinding())
        return ftrma_code_unwind;
    if (result == -ENOMEM)
        return MPI_ERR_NO_MEM;
    const char *why = result < 0 ? strerror(-result) : ftrma_origin_reason(ORIGIN);
    if (!w)
        return ftrma_window_fail(NULL, MPI_ERR_OTHER, "another node cannot be reached: %s", why);
    if (target < 0)
        return ftrma_window_fail(w, MPI_ERR_OTHER, "another node's part of the window cannot be "
                                 "reached: %s", why);
    return ftrma_window_fail(w, MPI_ERR_OTHER, "the part of rank %d, on another node, cannot be "
                             "reached: %s", target, why);
}

void ftrma_turn_keep(int mine)
{
    if (mine)
        take_turn();
    else
        pthread_mutex_unlock(&ftrma_turn.alone);
}

/* Nothing here may come to an interruption: a repair is one. */
int ftrma_turn_insist(uint64_t round, int (*call)(void))
{
    int result = FTRMA_OK;
    do {
        pthread_mutex_lock(&ftrma_turn.alone);
        if (result == FTRMA_ALARM)
            ftrma_origin_clear_alarm(ORIGIN);
        result = LOAD(&ftrma_ctl->alarm) == round ? call() : FTRMA_ALARM;
        pthread_mutex_unlock(&ftrma_turn.alone);
    } while (result == FTRMA_ALARM && LOAD(&ftrma_ctl->alarm) == round);
    return result;
}
