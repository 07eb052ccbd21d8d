/* Where a timeline of the program ends, and where the next one begins: what a process keeps for one is
 * reset here.  What belongs to the logs (tape, pens, pace, results) is reset where they begin anew, in
 * ftrma_log_start (marks.c).
 */
#include "attempt.h"
#include "comm.h"
#include "control.h"
#include "errors.h"
#include "meet.h"
#include "window.h"

void ftrma_timeline_end(void)
{
    int index;
    ftrma_attempt_end(); /* first: threads of it do nothing to what comes next */
    ftrma_slots_barrier_reset();
    if (ftrma_my_role(&index) == FTRMA_ROLE_SLOT)
        ftrma_comms_rewind();
}

void ftrma_timeline_begin(void)
{
    ftrma_attempt_begin();
    ftrma_windows_rewind();
    ftrma_comms_bury();
    ftrma_finalized = 0;
}
