/* The library's communicators that a failure must revoke (revoke.c). */
#ifndef FTRMA_REVOKE_H
#define FTRMA_REVOKE_H

#include <mpi.h>
#include <stdint.h>

/* Register a communicator that the program has from now on. */
void ftrma_register_comm(MPI_Comm comm);
/* Register a communicator that no repair makes anew; maker: the call that has made it, or NULL: no
   other process is in it. */
void ftrma_register_made(MPI_Comm comm, const char *maker);
/* Note the call by which the program will get such a communicator; NULL: it exists now. */
void ftrma_foreign_later(const char *call);
const char *ftrma_foreign_maker(void); /* a call that has made a communicator that no repair makes
                                          anew; NULL: there is none */
void ftrma_unregister_comm(MPI_Comm comm);
/* Wait up to a second until other threads that wait in these communicators come back. */
void ftrma_revoke_await(void);
/* Forget all listed communicators: repair `round` makes them anew. */
void ftrma_revoke_forget(uint64_t round);
/* Set the communicator from which the slots' world is being made in a round of repair, or
   MPI_COMM_NULL again. */
void ftrma_revoke_building(MPI_Comm comm, uint64_t round);

/* Provide communicators that ftrma_revoke_dummy can revoke. Local; an MPI code. */
int ftrma_refill_dummies(void);
/* Revoke all listed communicators (0: not yet, since something must be finished first), or one that
   nobody uses. Only the watching thread calls these. */
int ftrma_revoke_all(void); /* 0: later, something must be finished first */
void ftrma_revoke_dummy(void);

#endif
