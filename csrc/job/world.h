/* The slots' world, as the library has it (world.c). */
#ifndef FTRMA_WORLD_H
#define FTRMA_WORLD_H

#include <mpi.h>

#include "communicator_state.h"

/* Make the group of the slots' processes, or of a communicator's members. Local. MPI codes. */
int ftrma_world_group(MPI_Group *group);
int ftrma_group_of(const struct communicator *c, MPI_Group *group);
/* The slot of a group's rank, whatever process held it when the group was made; or
   MPI_UNDEFINED. */
int ftrma_slot_in(MPI_Group group, int rank);

#endif
