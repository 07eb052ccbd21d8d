/* Exchanges of bytes between all members of a communicator (exchange.c). Collective calls are
   made of them. */
#ifndef FTRMA_EXCHANGE_H
#define FTRMA_EXCHANGE_H

#include <stddef.h>

#include "communicator_state.h"

/* The call to which a transfer belongs; slots that disagree get an error. */
enum ftrma_collective {
    FTRMA_GATHER_ALL,
    FTRMA_BARRIER,
    FTRMA_BCAST,
    FTRMA_GATHER,
    FTRMA_GATHERV,
    FTRMA_SCATTER,
    FTRMA_SCATTERV,
    FTRMA_ALLGATHER,
    FTRMA_ALLGATHERV,
    FTRMA_ALLTOALL,
    FTRMA_ALLTOALLV,
    FTRMA_REDUCE,
    FTRMA_ALLREDUCE,
    FTRMA_SCAN,
    FTRMA_EXSCAN,
    FTRMA_REDUCE_SCATTER,
    FTRMA_REDUCE_SCATTER_BLOCK,
    FTRMA_COMM_MAKE,
    FTRMA_COMM_FREE
};

/* A stretch of memory. */
struct ftrma_piece {
    char *at;
    size_t bytes;
};

/* One slot's deposit in one exchange. */
struct ftrma_area {
    uint64_t collective; /* enum ftrma_collective */
    uint64_t round;      /* number of this exchange in its transfer */
    uint64_t bytes;      /* length of the slot's whole stream */
    uint64_t rounds;     /* exchanges that its stream takes */
    uint64_t pad[4];
    char data[];
};

/* One collective call as this slot sees it. Each slot has a stream of bytes, made of pieces, which
   is published chunk by chunk, one in each round; each slot takes what it wants from the others'
   streams. */
struct ftrma_transfer {
    int collective, root;           /* root: -1 where there is none */
    uint64_t detail;                /* further data that must be equal when the call is replayed */
    int agrees;                     /* all members act on its result or none does: see
                                       ftrma_agree */
    int ordered;                    /* rank 0 arrives after all others, so it goes on before them */
    int sample;                     /* the event's signature includes some of the stream's bytes */
    const struct ftrma_piece *out;  /* [nout] the own stream */
    int nout;
    size_t expected;                /* bytes of the longest stream, as far as this slot knows */
    size_t unit;                    /* chunks do not cross multiples of this; 0: they may */
    /* Takes the bytes that this slot wants from the chunks [lo, hi) of the streams. Returns an
       MPI code. */
    int (*deliver)(struct ftrma_transfer *t, size_t lo, size_t hi);
    void *user;                     /* for deliver */
    /* Filled in by ftrma_transfer_run. */
    uint64_t round, rounds, number; /* number: of the exchange */
    size_t bytes;                   /* of the own stream */
    int answered;                   /* this exchange is answered from the log */
};

/* The communicator that this thread's transfer is on. */
extern _Thread_local struct communicator *ftrma_on __attribute__((tls_model("initial-exec")));

static inline int ftrma_rank(void)
{
    return ftrma_on->me;
}

static inline int ftrma_ranks(void)
{
    return ftrma_on->spec.n;
}

/* Map the communicator's board, and find the other nodes of its members; find: map it only if it
   is there. 0 or -errno. */
int ftrma_exchange_prepare(struct communicator *on, int find);
/* Make the following transfers use this communicator. [out] *room: bytes of a chunk. Returns an MPI
   code. */
int ftrma_exchange_open(struct communicator *on, size_t *room);
/* Run all rounds of a transfer. Returns an MPI code. */
int ftrma_transfer_run(struct ftrma_transfer *t);
/* The deposit of a rank in this exchange; NULL with *rc set if the rank is in another call. Not
   for exchanges that are answered from the log. */
const struct ftrma_area *ftrma_deposit(const struct ftrma_transfer *t, int rank, int *rc);
/* Copy n bytes to their destination: from the deposit of an exchange, and then log them; or from
   the log. Returns an MPI code. */
int ftrma_learn(const struct ftrma_transfer *t, void *to, const void *from, size_t n);

/* Gather `bytes` bytes of each member at `mine`, in the order of ranks, in one exchange;
   ordered: see struct ftrma_transfer; [out] *passed: 1: nothing was gathered, since this is a
   replay on its way to the place of a checkpoint. Collective, with equal `bytes`. Returns an MPI
   code. */
int ftrma_gather_all(const void *mine, size_t bytes, void *all, int ordered, int *passed);

#endif
