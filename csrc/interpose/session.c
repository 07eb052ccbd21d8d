/* Sessions: the process sets of the launcher also hold checksum ranks and spares; the program sees
 * the slots in them.  "mpi://WORLD" has them in the order of the slots. */
#include <stdio.h>
#include <stdlib.h>

#include "communicator.h"
#include "world.h"

/* Reduce a group to its slots, in their order; the new group is made from the old one, so that
   it stays a group of its session. */
static int only_slots(MPI_Group *group)
{
    MPI_Group slots, kept;
    int n, found = 0, rc = ftrma_world_group(&slots);
    if (rc)
        return rc;
    PMPI_Group_size(slots, &n);
    int *all = malloc((size_t)n * sizeof *all), *ranks = malloc((size_t)n * sizeof *ranks);
    for (int s = 0; all && s < n; s++)
        all[s] = s;
    rc = all && ranks ? PMPI_Group_translate_ranks(slots, n, all, *group, ranks) : MPI_ERR_NO_MEM;
    for (int s = 0; s < n && !rc; s++)
        if (ranks[s] != MPI_UNDEFINED)
            ranks[found++] = ranks[s];
    if (!rc)
        rc = PMPI_Group_incl(*group, found, ranks, &kept);
    if (!rc) {
        PMPI_Group_free(group);
        *group = kept;
    }
    PMPI_Group_free(&slots);
    free(all);
    free(ranks);
    return rc;
}

int MPI_Group_from_session_pset(MPI_Session session, const char *pset, MPI_Group *group)
{
    int rc = PMPI_Group_from_session_pset(session, pset, group);
    return rc || ftrma_user_world == MPI_COMM_NULL ? rc : only_slots(group);
}

int MPI_Session_get_pset_info(MPI_Session session, const char *pset, MPI_Info *info)
{
    MPI_Group group;
    char size[16];
    int n, rc = PMPI_Session_get_pset_info(session, pset, info);
    if (rc || ftrma_user_world == MPI_COMM_NULL
        || MPI_Group_from_session_pset(session, pset, &group))
        return rc;
    PMPI_Group_size(group, &n);
    snprintf(size, sizeof size, "%d", n);
    PMPI_Group_free(&group);
    return PMPI_Info_set(*info, "mpi_size", size);
}
