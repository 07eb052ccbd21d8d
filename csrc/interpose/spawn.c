/* Processes that the program starts: they are outside of the job and unprotected, and a slot that
 * has started some cannot be replayed from then on.
 *
 * The MPI library reaches processes of another launch by TCP or a network alone. On one node ftrma
 * tells it to leave TCP out (mpirun_command, ftrma/launch/mpirun.py), and there each call would
 * wait for ever, or fail without a reason.
 */
#include <stdlib.h>
#include <string.h>

#include "communicator.h"
#include "control.h"
#include "errors.h"
#include "event_clock.h"
#include "interrupt.h"
#include "killrules.h"
#include "revoke.h"

/* 1 if the library leaves TCP out. The launcher passes its --mca btl on in this way: a list of
   names, or of all names that are left out, after a ^. */
static int without_tcp(void)
{
    const char *chosen = getenv("OMPI_MCA_btl");
    if (!chosen)
        return 0;
    int but = *chosen == '^';
    for (const char *name = chosen + but; *name; name += strspn(name, ","))
        if (strcspn(name, ",") == 3 && !strncmp(name, "tcp", 3))
            return but;
        else
            name += strcspn(name, ",");
    return !but;
}

static int refused(MPI_Comm comm, const char *call)
{
    if (!ftrma_ctl || !without_tcp())
        return MPI_SUCCESS;
    int code = ftrma_error_code(MPI_ERR_SPAWN,
                                "%s: the MPI library reaches spawned processes by TCP, which a "
                                "job on one node leaves out; start it by ftrma run --mpirun "
                                "'--mca btl ^ofi'", call);
    PMPI_Comm_call_errhandler(ftrma_handle(comm), code);
    return code;
}

#define SPAWN(call, comm, made)                                                                   \
    ({                                                                                            \
        int spawn_rc = refused(comm, __func__);                                                   \
        if (!spawn_rc) {                                                                          \
            ftrma_failpoint(FTRMA_FAILPOINT_CALL);                                                \
            ftrma_foreign(__func__);                                                              \
            spawn_rc = GUARDED(call);                                                             \
            if (!spawn_rc)                                                                        \
                ftrma_register_foreign(*(made), __func__);                                        \
        }                                                                                         \
        spawn_rc;                                                                                 \
    })

int MPI_Comm_spawn(const char *command, char *argv[], int maxprocs, MPI_Info info, int root,
                   MPI_Comm comm, MPI_Comm *made, int codes[])
{
    return SPAWN(PMPI_Comm_spawn(command, argv, maxprocs, info, root, ftrma_comm(comm), made,
                                 codes),
                 comm, made);
}

int MPI_Comm_spawn_multiple(int count, char *commands[], char **argvs[], const int maxprocs[],
                            const MPI_Info infos[], int root, MPI_Comm comm, MPI_Comm *made,
                            int codes[])
{
    return SPAWN(PMPI_Comm_spawn_multiple(count, commands, argvs, maxprocs, infos, root,
                                          ftrma_comm(comm), made, codes),
                 comm, made);
}
