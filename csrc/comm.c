/* The slots' world: building it, and the list of all communicators that a failure must revoke.
 *
 * The user's program never uses the MPI library's MPI_COMM_WORLD, which also contains checksum
 * ranks and spares: every wrapper puts ftrma_user_world in its place.  After a failure the world
 * of the slots is built anew: all the living shrink a duplicate of the MPI world that carries no
 * other traffic, and the slots' holders take their group from the result (2 ms with Open MPI
 * 5.0.11).  Taking the group from the duplicate itself would spare the others the call, but fails
 * with MPI_ERR_PROC_FAILED as soon as the library has noticed the death.  Should another process
 * die meanwhile, the watching thread revokes what is being used, everybody comes back with an
 * error, and the next round shrinks the same duplicate again.
 *
 * A job over several nodes is never repaired, so there nothing is shrunk, ever.
 */
#define _GNU_SOURCE
#include <mpi.h>
#if defined(OPEN_MPI)
#include <mpi-ext.h>
#endif
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "comm.h"
#include "types.h"
#include "window.h"

MPI_Comm ftrma_user_world = MPI_COMM_NULL;
int ftrma_code_unwind;
int ftrma_finalized;

static MPI_Comm parent = MPI_COMM_NULL;   /* of all processes, dead ones too */
static MPI_Comm building = MPI_COMM_NULL; /* what the slots' world is being taken from */

/* Communicators of this process alone, to be revoked for the jolt that this gives (ftrma_jolt). */
#define JOLTS 16
static MPI_Comm jolts[JOLTS];
static int njolts;

/* The library's communicators that the program uses, ftrma_user_world included; maker: of those that
   no repair makes anew. */
static struct used {
    MPI_Comm comm;
    const char *maker;
} *comms;
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

/* Local. */
static int refill_jolts(void)
{
    int rc = MPI_SUCCESS;
    pthread_mutex_lock(&guard);
    while (!rc && njolts < JOLTS) {
        rc = PMPI_Comm_dup(MPI_COMM_SELF, &jolts[njolts]);
        if (!rc)
            rc = PMPI_Comm_set_errhandler(jolts[njolts++], MPI_ERRORS_RETURN);
    }
    pthread_mutex_unlock(&guard);
    return rc;
}

int ftrma_comm_prepare(void)
{
    ftrma_learn_types();
    int class, rc = PMPI_Add_error_class(&class);
    if (!rc)
        rc = PMPI_Add_error_code(class, &ftrma_code_unwind);
    if (!rc)
        rc = PMPI_Add_error_string(ftrma_code_unwind, "a process failed: rolling back");
    if (!rc)
        rc = PMPI_Comm_dup(MPI_COMM_WORLD, &parent);
    if (!rc)
        rc = PMPI_Comm_set_errhandler(parent, MPI_ERRORS_RETURN);
    return rc ? rc : refill_jolts();
}

uint64_t ftrma_comm_parent(void)
{
    return (uint64_t)(uintptr_t)parent;
}

int ftrma_has_ulfm(void)
{
#if defined(OMPI_HAVE_MPI_EXT_FTMPI)
    return 1;
#else
    return 0;
#endif
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

static void use(MPI_Comm comm, const char *maker)
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
    use(comm, NULL);
}

void ftrma_register_foreign(MPI_Comm comm, const char *call)
{
    use(comm, ftrma_is_alone(comm) ? NULL : call);
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

/* The library may notice a death before the watching thread was scheduled, and reports it to some as
   an unspecific error (Open MPI 5.0: class 16, "other").  Wait a moment for the alarm before taking
   such an error for the program's own. */
int ftrma_judge(int rc)
{
    int class = MPI_ERR_UNKNOWN;
    PMPI_Error_class(rc, &class);
    unsigned patience_ms = class == MPI_ERR_OTHER || class == MPI_ERR_UNKNOWN
                                   || class == MPI_ERR_INTERN
                               ? 50
                               : 0;
#if defined(OMPI_HAVE_MPI_EXT_FTMPI)
    if (class == MPI_ERR_PROC_FAILED || class == MPI_ERR_PROC_FAILED_PENDING
        || class == MPI_ERR_REVOKED)
        patience_ms = 2000;
#endif
    /* Across nodes no alarm rings: the supervisor learns of the death and ends this process.  A
       node that vanished shows only when its connection times out. */
    if (ftrma_link >= 0)
        patience_ms *= 10;
    for (unsigned waited = 0; ftrma_ctl && waited <= patience_ms; waited++) {
        if (ftrma_pending() || ftrma_stale())
            return ftrma_code_unwind;
        if (waited < patience_ms)
            usleep(1000);
    }
    return rc;
}

/* Open MPI 5.0 looks whether a request has failed and then goes to sleep on it; a revocation between
   the two is slept through for ever.  Revoking any other communicator wakes all sleepers once more,
   and they look again.  Called by the watching thread while the main thread stays in one call. */
void ftrma_jolt(void)
{
#if defined(OMPI_HAVE_MPI_EXT_FTMPI)
    pthread_mutex_lock(&guard);
    if (njolts > 0)
        MPIX_Comm_revoke(jolts[--njolts]);
    pthread_mutex_unlock(&guard);
#endif
}

/* Open MPI 5.0.11 can hang in MPI_Comm_create_group if its parent is revoked meanwhile, though all
   members live.  So that is waited for, unless it takes longer than it could. */
#define MAKING_NS 500000000u
static int somebody_makes(void)
{
    static uint64_t since, what; /* of the watching thread alone */
    int making = 0;
    for (uint32_t p = 0; p < ftrma_ctl->nprocs; p++)
        making |= __atomic_load_n(&ftrma_ctl->proc[p].making, __ATOMIC_ACQUIRE)
                  && LOAD(&ftrma_ctl->proc[p].state) == FTRMA_ALIVE;
    if (what != LOAD(&ftrma_ctl->alarm)) {
        what = LOAD(&ftrma_ctl->alarm);
        since = ftrma_now_ns();
    }
    return making && ftrma_now_ns() - since < MAKING_NS;
}

/* Called by the watching thread only.  The main thread may be blocked inside one of these.  Once
   the main thread has forgotten the list for a round, there is nothing left to revoke for it: a
   late sweep must not hit the communicators of the next timeline. */
int ftrma_revoke_all(void)
{
#if defined(OMPI_HAVE_MPI_EXT_FTMPI)
    if (somebody_makes())
        return 0;
    pthread_mutex_lock(&guard);
    uint64_t alarm = LOAD(&ftrma_ctl->alarm);
    if (swept >= alarm) {
        pthread_mutex_unlock(&guard);
        return 1;
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

/* The dead stay in `parent`; what is left of it, in an order that all share. */
static int living(MPI_Comm *alive)
{
#if defined(OMPI_HAVE_MPI_EXT_FTMPI)
    int rc = MPIX_Comm_shrink(parent, alive);
#else
    int rc = PMPI_Comm_dup(parent, alive);
#endif
    return rc ? rc : PMPI_Comm_set_errhandler(*alive, MPI_ERRORS_RETURN);
}

static int make_world(MPI_Comm alive, MPI_Comm *world)
{
    MPI_Group all = MPI_GROUP_NULL, left = MPI_GROUP_NULL, slots = MPI_GROUP_NULL;
    int n = (int)ftrma_ctl->nslots, rc = PMPI_Comm_group(parent, &all);
    int *ranks = calloc((size_t)n, sizeof *ranks);
    if (!ranks)
        rc = MPI_ERR_NO_MEM;
    if (!rc)
        rc = PMPI_Comm_group(alive, &left);
    if (!rc)
        rc = PMPI_Group_translate_ranks(all, n, ftrma_roles(ftrma_ctl)->slot_proc, left, ranks);
    if (!rc)
        rc = PMPI_Group_incl(left, n, ranks, &slots);
    if (!rc)
        rc = PMPI_Comm_create_group(alive, slots, 0, world);
    if (!rc)
        rc = PMPI_Comm_set_errhandler(*world, MPI_ERRORS_RETURN);
    for (int i = 0; i < 3; i++) {
        MPI_Group *group = i == 0 ? &all : i == 1 ? &left : &slots;
        if (*group != MPI_GROUP_NULL)
            PMPI_Group_free(group);
    }
    free(ranks);
    return rc;
}

/* Groups of all the worlds so far: the program may hold groups of processes that are dead by now. */
#define GROUPS 256
static MPI_Group groups[GROUPS];
static int ngroups;

static void keep_group(MPI_Comm world)
{
    int at = ngroups++ % GROUPS;
    if (ngroups > GROUPS)
        PMPI_Group_free(&groups[at]);
    if (PMPI_Comm_group(world, &groups[at]))
        groups[at] = MPI_GROUP_EMPTY;
}

int ftrma_slot_in(MPI_Group group, int rank)
{
    int slot = MPI_UNDEFINED, kept = ngroups < GROUPS ? ngroups : GROUPS;
    for (int i = 0; i < kept && slot == MPI_UNDEFINED; i++)
        if (PMPI_Group_translate_ranks(group, 1, &rank, groups[i], &slot))
            slot = MPI_UNDEFINED;
    return slot;
}

static void set_building(MPI_Comm comm)
{
    pthread_mutex_lock(&guard);
    building = comm;
    pthread_mutex_unlock(&guard);
}

static int failed_meanwhile(uint64_t round)
{
    return LOAD(&ftrma_ctl->alarm) != round;
}

int ftrma_comm_build(uint64_t round)
{
    MPI_Comm world = MPI_COMM_NULL, alive = MPI_COMM_NULL;
    int index, slot = ftrma_my_role(&index) == FTRMA_ROLE_SLOT;
    ftrma_enter_call();
    int rc = MPI_SUCCESS;
    if (ftrma_link >= 0)
        alive = parent;
    else
        rc = living(&alive);
    if (!rc && slot) {
        set_building(alive);
        /* From here on the watching thread will see to it that we come back; before, it could
           have looked in vain. */
        rc = failed_meanwhile(round) ? MPI_ERR_OTHER : make_world(alive, &world);
        set_building(MPI_COMM_NULL);
    }
    if (!rc && slot) {
        ftrma_register_comm(world);
        keep_group(world);
        rc = ftrma_world_set(world);
        if (!rc && ftrma_link < 0 && LOAD(&ftrma_ctl->causal))
            rc = ftrma_derived_rebuild(round);
    }
    ftrma_leave_call();
    if (rc)
        return failed_meanwhile(round) ? FTRMA_ALARM : rc;
    refill_jolts(); /* with fewer, the next failure may take a relaunch: no error of this one */
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
    ftrma_derived_forget();
}

/* The standard attaches these to MPI_COMM_WORLD alone. */
static int is_predefined(int keyval)
{
    return keyval == MPI_TAG_UB || keyval == MPI_HOST || keyval == MPI_IO
           || keyval == MPI_WTIME_IS_GLOBAL || keyval == MPI_UNIVERSE_SIZE
           || keyval == MPI_LASTUSEDCODE || keyval == MPI_APPNUM;
}

int MPI_Comm_get_attr(MPI_Comm comm, int keyval, void *value, int *flag)
{
    return PMPI_Comm_get_attr(is_predefined(keyval) ? comm : ftrma_face(comm), keyval, value,
                              flag);
}

/* The library's own would wait for checksum ranks, spares and the dead; a protected job ends by
   the agreement of its slots instead (session.py). */
int MPI_Finalize(void)
{
    ftrma_finalized = ftrma_ctl != NULL;
    return ftrma_ctl ? MPI_SUCCESS : PMPI_Finalize();
}

/* Others may have ended already, and mpi4py no longer asks what an error means. */
int ftrma_after_finalize(void)
{
    static int told;
    int slot;
    ftrma_my_role(&slot);
    if (!__atomic_exchange_n(&told, 1, __ATOMIC_RELAXED))
        dprintf(STDERR_FILENO, "ftrma: slot %d calls MPI after MPI_Finalize: an error\n", slot);
    return ftrma_window_fail(NULL, MPI_ERR_OTHER, "a call of MPI after MPI_Finalize");
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

/* The program gives up: everybody ends with its status, in an orderly way if a supervisor is
   there to see to it (it reads the request within milliseconds).  In a job over several nodes the
   program is unwound meanwhile. */
int MPI_Abort(MPI_Comm comm, int status)
{
    if (!ftrma_ctl)
        return PMPI_Abort(comm, status);
    if (ftrma_pending() || ftrma_stale())
        return ftrma_code_unwind;
    if (ftrma_link >= 0) {
        /* mpi4py calls this with Python's lock held, which the thread that ends us needs. */
        ftrma_tell("{\"event\": \"abort\", \"status\": %d}\n", status);
        return ftrma_code_unwind;
    }
    if (ftrma_claim_error())
        STORE(&ftrma_ctl->exit_status, status);
    STORE(&ftrma_ctl->request, FTRMA_ABORT);
    for (int waited = 0; waited < 100; waited++)
        usleep(100000); /* ended by the supervisor */
    return PMPI_Abort(MPI_COMM_WORLD, status);
}
