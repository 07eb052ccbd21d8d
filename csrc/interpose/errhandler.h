/* Error handlers of the program (errhandler.c). */
#ifndef FTRMA_ERRHANDLER_H
#define FTRMA_ERRHANDLER_H

#include <mpi.h>

/* MPI_Win_set_errhandler, whose fatal handler ends the job in words. */
int ftrma_win_set_errhandler(MPI_Win win, MPI_Errhandler handler);

#endif
