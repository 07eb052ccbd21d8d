/* Accumulates and atomics that another node's agent computes (faratomic.c). */
#ifndef FTRMA_FARATOMIC_H
#define FTRMA_FARATOMIC_H

#include "window.h"

/* Whether the agent can do this to elements of a type that lie there. */
int ftrma_far_can(const struct reach *r, int kind, MPI_Op op, MPI_Datatype type);
/* Have it done, and log what it has changed; [out] result: what was there before, where it is not
   NULL.  what: of the event; kind: ACC, FOP or CAS.  Returns an MPI code. */
int ftrma_far_atomic(const struct reach *r, int what, int kind, MPI_Op op, MPI_Datatype type,
                     const void *from, const void *compare, void *result);

#endif
