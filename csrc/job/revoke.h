/* The library's communicators that a failure must revoke (revoke.c). */
#ifndef FTRMA_REVOKE_H
#define FTRMA_REVOKE_H

#include <mpi.h>
#include <stdint.h>

/* The program has this one from now on. */
void ftrma_register_comm(MPI_Comm comm);
/* The same for one that no repair makes anew, made by this call; NULL: nobody else is in it. */
void ftrma_register_made(MPI_Comm comm, const char *maker);
/* The same for one that the program gets later; NULL: there is none any more. */
void ftrma_foreign_later(const char *call);
const char *ftrma_foreign_maker(void); /* the call that has made some such; NULL: there is none */
void ftrma_unregister_comm(MPI_Comm comm);
/* Other threads that wait in one of these have come back, or do not within a second. */
void ftrma_revoke_await(void);
/* Repair `round` makes all that are listed anew. */
void ftrma_revoke_forget(uint64_t round);
/* What the slots' world is being taken from, or MPI_COMM_NULL again. */
void ftrma_revoke_building(MPI_Comm comm);

/* Have communicators at hand for ftrma_jolt. Local; an MPI code. */
int ftrma_refill_jolts(void);
/* Both are called by the watching thread alone. */
int ftrma_revoke_all(void); /* 0: later, something must be finished first */
void ftrma_jolt(void);

#endif
