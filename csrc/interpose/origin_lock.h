/* The lock of this process's origin, by which other nodes are reached (origin_lock.c).
 *
 * The origin serves one thread at a time. A thread that waits for a lock of another node may wait
 * for something that a thread of its own process is about to do. So it gives way to other threads
 * that want the origin: they ring the origin's alarm, which ends the waiting call. A call that ends
 * with the alarm, but without a failure, is made again. Everything that each access needs is
 * inline.
 */
#ifndef FTRMA_ORIGIN_LOCK_H
#define FTRMA_ORIGIN_LOCK_H

#include <pthread.h>

#include "alarm.h"
#include "attempt.h"
#include "errors.h"
#include "nodes.h"
#include "window.h"

#define ORIGIN ftrma_wire_origin()

struct ftrma_originlock {
    pthread_mutex_t mutex;
    pthread_mutex_t changing; /* held from the beginning of an atomic or change to its end */
    unsigned wanted;     /* threads that wait for the origin */
    int owner_waits;     /* the thread that has the origin waits for a lock of another node */
    unsigned unanswered; /* locks and atomics without an answer; nothing else can be sent to their
                            targets */
};
extern struct ftrma_originlock ftrma_originlock;

/* Release the origin after a call without success. 1: the call is to be made again. */
int ftrma_originlock_release(int result);
/* The MPI code of a call without success; target: -1 if there were several, w: NULL if the call
   belongs to no window. */
int ftrma_originlock_error(struct window *w, int target, int result);
/* In a repair: call until there is an answer, or another round is asked for. */
int ftrma_originlock_retry(uint64_t round, int (*call)(void));

static inline void lock_origin(void)
{
    __atomic_add_fetch(&ftrma_originlock.wanted, 1, __ATOMIC_SEQ_CST);
    if (unlikely(LOAD(&ftrma_originlock.owner_waits)))
        ftrma_origin_ring(ORIGIN);
    pthread_mutex_lock(&ftrma_originlock.mutex);
    __atomic_sub_fetch(&ftrma_originlock.wanted, 1, __ATOMIC_SEQ_CST);
}

/* Release the origin. 1: the call with this result is to be made again. */
static inline int unlock_origin(int result)
{
    if (unlikely(result != FTRMA_OK))
        return ftrma_originlock_release(result);
    pthread_mutex_unlock(&ftrma_originlock.mutex);
    return 0;
}

/* The MPI code of an origin's call with this result. */
static inline int judge(struct window *w, int target, int result)
{
    return likely(result == FTRMA_OK) ? MPI_SUCCESS : ftrma_originlock_error(w, target, result);
}

/* 1 if this thread must not send any more, although it is inside a call that it began before: a
   failure is pending, or was handled by a rollback. */
static inline int is_hindered(void)
{
    return unlikely(LOAD(&ftrma_ctl->alarm) != ftrma_thread.round)
           && (ftrma_stale() || ftrma_pending());
}

/* Make a call with the origin locked, and set `result` to its result. Failures are checked for
   under the lock, since the alarm rings once, and the previous thread may have consumed the
   ring. */
#define WITH_ORIGIN(result, call)                                                                 \
    do {                                                                                          \
        lock_origin();                                                                            \
        (result) = is_hindered() ? FTRMA_ALARM : (call);                                          \
    } while (unlock_origin(result))

/* Make a call that waits for a lock of another node and gives way to threads that want the
   origin. */
#define WITH_ORIGIN_FOR_LOCK(result, call)                                                        \
    do {                                                                                          \
        lock_origin();                                                                            \
        STORE(&ftrma_originlock.owner_waits, 1);                                                 \
        (result) = is_hindered() || LOAD(&ftrma_originlock.wanted) ? FTRMA_ALARM : (call);       \
        STORE(&ftrma_originlock.owner_waits, 0);                                                 \
    } while (unlock_origin(result))

#define RETURN_WITH_ORIGIN(w, target, call)                                                       \
    int result_;                                                                                  \
    WITH_ORIGIN(result_, call);                                                                   \
    return judge(w, target, result_)

/* Count a lock or atomic that was asked for, if `result` is a success. */
static inline int count_unanswered(int result)
{
    if (!result)
        __atomic_add_fetch(&ftrma_originlock.unanswered, 1, __ATOMIC_SEQ_CST);
    return result;
}

/* Note that a lock or atomic has got its answer. */
static inline void count_answered(void)
{
    __atomic_sub_fetch(&ftrma_originlock.unanswered, 1, __ATOMIC_SEQ_CST);
}

#endif
