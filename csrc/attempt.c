/* Attempts: which threads may still do something, and what a pending failure means for each.
 *
 * After a rollback the program is entered again in the same process.  Threads that it had begun
 * before may go on for a while, and what they do must not reach the new attempt.  So a thread
 * belongs to the attempt in which it was begun, and its calls unwind once that is over.  The thread
 * that runs the program comes to the next one by entering the program again; until then its calls
 * unwind, too, so that what cleans up on the way out does nothing to others.
 *
 * This costs the program nothing: each thread compares the alarm with a word of its own, and goes
 * into the matter only where they differ.  The word becomes the round that the process has left, for
 * threads of the current attempt alone.  An attempt ends before the round is left, and here the
 * round is read first, so that no thread gets a round that was left after its attempt.
 */
#include "event.h"

_Thread_local struct ftrma_thread ftrma_thread = {.round = UINT64_MAX};
uint64_t ftrma_attempt = 1;
static ftrma_interrupt_function interrupt;

void ftrma_set_interrupt(ftrma_interrupt_function function)
{
    interrupt = function;
    ftrma_counted = 1; /* this thread runs the program */
}

void ftrma_end_attempt(void)
{
    __atomic_add_fetch(&ftrma_attempt, 1, __ATOMIC_SEQ_CST);
}

void ftrma_begin_attempt(void)
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

/* A call that another thread than the program's was about to make is lost with it, as that thread
   unwinds; so the failure cannot be repaired in place.  A plan that does not know yet is made anew. */
static void forbid_repair_in_place(void)
{
    uint64_t alarm = LOAD(&ftrma_ctl->alarm);
    if (ftrma_tape.on && ftrma_uncounted() && ftrma_pending())
        ftrma_raise(alarm);
}

int ftrma_interrupted(void)
{
    uint64_t round = LOAD(&ftrma_round);
    if (!ftrma_thread.attempt)
        ftrma_begin_attempt();
    if (ftrma_stale())
        return 1;
    if (!ftrma_pending()) {
        ftrma_thread.round = round;
        return 0;
    }
    if (ftrma_counted)
        return interrupt ? interrupt() : 1;
    forbid_repair_in_place();
    return 1;
}
