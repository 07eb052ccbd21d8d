/* The library's communicators that must be revoked at a failure, so that threads that are blocked
 * in one come back. */
#include "revoke.h"

#if defined(OPEN_MPI)
#include <mpi-ext.h>
#endif
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "alarm.h"
#include "control.h"

static MPI_Comm building = MPI_COMM_NULL; /* the communicator from which the slots' world is being
                                             made */
static uint64_t building_round;           /* the round of repair that does so */

/* Unused communicators of this process alone, which are revoked one by one (ftrma_revoke_dummy). */
#define DUMMIES 16
static MPI_Comm dummies[DUMMIES];
static int ndummies;

/* The library's communicators that the program uses, ftrma_user_world included. maker: for a
   communicator that no repair makes anew, the call that made it. */
static struct used {
    MPI_Comm comm;
    const char *maker;
} *comms;
static size_t ncomms, room;
static uint64_t swept; /* newest alarm for which the list was revoked or forgotten */
static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;

/* ---- the list ------------------------------------------------------------------------------- */

void ftrma_register_made(MPI_Comm comm, const char *maker)
{
    if (comm == MPI_COMM_NULL || comm == MPI_COMM_SELF || !ftrma_ctl)
        return;
    pthread_mutex_lock(&guard);
    if (ncomms == room) {
        size_t more = room ? 2 * room : 16;
        struct used *grown = realloc(comms, more * sizeof *grown);
        if (grown) {
            comms = grown;
            room = more;
        }
    }
    if (ncomms < room)
        comms[ncomms++] = (struct used){comm, maker};
    pthread_mutex_unlock(&guard);
}

void ftrma_register_comm(MPI_Comm comm)
{
    ftrma_register_made(comm, NULL);
}

static const char *later_maker;

void ftrma_foreign_later(const char *call)
{
    later_maker = call;
}

const char *ftrma_foreign_maker(void)
{
    pthread_mutex_lock(&guard);
    const char *maker = later_maker;
    for (size_t i = 0; i < ncomms && !maker; i++)
        maker = comms[i].maker;
    pthread_mutex_unlock(&guard);
    return maker;
}

void ftrma_unregister_comm(MPI_Comm comm)
{
    pthread_mutex_lock(&guard);
    for (size_t i = 0; i < ncomms; i++)
        if (comms[i].comm == comm) {
            comms[i] = comms[--ncomms];
            break;
        }
    pthread_mutex_unlock(&guard);
}

/* The watching thread wakes blocked threads: it revokes the listed communicators, and a dummy now
   and then as long as the repair lasts. A thread that still waits when the list is forgotten, or
   when the repair ends, would wait for ever. */
#define RETURN_NS 1000000000u
void ftrma_revoke_await(void)
{
    uint64_t end = ftrma_now_ns() + RETURN_NS;
    while (ftrma_others_inside() && LOAD(&ftrma_ctl->alarm) != FTRMA_ENDED && ftrma_now_ns() < end)
        usleep(200);
}

void ftrma_revoke_forget(uint64_t round)
{
    pthread_mutex_lock(&guard);
    ncomms = 0;
    swept = swept > round ? swept : round;
    pthread_mutex_unlock(&guard);
}

void ftrma_revoke_building(MPI_Comm comm, uint64_t round)
{
    pthread_mutex_lock(&guard);
    building = comm;
    building_round = round;
    pthread_mutex_unlock(&guard);
}

/* ---- revoking ------------------------------------------------------------------------------- */

/* Local. */
int ftrma_refill_dummies(void)
{
    int rc = MPI_SUCCESS;
    pthread_mutex_lock(&guard);
    while (!rc && ndummies < DUMMIES) {
        rc = PMPI_Comm_dup(MPI_COMM_SELF, &dummies[ndummies]);
        if (!rc)
            rc = PMPI_Comm_set_errhandler(dummies[ndummies++], MPI_ERRORS_RETURN);
    }
    pthread_mutex_unlock(&guard);
    return rc;
}

/* Open MPI 5.0 checks if a request has failed, and then goes to sleep on it. If a revocation comes
   between the two, the thread sleeps for ever. Revoking any other communicator wakes all sleepers
   once more, and they check again. The watching thread calls this while a thread stays in one
   call. */
void ftrma_revoke_dummy(void)
{
#if defined(OMPI_HAVE_MPI_EXT_FTMPI)
    pthread_mutex_lock(&guard);
    if (ndummies > 0)
        MPIX_Comm_revoke(dummies[--ndummies]);
    pthread_mutex_unlock(&guard);
#endif
}

/* Open MPI 5.0.11 can hang in MPI_Comm_create_group if its parent is revoked meanwhile, though all
   members live. So revoking waits for such a call, but no longer than the call can take when it
   does not hang. The slots' world is made by all of them, even if another round is asked for
   meanwhile; only for a death are they called back at once. */
#define MAKING_NS 500000000u
static int somebody_makes(void)
{
    static uint64_t since, what; /* used by the watching thread alone */
    int making = building != MPI_COMM_NULL && !ftrma_died_since(building_round);
    for (uint32_t p = 0; p < ftrma_ctl->nprocs; p++)
        making |= __atomic_load_n(&ftrma_ctl->proc[p].making, __ATOMIC_ACQUIRE)
                  && LOAD(&ftrma_ctl->proc[p].state) == FTRMA_ALIVE;
    if (what != LOAD(&ftrma_ctl->alarm)) {
        what = LOAD(&ftrma_ctl->alarm);
        since = ftrma_now_ns();
    }
    return making && ftrma_now_ns() - since < MAKING_NS;
}

/* Called by the watching thread only; the main thread may be blocked inside one of these. Once
   the main thread has forgotten the list for a round, there is nothing left to revoke for that
   round: a late sweep must not hit the communicators of the next attempt. */
int ftrma_revoke_all(void)
{
#if defined(OMPI_HAVE_MPI_EXT_FTMPI)
    pthread_mutex_lock(&guard);
    uint64_t alarm = LOAD(&ftrma_ctl->alarm);
    int makes = somebody_makes();
    if (makes || swept >= alarm) {
        pthread_mutex_unlock(&guard);
        return !makes;
    }
    swept = alarm;
    for (size_t i = 0; i < ncomms; i++)
        MPIX_Comm_revoke(comms[i].comm);
    if (building != MPI_COMM_NULL)
        MPIX_Comm_revoke(building);
    pthread_mutex_unlock(&guard);
#endif
    return 1;
}
