/* Communicators: the user's world, and the list of all that is derived from it.
 *
 * The user's program never uses the MPI library's MPI_COMM_WORLD, which also contains checksum
 * ranks and spares: every wrapper puts ftrma_user_world in its place.  After a failure the world
 * of the slots is built anew from its holders by MPI_Comm_create_group, which involves nobody
 * else and needs no agreement with the dead: 2 ms with Open MPI 5.0.11.  Its parent is a duplicate
 * of the MPI world that carries no other traffic; should a second process die while it is in use,
 * the watching thread revokes it, everybody comes back with an error, and the next round takes the
 * next duplicate.  They are made at the start because making communicators under failures is
 * where Open MPI is weakest (Shrink crashed 4 of 10 survivors in tight loops).
 */
#define _GNU_SOURCE
#include <mpi.h>
#if defined(OPEN_MPI)
#include <mpi-ext.h>
#endif
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "internal.h"

MPI_Comm ftrma_user_world = MPI_COMM_NULL;
int ftrma_code_unwind;

static MPI_Comm parents[FTRMA_PARENTS];
static int building = -1; /* index of the parent in use, -1 when none is */

static MPI_Comm *comms; /* live communicators of the user's program, ftrma_user_world included */
static size_t ncomms, room;
static uint64_t swept; /* newest alarm for which the list was revoked or forgotten */
static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;

int ftrma_mpi_world(int *rank, int *size, int *on_node)
{
    MPI_Comm node;
    int rc = PMPI_Comm_rank(MPI_COMM_WORLD, rank);
    if (!rc)
        rc = PMPI_Comm_size(MPI_COMM_WORLD, size);
    if (!rc)
        rc = PMPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
    if (!rc)
        rc = PMPI_Comm_size(node, on_node);
    return rc ? rc : PMPI_Comm_free(&node);
}

int ftrma_mpi_bcast(void *buffer, int size_bytes)
{
    return PMPI_Bcast(buffer, size_bytes, MPI_BYTE, 0, MPI_COMM_WORLD);
}

int ftrma_mpi_abort(int status)
{
    return PMPI_Abort(MPI_COMM_WORLD, status);
}

int ftrma_comm_prepare(void)
{
    int class, rc = PMPI_Add_error_class(&class);
    if (!rc)
        rc = PMPI_Add_error_code(class, &ftrma_code_unwind);
    if (!rc)
        rc = PMPI_Add_error_string(ftrma_code_unwind, "a process failed: rolling back");
    for (int i = 0; !rc && i < FTRMA_PARENTS; i++) {
        rc = PMPI_Comm_dup(MPI_COMM_WORLD, &parents[i]);
        if (!rc)
            rc = PMPI_Comm_set_errhandler(parents[i], MPI_ERRORS_RETURN);
    }
    return rc;
}

int ftrma_interposed(void)
{
    /* mpi4py binds to the first MPI_Put of the global scope; is that ours? */
    return dlsym(RTLD_DEFAULT, "MPI_Put") == (void *)(uintptr_t)MPI_Put;
}

int ftrma_unwind_code(void)
{
    return ftrma_code_unwind;
}

void ftrma_register_comm(MPI_Comm comm)
{
    if (comm == MPI_COMM_NULL || comm == MPI_COMM_SELF || !ftrma_ctl)
        return;
    pthread_mutex_lock(&guard);
    if (ncomms == room) {
        size_t more = room ? 2 * room : 16;
        MPI_Comm *grown = realloc(comms, more * sizeof *grown);
        if (grown) {
            comms = grown;
            room = more;
        }
    }
    if (ncomms < room)
        comms[ncomms++] = comm;
    pthread_mutex_unlock(&guard);
}

void ftrma_unregister_comm(MPI_Comm comm)
{
    pthread_mutex_lock(&guard);
    for (size_t i = 0; i < ncomms; i++)
        if (comms[i] == comm) {
            comms[i] = comms[--ncomms];
            break;
        }
    pthread_mutex_unlock(&guard);
}

/* Called by the watching thread only.  The main thread may be blocked inside one of these.  Once
   the main thread has forgotten the list for a round, there is nothing left to revoke for it: a
   late sweep must not hit the communicators of the next timeline. */
void ftrma_revoke_all(void)
{
#if defined(OMPI_HAVE_MPI_EXT_FTMPI)
    pthread_mutex_lock(&guard);
    uint64_t alarm = LOAD(&ftrma_ctl->alarm);
    if (swept >= alarm) {
        pthread_mutex_unlock(&guard);
        return;
    }
    swept = alarm;
    for (size_t i = 0; i < ncomms; i++)
        MPIX_Comm_revoke(comms[i]);
    int parent = LOAD(&building);
    if (parent >= 0) {
        uint64_t next = (uint64_t)parent + 1, seen = LOAD(&ftrma_ctl->parent);
        while (seen < next && !ftrma_cas(&ftrma_ctl->parent, seen, next))
            seen = LOAD(&ftrma_ctl->parent);
        MPIX_Comm_revoke(parents[parent]);
    }
    pthread_mutex_unlock(&guard);
#endif
}

static int make_world(MPI_Comm parent, MPI_Comm *world)
{
    MPI_Group all, slots;
    int rc = PMPI_Comm_group(parent, &all);
    if (rc)
        return rc;
    rc = PMPI_Group_incl(all, (int)ftrma_ctl->nslots, ftrma_roles(ftrma_ctl)->slot_proc, &slots);
    PMPI_Group_free(&all);
    if (rc)
        return rc;
    rc = PMPI_Comm_create_group(parent, slots, 0, world);
    PMPI_Group_free(&slots);
    return rc ? rc : PMPI_Comm_set_errhandler(*world, MPI_ERRORS_RETURN);
}

int ftrma_comm_build(uint64_t parent)
{
    MPI_Comm world = MPI_COMM_NULL;
    if (parent >= FTRMA_PARENTS)
        return MPI_ERR_OTHER;
    STORE(&building, (int)parent);
    if (LOAD(&ftrma_ctl->alarm) != LOAD(&ftrma_ctl->plan_round)) {
        STORE(&building, -1);
        return FTRMA_ALARM;
    }
    ftrma_enter_call();
    int rc = make_world(parents[parent], &world);
    ftrma_leave_call();
    STORE(&building, -1);
    if (rc)
        return LOAD(&ftrma_ctl->alarm) != LOAD(&ftrma_ctl->plan_round) ? FTRMA_ALARM : rc;
    ftrma_register_comm(world);
    ftrma_user_world = world;
    return 0;
}

void ftrma_comm_forget(uint64_t round)
{
    /* The communicators themselves are left to the library: freeing a revoked one is collective
       in disguise.  A program leaks a few kilobytes per failure. */
    pthread_mutex_lock(&guard);
    ncomms = 0;
    swept = swept > round ? swept : round;
    pthread_mutex_unlock(&guard);
    ftrma_user_world = MPI_COMM_NULL;
}

/* The program gives up: everybody ends with its status, in an orderly way if a supervisor is
   there to see to it (it reads the request within milliseconds). */
int MPI_Abort(MPI_Comm comm, int status)
{
    if (!ftrma_ctl)
        return PMPI_Abort(comm, status);
    if (ftrma_pending())
        return ftrma_code_unwind;
    if (ftrma_claim_error())
        STORE(&ftrma_ctl->exit_status, status);
    STORE(&ftrma_ctl->request, FTRMA_ABORT);
    for (int waited = 0; waited < 100; waited++)
        usleep(100000); /* ended by the supervisor */
    return PMPI_Abort(MPI_COMM_WORLD, status);
}
