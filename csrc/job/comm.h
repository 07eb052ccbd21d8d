/* The program's communicators that are ours: the slots' world, and what is derived from it by Dup,
 * Split, Create and their kin.
 *
 * Two of the library's communicators belong to each.  The face is of this process alone and carries
 * what is local: attributes, name, info, error handler; for a derived one it is the handle that the
 * program has, and it stays through repairs.  The live one has all members and carries what is not
 * ours (messages, nonblocking collectives, files); a repair makes it anew.
 *
 * Collective calls use neither: they are exchanges on a board in shared memory (exchange.c).
 */
#ifndef FTRMA_COMM_H
#define FTRMA_COMM_H

#include <mpi.h>
#include <stddef.h>

#include "control.h"
#include "wire.h"

#define FTRMA_MAX_DIMS 16 /* of a Cartesian topology; one with more is the library's own */

/* What makes a communicator the same on all members and in each execution of the program. */
struct ftrma_spec {
    uint64_t id; /* follows from its parent and the order of calls; the world's is FTRMA_WORLD_ID */
    int32_t n;   /* members */
    int32_t ndims; /* of its Cartesian topology; -1: none */
    int32_t dims[FTRMA_MAX_DIMS], periods[FTRMA_MAX_DIMS];
    int32_t slots[FTRMA_MAX_PROCS]; /* [n] the members, in order of rank */
};
#define FTRMA_WORLD_ID 1

/* The file comm-ID: this, words[n], then two areas for each member.  Over several nodes each that has a
   member has such a file, of all members. */
struct ftrma_board {
    struct ftrma_bell bell, bell_too; /* first: the node's agent rings both; here one is waited at */
    struct ftrma_spec spec;
    uint64_t area_bytes;
    int32_t verdict; /* FTRMA_GO_IN or FTRMA_STAY_OUT, once some member has asked (ftrma_agree) */
};

struct ftrma_word {
    uint64_t arrived; /* exchanges that the member has arrived at; it alone writes this, or, of one on
                         another node, the agent */
    uint64_t line[7];
};

struct communicator {
    MPI_Comm face, live;       /* live: MPI_COMM_NULL while there is none */
    struct ftrma_spec spec;
    int me;                    /* this slot's rank */
    int ghost;                 /* freed by all before this slot died: it is only replayed */
    struct ftrma_board *board; /* NULL until it is needed */
    struct ftrma_word *words;
    char *areas;
    size_t board_bytes;
    uint32_t *others;          /* [nothers] other nodes with members, as targets of the wire; NULL: not
                                  known yet */
    int nothers;
    uint64_t exchanges;        /* passed in this timeline */
    uint64_t children;         /* calls so far that made communicators of it */
    uint64_t windows;          /* windows made on it so far */
    struct communicator *next; /* of those that a rollback has put aside */
};

extern struct communicator ftrma_world;

/* What MPI_COMM_WORLD means to the user's program; written by each repair, in the thread that runs the
   program. */
extern MPI_Comm ftrma_user_world;
/* Over several nodes a repair does not make the library's communicators anew: that hangs now and then, and
   most programs never send a message.  As long as nobody has asked for them, this is 1, and
   ftrma_user_world stands for nothing. */
extern int ftrma_lapsed;
/* Ask for them: a round of repair that makes them.  1: they are there. */
int ftrma_reconnect(void);
/* The processes of the slots, and of a communicator's members. Local. MPI codes. */
int ftrma_world_group(MPI_Group *group);
int ftrma_group_of(const struct communicator *c, MPI_Group *group);
/* What the library knows the program's communicators by. */
extern int ftrma_nderived, ftrma_nstale;
extern MPI_Comm ftrma_world_face;
MPI_Comm ftrma_live(MPI_Comm comm);
MPI_Comm ftrma_face(MPI_Comm comm);

static inline MPI_Comm ftrma_comm(MPI_Comm comm)
{
    if (comm == MPI_COMM_WORLD || comm == ftrma_world_face) {
        if (ftrma_lapsed && !ftrma_reconnect())
            return MPI_COMM_NULL;
        return ftrma_user_world != MPI_COMM_NULL ? ftrma_user_world : comm;
    }
    return ftrma_nderived || ftrma_nstale ? ftrma_live(comm) : comm;
}

/* The program uses a communicator in a way that no replay can repeat, unless nobody else is in it. */
void ftrma_foreign_on(MPI_Comm comm, const char *call);
/* Register one for revocation that the program has from the library itself, by this call. */
void ftrma_register_foreign(MPI_Comm comm, const char *call);
/* comm.c: slot of a group's rank, whatever process held it when the group was made; or
   MPI_UNDEFINED. */
int ftrma_slot_in(MPI_Group group, int rank);

/* The communicator behind a handle of the program; NULL: it is the library's own, or of this process
   alone. */
struct communicator *ftrma_communicator(MPI_Comm comm);

/* Nobody else is in it, so that what is done with it can be done again. */
int ftrma_is_alone(MPI_Comm comm);

/* board.c: map the board, making it if this is the first member here. 0 or -errno; -EPROTO: it is of
   other members; -EEXIST: on the wire it has the name of another one; -EMFILE: there are too many. */
int ftrma_board_open(struct communicator *c);
/* Map the board if it is there: 0, or -ENOENT. */
int ftrma_board_find(struct communicator *c);
void ftrma_board_close(struct communicator *c);
void ftrma_board_remove(uint64_t id);
/* Boards that are mapped from now on can be reached from other nodes: this ledger says where they are,
   for this target. */
void ftrma_boards_reach(struct ftrma_ledger *ledger, uint32_t target);
/* The window that a board is on the wire. */
uint32_t ftrma_board_window(uint64_t id);
size_t ftrma_area_bytes(const struct ftrma_spec *spec);
/* What the board of this id says of it: 0 or -errno. */
int ftrma_spec_find(uint64_t id, struct ftrma_spec *spec);
/* All derived communicators that are there, in an order that all slots share: [out] *list[*n], to be
   freed by the caller. 0 or -errno. */
int ftrma_specs(struct ftrma_spec **list, size_t *n);

/* communicator.c: the slots' world has these processes from now on. An MPI code. */
int ftrma_world_set(MPI_Comm live);
/* The same without: the library's part has lapsed. */
int ftrma_world_lapse(MPI_Comm nobody);
/* Make the live ones of all derived communicators anew. Collective over the slots, in this round of
   repair. An MPI code. */
int ftrma_derived_rebuild(uint64_t round);

/* There are no live ones any more: a repair has begun. */
void ftrma_derived_forget(void);

/* A timeline ends: there is the slots' world alone, as at the start.  And when the next one begins: free
   the memory of the others here, where no call is on one of them any more. */
void ftrma_comms_rewind(void);
void ftrma_comms_bury(void);

/* For a replay: words that tell how far this slot has come with each communicator; [out] as many as
   there is room for, returns how many there are. And back: 0, or -1: there are others now. */
uint64_t ftrma_comms_save(uint64_t *counts, uint64_t room);
int ftrma_comms_load(const uint64_t *counts, uint64_t words);

/* A derived communicator by its handle; NULL: it is none. Into the list of them: an MPI code; and out
   of it, with its memory. */
struct communicator *ftrma_derived(MPI_Comm face);
int ftrma_derived_list(struct communicator *c);
void ftrma_derived_discard(struct communicator *c);
/* A face without attributes; and the error handler of another. MPI codes. */
int ftrma_fresh_face(MPI_Comm *face);
int ftrma_inherit(MPI_Comm from, MPI_Comm to);
/* Have the live one, made now or in a repair meanwhile. Collective over the members. An MPI code. */
int ftrma_enliven(struct communicator *c);
/* Whether the members go into the library to make their part of it.  It waits for ever for a member that
   does not come, so they all do or none: the first proposal holds.  Among those of one node. */
#define FTRMA_GO_IN 1
#define FTRMA_STAY_OUT 2
int ftrma_agree(struct communicator *c, int proposal);
static inline int ftrma_can_agree(const struct communicator *c)
{
    return c->board && c->others && !c->nothers;
}
/* What a repair made before this slot came to it; or MPI_COMM_NULL. */
MPI_Comm ftrma_take_pending(uint64_t id);
int ftrma_is_member(const struct ftrma_spec *spec, int slot);
/* The program has freed this handle of an earlier attempt, if it is one. */
void ftrma_forget_stale(MPI_Comm comm);

#endif
