/* Accumulates and atomics that another node's agent computes (faratomic.c). */
#ifndef FTRMA_FARATOMIC_H
#define FTRMA_FARATOMIC_H

#include "window.h"

/* 1 if the agent can apply the operation to elements of this type at this place. */
int ftrma_far_can(const struct reach *r, int kind, MPI_Op op, MPI_Datatype type);
/* Let the agent apply the operation, and log the change; [out] result: the old value, if it is not
   NULL. what: kind of event; kind: ACC, FOP or CAS. Returns an MPI code. */
int ftrma_far_atomic(const struct reach *r, int what, int kind, MPI_Op op, MPI_Datatype type,
                     const void *from, const void *compare, void *result);

#endif
