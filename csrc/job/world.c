/* The slots' world: building it.
 *
 * The user's program never uses the MPI library's MPI_COMM_WORLD, which also contains checksum
 * ranks and spares: every wrapper puts ftrma_user_world in its place. After a failure the world of
 * the slots is built anew: all living processes shrink a duplicate of the MPI world that carries no
 * other traffic, and the slots' holders make the world from their group of the result (2 ms with
 * Open MPI 5.0.11). Making it from the duplicate itself would spare the other processes the call,
 * but fails with MPI_ERR_PROC_FAILED as soon as the library has noticed the death. The calls are
 * collective, and nobody can be called back from a shrink, so all living processes begin them
 * (ftrma_meet) although another round may have been asked for meanwhile. If another process dies,
 * the watching thread revokes the communicator in use, all come back with an error, and the next
 * round shrinks the same duplicate again.
 */
#include <mpi.h>
#if defined(OPEN_MPI)
#include <mpi-ext.h>
#endif
#include <stdlib.h>

#include "alarm.h"
#include "communicator.h"
#include "control.h"
#include "errors.h"
#include "revoke.h"
#include "types.h"
#include "world.h"

static MPI_Comm parent = MPI_COMM_NULL; /* the duplicate of the MPI world: all processes, even dead
                                           ones */
static MPI_Comm nobody = MPI_COMM_NULL; /* a communicator of this process alone, in place of a
                                           backing that is deferred */

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

int ftrma_comm_prepare(void)
{
    ftrma_learn_types();
    int rc = ftrma_unwind_prepare();
    if (!rc)
        rc = PMPI_Comm_dup(MPI_COMM_WORLD, &parent);
    if (!rc)
        rc = PMPI_Comm_set_errhandler(parent, MPI_ERRORS_RETURN);
    if (!rc)
        rc = PMPI_Comm_dup(MPI_COMM_SELF, &nobody);
    return rc ? rc : ftrma_refill_dummies();
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

/* Make a communicator of the living processes, in an order that all share. The dead stay in
   `parent`. */
static int living(MPI_Comm *alive)
{
#if defined(OMPI_HAVE_MPI_EXT_FTMPI)
    int rc = MPIX_Comm_shrink(parent, alive);
#else
    int rc = PMPI_Comm_dup(parent, alive);
#endif
    return rc ? rc : PMPI_Comm_set_errhandler(*alive, MPI_ERRORS_RETURN);
}

int ftrma_world_group(MPI_Group *group)
{
    MPI_Group all;
    int rc = PMPI_Comm_group(parent, &all);
    if (rc)
        return rc;
    rc = PMPI_Group_incl(all, (int)ftrma_ctl->nslots, ftrma_roles(ftrma_ctl)->slot_proc, group);
    PMPI_Group_free(&all);
    return rc;
}

int ftrma_group_of(const struct communicator *c, MPI_Group *group)
{
    MPI_Group world;
    int rc = ftrma_world_group(&world);
    if (rc)
        return rc;
    rc = PMPI_Group_incl(world, c->spec.n, c->spec.slots, group);
    PMPI_Group_free(&world);
    return rc;
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

/* The groups of all worlds so far. They are kept since the program may hold groups of processes
   that are dead by now. */
#define GROUPS 256
static MPI_Group groups[GROUPS];
static int ngroups;

static void keep_group(void)
{
    int at = ngroups++ % GROUPS;
    if (ngroups > GROUPS)
        PMPI_Group_free(&groups[at]);
    if (ftrma_world_group(&groups[at]))
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

static int failed_meanwhile(uint64_t round)
{
    return LOAD(&ftrma_ctl->alarm) != round;
}

int ftrma_comm_defer(void)
{
    int index;
    if (ftrma_my_role(&index) != FTRMA_ROLE_SLOT)
        return 0;
    keep_group();
    return ftrma_world_defer(nobody);
}

int ftrma_comm_build(uint64_t round)
{
    MPI_Comm world = MPI_COMM_NULL, alive = MPI_COMM_NULL;
    int index, slot = ftrma_my_role(&index) == FTRMA_ROLE_SLOT;
    ftrma_enter_call();
    int rc = MPI_SUCCESS;
    if (ftrma_link >= 0 && !round)
        alive = parent; /* nobody has died */
    else
        rc = living(&alive);
    if (!rc && slot) {
        ftrma_revoke_building(alive, round);
        /* From here on the watching thread ends a call that is blocked here. It cannot do so for a
           death that it noticed before, so check for one now. */
        rc = ftrma_died_since(round) ? MPI_ERR_OTHER : make_world(alive, &world);
        ftrma_revoke_building(MPI_COMM_NULL, round);
    }
    if (!rc && slot) {
        ftrma_register_comm(world);
        keep_group();
        rc = ftrma_world_set(world);
        if (!rc && LOAD(&ftrma_ctl->causal))
            rc = ftrma_derived_rebuild(round);
    }
    ftrma_leave_call();
    if (rc)
        return failed_meanwhile(round) ? FTRMA_ALARM : rc;
    ftrma_refill_dummies(); /* an error here does not concern this repair */
    return 0;
}

void ftrma_comm_forget(uint64_t round)
{
    ftrma_revoke_await();
    /* The communicators themselves are not freed: freeing a revoked one is a collective call in the
       library. So a program leaks a few kilobytes per failure. */
    ftrma_revoke_forget(round);
    ftrma_user_world = MPI_COMM_NULL;
    ftrma_derived_forget();
}
