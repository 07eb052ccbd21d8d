/* Partitioned communication: the library's own, which needs calls of the job's servers, too.
 *
 * At the first of these calls Open MPI 5.0 begins to duplicate MPI_COMM_WORLD, and no message moves
 * before all processes have come to that, even those that do not run the program. So the slot that
 * is first announces it, and each checksum rank and spare, between two checks for work, sends a
 * partitioned message to itself until the message has arrived.
 *
 * These duplicates are lost with the death of any process, at which the library aborts. A job that
 * has them is launched again after a failure, never repaired in place (ftrma/protocol/plan.py).
 */
#include "alarm.h"
#include "communicator.h"
#include "errors.h"
#include "event_clock.h"
#include "interrupt.h"
#include "killrules.h"

/* 1 if a process of any role has died since the start: it is still a member of the library's
   world. */
static int somebody_died(void)
{
    for (uint32_t p = 0; p < ftrma_ctl->nprocs; p++)
        if (LOAD(&ftrma_ctl->proc[p].state) == FTRMA_DEAD)
            return 1;
    return 0;
}

static int begin(MPI_Comm comm, const char *call)
{
    ftrma_failpoint(FTRMA_FAILPOINT_CALL);
    if (!ftrma_ctl)
        return MPI_SUCCESS;
    if (ftrma_link >= 0) {
        int code = ftrma_error_code(MPI_ERR_UNSUPPORTED_OPERATION, "%s: over several nodes "
                                    "no protected job has partitioned communication; use "
                                    "persistent requests", call);
        PMPI_Comm_call_errhandler(ftrma_comm(comm), code);
        return code;
    }
    ftrma_foreign(call);
    if (!LOAD(&ftrma_ctl->partitioned)) {
        STORE(&ftrma_ctl->partitioned, 1);
        ftrma_ring();
        if (somebody_died())
            ftrma_raise(ftrma_round); /* nothing else is to be repaired */
    }
    return MPI_SUCCESS;
}

int MPI_Psend_init(const void *buf, int partitions, MPI_Count count, MPI_Datatype type, int dest,
                   int tag, MPI_Comm comm, MPI_Info info, MPI_Request *request)
{
    int rc = begin(comm, "MPI_Psend_init");
    return rc ? rc : GUARDED(PMPI_Psend_init(buf, partitions, count, type, dest, tag,
                                             ftrma_comm(comm), info, request));
}

int MPI_Precv_init(void *buf, int partitions, MPI_Count count, MPI_Datatype type, int source,
                   int tag, MPI_Comm comm, MPI_Info info, MPI_Request *request)
{
    int rc = begin(comm, "MPI_Precv_init");
    return rc ? rc : GUARDED(PMPI_Precv_init(buf, partitions, count, type, source, tag,
                                             ftrma_comm(comm), info, request));
}

int ftrma_partitioned_help(void)
{
    static enum { IDLE, BEGUN, DONE } state;
    static MPI_Request requests[2];
    static char sent, received;
    int rc = MPI_SUCCESS, arrived = 0;
    if (state == DONE || !LOAD(&ftrma_ctl->partitioned))
        return 0;
    if (state == IDLE) {
        state = BEGUN;
        rc = PMPI_Psend_init(&sent, 1, 1, MPI_BYTE, 0, 0, MPI_COMM_SELF, MPI_INFO_NULL,
                             &requests[0]);
        if (!rc)
            rc = PMPI_Precv_init(&received, 1, 1, MPI_BYTE, 0, 0, MPI_COMM_SELF, MPI_INFO_NULL,
                                 &requests[1]);
        if (!rc)
            rc = PMPI_Startall(2, requests);
        if (!rc)
            rc = PMPI_Pready(0, requests[0]);
    }
    if (!rc)
        rc = PMPI_Testall(2, requests, &arrived, MPI_STATUSES_IGNORE);
    if (rc || arrived)
        state = DONE;
    return 1;
}
