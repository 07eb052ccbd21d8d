/* Error handlers of the program (errhandler.c). */
#ifndef FTRMA_ERRHANDLER_H
#define FTRMA_ERRHANDLER_H

#include <mpi.h>

/* MPI_Win_set_errhandler, with a fatal handler that ends the job and says why. */
int ftrma_win_set_errhandler(MPI_Win win, MPI_Errhandler handler);

#endif
