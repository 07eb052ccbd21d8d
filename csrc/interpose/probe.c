/* Probes for messages: Iprobe and Improbe.
 *
 * A program may probe without ever getting a message, to let the library progress or to learn
 * whether a message waits. So on communicators with others a probe is an event, and its "no" is a
 * result like that of Win_test: it is logged, counted if it repeats (results.c), and answered from
 * the log in a replay. A probe that has found a message counts as a message, which no log covers.
 */
#include "communicator.h"
#include "errors.h"
#include "event.h"
#include "killrules.h"
#include "results.h"

/* Begin a probe. Returns 0 if the library is to be asked, 1 if the log has answered, else an MPI
   code. */
static int probe_begin(MPI_Comm comm, int source, int tag, const char *call, int *flag)
{
    ftrma_failpoint(FTRMA_FAILPOINT_CALL);
    if (!ftrma_counts() || ftrma_is_alone(comm)) {
        ftrma_foreign_on(comm, call);
        return 0;
    }
    if (ftrma_unwinding())
        return ftrma_code_unwind;
    int skip = ftrma_sync_begin(FTRMA_WHAT_PROBE, -1, source, (uint64_t)(uint32_t)tag);
    if (skip != 1)
        return skip;
    int rc = ftrma_result_read(flag, sizeof *flag);
    if (!rc)
        ftrma_event_end();
    return rc ? rc : 1;
}

static int probe_end(MPI_Comm comm, const char *call, int rc, const int *flag)
{
    if (!ftrma_counts() || ftrma_is_alone(comm) || rc == ftrma_code_unwind)
        return rc;
    if (rc || *flag)
        ftrma_foreign(call);
    ftrma_result_log(rc ? &rc : flag, sizeof *flag);
    ftrma_event_end();
    return rc;
}

int MPI_Iprobe(int source, int tag, MPI_Comm comm, int *flag, MPI_Status *status)
{
    int rc = probe_begin(comm, source, tag, __func__, flag);
    if (rc)
        return rc == 1 ? MPI_SUCCESS : rc;
    rc = GUARDED(PMPI_Iprobe(source, tag, ftrma_comm(comm), flag, status));
    return probe_end(comm, __func__, rc, flag);
}

int MPI_Improbe(int source, int tag, MPI_Comm comm, int *flag, MPI_Message *message,
                MPI_Status *status)
{
    int rc = probe_begin(comm, source, tag, __func__, flag);
    if (rc)
        return rc == 1 ? MPI_SUCCESS : rc;
    rc = GUARDED(PMPI_Improbe(source, tag, ftrma_comm(comm), flag, message, status));
    return probe_end(comm, __func__, rc, flag);
}
