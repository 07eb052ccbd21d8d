/* The origin of this process, by which other nodes are reached, and which thread has it (turn.c).
 *
 * It serves one thread at a time.  Who waits for a lock may wait for what another thread is about
 * to do: it lets others have the origin, whose alarm they ring for that.  A call that ends with the
 * alarm, and no failure, is made again.  What each access needs is inline.
 */
#ifndef FTRMA_TURN_H
#define FTRMA_TURN_H

#include <pthread.h>

#include "alarm.h"
#include "attempt.h"
#include "errors.h"
#include "nodes.h"
#include "window.h"

#define ORIGIN ftrma_wire_origin()

struct ftrma_turn {
    pthread_mutex_t alone;
    pthread_mutex_t changing; /* held from the beginning of an atomic or change to its end */
    unsigned wanted; /* so many threads wait for the origin */
    int patient;     /* who has it waits for a lock */
    unsigned begun;  /* locks and atomics without an answer: nothing else can go to those targets */
};
extern struct ftrma_turn ftrma_turn;

/* Leave the origin to others after a call that has not succeeded.  1: it is to be made again. */
int ftrma_turn_give(int result);
/* What such a call has come to, as an MPI code; target: -1 where it went to several, w: NULL where
   it was no window's. */
int ftrma_turn_fail(struct window *w, int target, int result);
/* In a repair: call until it has an answer, or another round is asked for. */
int ftrma_turn_insist(uint64_t round, int (*call)(void));

static inline void take_turn(void)
{
    __atomic_add_fetch(&ftrma_turn.wanted, 1, __ATOMIC_SEQ_CST);
    if (unlikely(LOAD(&ftrma_turn.patient)))
        ftrma_origin_ring(ORIGIN);
    pthread_mutex_lock(&ftrma_turn.alone);
    __atomic_sub_fetch(&ftrma_turn.wanted, 1, __ATOMIC_SEQ_CST);
}

/* Leave the origin to others.  1: what has come to this is to be done again. */
static inline int give_turn(int result)
{
    if (unlikely(result != FTRMA_OK))
        return ftrma_turn_give(result);
    pthread_mutex_unlock(&ftrma_turn.alone);
    return 0;
}

/* What an origin's call has come to, as an MPI code. */
static inline int judge(struct window *w, int target, int result)
{
    return likely(result == FTRMA_OK) ? MPI_SUCCESS : ftrma_turn_fail(w, target, result);
}

/* A failure waits, or what waited was handled by going back: nothing of this thread's is sent any
   more, though it is amid a call that it had begun before. */
static inline int is_hindered(void)
{
    return unlikely(LOAD(&ftrma_ctl->alarm) != ftrma_thread.round)
           && (ftrma_stale() || ftrma_pending());
}

/* Set result to that of the call.  A failure is looked for with the origin in hand: its alarm rings
   once, and may have been taken by the thread before. */
#define ALONE(result, call)                                                                       \
    do {                                                                                          \
        take_turn();                                                                              \
        (result) = is_hindered() ? FTRMA_ALARM : (call);                                          \
    } while (give_turn(result))

/* The same of a call that waits for a lock. */
#define PATIENTLY(result, call)                                                                   \
    do {                                                                                          \
        take_turn();                                                                              \
        STORE(&ftrma_turn.patient, 1);                                                            \
        (result) = is_hindered() || LOAD(&ftrma_turn.wanted) ? FTRMA_ALARM : (call);              \
        STORE(&ftrma_turn.patient, 0);                                                            \
    } while (give_turn(result))

#define RETURN_ALONE(w, target, call)                                                             \
    int result_;                                                                                  \
    ALONE(result_, call);                                                                         \
    return judge(w, target, result_)

/* One more lock or atomic is asked for, if this is a success; and one has its answer. */
static inline int begin_one(int result)
{
    if (!result)
        __atomic_add_fetch(&ftrma_turn.begun, 1, __ATOMIC_SEQ_CST);
    return result;
}

static inline void end_one(void)
{
    __atomic_sub_fetch(&ftrma_turn.begun, 1, __ATOMIC_SEQ_CST);
}

#endif
