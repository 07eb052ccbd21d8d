/* Attempts: the threads that may still act.
 *
 * After a rollback the program is entered again in the same process. Threads that it had begun
 * before may go on for a while, and their calls must not reach the new attempt. So a thread belongs
 * to the attempt in which it was begun, and its calls unwind once that attempt is over. The thread
 * that runs the program comes to the next attempt by entering the program again. Until then its
 * calls unwind, too, so that clean-up on the way out does nothing to others.
 */
#include "attempt.h"

_Thread_local struct ftrma_thread ftrma_thread = {.round = UINT64_MAX};
uint64_t ftrma_attempt = 1;
uint64_t ftrma_thread_lost;

void ftrma_attempt_advance(void)
{
    __atomic_add_fetch(&ftrma_attempt, 1, __ATOMIC_SEQ_CST);
}

void ftrma_attempt_join(void)
{
    ftrma_thread.attempt = LOAD(&ftrma_attempt);
}

uint64_t ftrma_attempt_of_thread(void)
{
    return ftrma_thread.attempt;
}

void ftrma_set_attempt_of_thread(uint64_t attempt)
{
    ftrma_thread.attempt = attempt;
}
