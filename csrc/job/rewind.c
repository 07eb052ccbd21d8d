/* The end of an attempt of the program, and the beginning of the next: all that a process keeps for
 * one attempt is reset here. The logs' part (event clock, pens, pace, results) is reset where they
 * begin anew, in ftrma_log_start (marks.c). */
#include "attempt.h"
#include "communicator.h"
#include "control.h"
#include "errors.h"
#include "meet.h"
#include "window.h"

void ftrma_attempt_end(void)
{
    int index;
    ftrma_attempt_advance(); /* first, so that threads of the old attempt change nothing in the next
                                one */
    ftrma_slots_barrier_reset();
    if (ftrma_my_role(&index) == FTRMA_ROLE_SLOT)
        ftrma_comms_rewind();
}

void ftrma_attempt_begin(void)
{
    ftrma_attempt_join();
    ftrma_windows_rewind();
    ftrma_comms_free_retired();
    ftrma_finalized = 0;
}
