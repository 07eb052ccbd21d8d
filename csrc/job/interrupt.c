/* Interruption: a thread that makes a call checks if a failure is pending.
 *
 * This costs the program next to nothing: each thread compares the alarm with a word of its own,
 * and does more only if they differ. For threads of the current attempt alone, the word then
 * becomes the round that the process has left. An attempt ends before its process leaves the round,
 * and the round is read before the attempt here, so that no thread gets a round that was left after
 * its attempt.
 */
#include "interrupt.h"

#include "alarm.h"
#include "event_clock.h"
#include "wake.h"

/* Set once by ftrma_set_interrupt, before the program runs. */
static ftrma_interrupt_function interrupt;

void ftrma_set_interrupt(ftrma_interrupt_function function)
{
    interrupt = function;
    ftrma_counted = 1; /* the calling thread runs the program */
}

void ftrma_lose_thread(void)
{
    if (!interrupt)
        return; /* no program runs in this process yet */
    if (!ftrma_thread.attempt)
        ftrma_attempt_join();
    if (ftrma_event_clock.on)
        ftrma_uncounted();
    /* Ask for another round: a plan that was made without this is made anew, even after its repair
       is over. */
    uint64_t attempt = ftrma_thread.attempt;
    if (__atomic_exchange_n(&ftrma_thread_lost, attempt, __ATOMIC_SEQ_CST) == attempt)
        return;
    uint64_t alarm = LOAD(&ftrma_ctl->alarm);
    if (alarm != FTRMA_ENDED)
        ftrma_raise(alarm);
}

int ftrma_loses_threads(void)
{
    return LOAD(&ftrma_thread_lost) == LOAD(&ftrma_attempt)
           || ftrma_others_inside();
}

int ftrma_interrupted(void)
{
    uint64_t round = LOAD(&ftrma_round);
    if (!ftrma_thread.attempt)
        ftrma_attempt_join();
    if (ftrma_stale())
        return 1;
    if (!ftrma_pending()) {
        ftrma_thread.round = round;
        return 0;
    }
    if (ftrma_counted) {
        ftrma_wake_attend(1);
        int unwinds = interrupt ? interrupt() : 1;
        ftrma_wake_attend(0);
        return unwinds;
    }
    ftrma_lose_thread();
    return 1;
}

int ftrma_must_unwind(void)
{
    return ftrma_unwinding();
}
