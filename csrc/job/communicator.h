/* The program's communicators that are ours: the slots' world, and communicators derived from it by
 * Dup, Split, Create and similar calls.
 *
 * Two of the library's communicators belong to each of them. The handle contains this process alone
 * and carries everything local: attributes, name, info, error handler. For a derived communicator
 * the program has the handle, which stays through repairs. The backing communicator contains all
 * members and carries everything that is not ours (messages, nonblocking collectives, files); a
 * repair makes it anew.
 *
 * Collective calls use neither: they are exchanges on a board in shared memory (exchange.c).
 */
#ifndef FTRMA_COMMUNICATOR_H
#define FTRMA_COMMUNICATOR_H

#include <mpi.h>

#include "communicator_state.h"
#include "control.h"

extern struct communicator ftrma_world;

/* The backing communicator of the slots' world, which is MPI_COMM_WORLD for the program; each
   repair sets it, in the thread that runs the program. */
extern MPI_Comm ftrma_user_world;
/* Over several nodes a repair does not make backing communicators: making them hangs now and then,
   and most programs never send a message. This is 1 until a process asks for them; meanwhile
   ftrma_user_world has no meaning. */
extern int ftrma_backing_deferred;
/* Ask for backing communicators, and take part in the round of repair that makes them. 1: they
   exist now. */
int ftrma_reconnect(void);
/* Find the communicator that the library is called with: the backing one, or the handle. */
extern int ftrma_nderived, ftrma_nstale;
extern MPI_Comm ftrma_world_handle;
MPI_Comm ftrma_backing(MPI_Comm comm);
MPI_Comm ftrma_handle(MPI_Comm comm);

static inline MPI_Comm ftrma_comm(MPI_Comm comm)
{
    if (comm == MPI_COMM_WORLD || comm == ftrma_world_handle) {
        if (ftrma_backing_deferred && !ftrma_reconnect())
            return MPI_COMM_NULL;
        return ftrma_user_world != MPI_COMM_NULL ? ftrma_user_world : comm;
    }
    return ftrma_nderived || ftrma_nstale ? ftrma_backing(comm) : comm;
}

/* Note that the program uses a communicator in a way that no replay can repeat, unless no other
   process is in it; call: the MPI call. */
void ftrma_foreign_on(MPI_Comm comm, const char *call);
/* Register for revocation a communicator that the library has made for the program by this call. */
void ftrma_register_foreign(MPI_Comm comm, const char *call);

/* The communicator behind a handle of the program; NULL: it is the library's own, or contains only
   this process. */
struct communicator *ftrma_communicator(MPI_Comm comm);

/* 1 if no other process is in it, so that a replay can repeat everything done with it. */
int ftrma_is_alone(MPI_Comm comm);

/* Give the slots' world its backing communicator. An MPI code. */
int ftrma_world_set(MPI_Comm backing);
/* Leave the slots' world without a backing communicator until a process asks for it. An MPI
   code. */
int ftrma_world_defer(MPI_Comm nobody);
/* Make the backing communicators of all derived ones anew. Collective over the slots, in this round
   of repair. An MPI code. */
int ftrma_derived_rebuild(uint64_t round);

/* Drop all backing communicators, since a repair has begun. */
void ftrma_derived_forget(void);

/* End an attempt: only the slots' world is left, as at the start. */
void ftrma_comms_rewind(void);
/* Free the memory of all communicators that the rollback has put aside: the next attempt begins,
   and no call of the last one uses a derived communicator any more. */
void ftrma_comms_free_retired(void);

/* Save, for a replay, how far this slot has come with each communicator: [out] words, as many as
   there is room for; returns how many there are. The second function loads them: 0, or -1 if there
   are other communicators now. */
uint64_t ftrma_comms_save(uint64_t *counts, uint64_t room);
int ftrma_comms_load(const uint64_t *counts, uint64_t words);

/* Find a derived communicator by its handle (NULL: there is none); add one to the list (an MPI
   code); remove one from the list, and free its memory. */
struct communicator *ftrma_derived(MPI_Comm handle);
int ftrma_derived_list(struct communicator *c);
void ftrma_derived_discard(struct communicator *c);
/* Make a handle without attributes; copy the error handler from one to the other. MPI codes. */
int ftrma_make_handle(MPI_Comm *handle);
int ftrma_copy_errhandler(MPI_Comm from, MPI_Comm to);
/* Make the backing communicator, unless a repair has made it meanwhile. Collective over the
   members. An MPI code. */
int ftrma_make_backing(struct communicator *c);
/* Agree whether the members let the library make their backing communicator: the first proposal
   counts, for all members on one node. The library waits for ever for a member that does not come,
   so either all go in or none. */
#define FTRMA_GO_IN 1
#define FTRMA_STAY_OUT 2
int ftrma_agree(struct communicator *c, int proposal);
static inline int ftrma_can_agree(const struct communicator *c)
{
    return c->board && c->others && !c->nothers;
}
/* Take the backing communicator that a repair made before this slot came to the call; or
   MPI_COMM_NULL. */
MPI_Comm ftrma_take_pending(uint64_t id);
int ftrma_is_member(const struct ftrma_spec *spec, int slot);
/* Forget a handle of an earlier attempt, if it is one: the program has freed it. */
void ftrma_forget_stale(MPI_Comm comm);

#endif
