/* The program's Init, before which MPI has been initialized already; its Finalize and its Abort. */
#include <mpi.h>
#include <unistd.h>

#include "alarm.h"
#include "attempt.h"
#include "control.h"
#include "errors.h"
#include "leave.h"

int MPI_Init(int *argc, char ***argv)
{
    if (!ftrma_ctl)
        return PMPI_Init(argc, argv);
    return ftrma_finalized ? ftrma_after_finalize() : MPI_SUCCESS;
}

int MPI_Init_thread(int *argc, char ***argv, int required, int *provided)
{
    if (!ftrma_ctl)
        return PMPI_Init_thread(argc, argv, required, provided);
    return ftrma_finalized ? ftrma_after_finalize() : PMPI_Query_thread(provided);
}

/* The library's own Finalize would wait for checksum ranks, spares and the dead; a protected job
   ends by the agreement of its slots instead (ftrma/program/session.py). */
int MPI_Finalize(void)
{
    ftrma_finalized = ftrma_ctl != NULL;
    return ftrma_ctl ? MPI_SUCCESS : PMPI_Finalize();
}

int MPI_Finalized(int *flag)
{
    int rc = PMPI_Finalized(flag);
    *flag |= ftrma_finalized;
    return rc;
}

int ftrma_mpi_finalize(void)
{
    return PMPI_Finalize();
}

int ftrma_mpi_abort(int status)
{
    return PMPI_Abort(MPI_COMM_WORLD, status);
}

/* The program gives up: all processes end with its status, in an orderly way if there is a
   supervisor (it reads the request within milliseconds). In a job over several nodes the program is
   unwound meanwhile. */
int MPI_Abort(MPI_Comm comm, int status)
{
    if (!ftrma_ctl)
        return PMPI_Abort(comm, status);
    if (ftrma_pending() || ftrma_stale())
        return ftrma_code_unwind;
    ftrma_note_abort(status);
    if (ftrma_link >= 0) {
        /* mpi4py calls this with Python's lock held, which the thread that ends this process
           needs. */
        ftrma_tell("{\"event\": \"abort\", \"status\": %d, \"program\": 1}\n", status);
        return ftrma_code_unwind;
    }
    int32_t none = 0;
    if (ftrma_claim_error()) /* otherwise another process has claimed the error, and may have given
                                a status */
        STORE(&ftrma_ctl->exit_status, status);
    else
        __atomic_compare_exchange_n(&ftrma_ctl->exit_status, &none, status, 0, __ATOMIC_SEQ_CST,
                                    __ATOMIC_SEQ_CST);
    STORE(&ftrma_ctl->request, FTRMA_ABORT);
    for (int waited = 0; waited < 100; waited++)
        usleep(100000); /* the supervisor ends this process */
    return PMPI_Abort(MPI_COMM_WORLD, status);
}
