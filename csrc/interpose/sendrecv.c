/* Sendrecv without a source, as at the border of a halo: the send alone.
 *
 * Open MPI 5.0.11's MPI_Sendrecv with MPI_PROC_NULL as its source cancels a request that it has not
 * set when its send fails by a revocation, and crashes: a survivor would be lost with the neighbour
 * whose death is being repaired. Reproducer without ftrma: one rank calls MPIX_Comm_revoke() while
 * another one is in MPI_Sendrecv toward it, from MPI_PROC_NULL. This file can be removed when the
 * library sets the request.
 */
#include "communicator.h"
#include "errors.h"
#include "event_clock.h"
#include "interrupt.h"
#include "killrules.h"

/* Fill in the status of a receive from MPI_PROC_NULL. */
static int receive_nothing(MPI_Comm comm, MPI_Status *status)
{
    return PMPI_Recv(NULL, 0, MPI_BYTE, MPI_PROC_NULL, MPI_ANY_TAG, comm, status);
}

static int send_alone(const void *data, int count, MPI_Datatype type, int dest, int tag,
                      MPI_Comm comm, MPI_Status *status)
{
    int rc = PMPI_Send(data, count, type, dest, tag, comm);
    return rc ? rc : receive_nothing(comm, status);
}

int MPI_Sendrecv(const void *sendbuf, int sendcount, MPI_Datatype sendtype, int dest, int sendtag,
                 void *recvbuf, int recvcount, MPI_Datatype recvtype, int source, int recvtag,
                 MPI_Comm comm, MPI_Status *status)
{
    ftrma_failpoint(FTRMA_FAILPOINT_CALL);
    ftrma_foreign_on(comm, __func__);
    if (source == MPI_PROC_NULL && dest != MPI_PROC_NULL)
        return GUARDED(send_alone(sendbuf, sendcount, sendtype, dest, sendtag, ftrma_comm(comm),
                                  status));
    return GUARDED(PMPI_Sendrecv(sendbuf, sendcount, sendtype, dest, sendtag, recvbuf, recvcount,
                                 recvtype, source, recvtag, ftrma_comm(comm), status));
}

int MPI_Sendrecv_replace(void *buf, int count, MPI_Datatype type, int dest, int sendtag, int source,
                         int recvtag, MPI_Comm comm, MPI_Status *status)
{
    ftrma_failpoint(FTRMA_FAILPOINT_CALL);
    ftrma_foreign_on(comm, __func__);
    if (source == MPI_PROC_NULL && dest != MPI_PROC_NULL)
        return GUARDED(send_alone(buf, count, type, dest, sendtag, ftrma_comm(comm), status));
    return GUARDED(PMPI_Sendrecv_replace(buf, count, type, dest, sendtag, source, recvtag,
                                         ftrma_comm(comm), status));
}
