/* The state of a communicator that is ours, in its members' shared memory and in this process.
 * These are the slots' world and all communicators that Dup, Split, Create and similar calls derive
 * from it. */
#ifndef FTRMA_COMMUNICATOR_STATE_H
#define FTRMA_COMMUNICATOR_STATE_H

#include <mpi.h>
#include <stddef.h>

#include "internal.h"

#define FTRMA_MAX_DIMS 16 /* of a Cartesian topology; one with more dimensions is the library's
                             own */

/* The identity of a communicator: equal on all members and in each execution of the program. */
struct ftrma_spec {
    uint64_t id; /* follows from its parent and the order of calls; the world's is FTRMA_WORLD_ID */
    int32_t n;   /* members */
    int32_t ndims; /* of its Cartesian topology; -1: none */
    int32_t dims[FTRMA_MAX_DIMS], periods[FTRMA_MAX_DIMS];
    int32_t slots[FTRMA_MAX_PROCS]; /* [n] the members, in order of rank */
};
#define FTRMA_WORLD_ID 1

/* The beginning of the file comm-ID; words[n] follow, then two areas for each member. Over several
   nodes each node with a member has such a file, with words and areas of all members. */
struct ftrma_board {
    struct ftrma_bell bell, bell_too; /* first: the node's agent rings both; here one is waited at */
    struct ftrma_spec spec;
    uint64_t area_bytes;
    int32_t verdict; /* FTRMA_GO_IN or FTRMA_STAY_OUT, once some member has asked (ftrma_agree) */
};

struct ftrma_word {
    uint64_t arrived; /* exchanges that the member has arrived at; only the member writes this, or,
                         for a member on another node, the agent */
    uint64_t line[7];
};

struct communicator {
    MPI_Comm handle, backing;  /* backing: MPI_COMM_NULL while there is none */
    struct ftrma_spec spec;
    int me;                    /* this slot's rank */
    int ghost;                 /* 1: all had freed it before this slot died, so it is only
                                  replayed */
    struct ftrma_board *board; /* NULL until it is needed */
    struct ftrma_word *words;
    char *areas;
    size_t board_bytes;
    uint32_t *others;          /* [nothers] other nodes with members, as targets of the wire; NULL: not
                                  known yet */
    int nothers;
    uint64_t exchanges;        /* passed in this attempt */
    uint64_t children;         /* calls so far that made communicators of it */
    uint64_t windows;          /* windows made on it so far */
    struct communicator *next; /* in the list of those that a rollback has put aside */
};

#endif
