/* The part of accumulate.c that atomic.c uses. */
#ifndef FTRMA_ACCUMULATE_H
#define FTRMA_ACCUMULATE_H

#include <mpi.h>

#include "window.h"

/* Refuse an operation that is not defined for `element`. An MPI code; the error names `call`. */
int ftrma_check_op(struct window *w, const char *call, MPI_Op op, MPI_Datatype element, int fetch);

/* Accumulate, and put the old value into `result` if `fetch` is set. An MPI code. */
int ftrma_accumulate(struct window *w, const char *call, const void *origin, int count,
                     MPI_Datatype type, int fetch, void *result, int result_count,
                     MPI_Datatype result_type, int target, MPI_Aint disp, int target_count,
                     MPI_Datatype target_type, MPI_Op op);

#endif
