/* The state of an origin, which its files share: its targets, nodes and waits (origin.c). */
#ifndef FTRMA_ORIGIN_STATE_H
#define FTRMA_ORIGIN_STATE_H

#include "engine.h"
#include "internal.h"

#define FTRMA_TOKEN (1ull << 63) /* this bit distinguishes tokens from numbers */

/* Requests with a number that are not acknowledged, in the order of their numbers. Each is a struct
   ftrma_wire_head and its payload, at a multiple of 8. */
struct ftrma_retransmit {
    char *data;
    size_t from, to, room;
};

struct ftrma_origin_target {
    uint32_t node, generation;
    uint64_t number; /* of the last request to the target */
    struct ftrma_retransmit kept;
    uint64_t resends; /* number of RESENDs for it over this connection of its node */
    int refused;      /* requests would be dropped, and wait for RELEASE */
    int asked;        /* an atomic or a lock is under way; no request follows it */
    int answered;     /* its answer has come and was not taken yet */
    int flushing;     /* a flush waits for all acknowledgements */
    struct ftrma_wire_answer answer;
};

/* The only request with a token; a call waits for its reply. */
struct ftrma_origin_query {
    int active, done;
    uint32_t node;
    struct ftrma_wire_head head;
    const void *payload;
    void *data; /* room for the bytes that come */
    size_t bytes;
    uint64_t told;
};

struct ftrma_origin_node {
    struct ftrma_connection *connection; /* NULL: not connected */
    uint64_t next_ns;                    /* when to try to connect again */
    unsigned tries;
};

struct ftrma_origin {
    struct ftrma_engine *engine;
    int alarm; /* an eventfd */
    ftrma_wire_connect *connect;
    ftrma_wire_acked *acked;
    ftrma_wire_waits *waits;
    void *arg;
    uint32_t ntargets, nnodes, roles_number;
    int stale, timeout_ms;
    uint64_t token, damaged; /* damaged: replies that were changed on their way */
    struct ftrma_origin_query query;
    struct ftrma_origin_target *targets;
    struct ftrma_origin_node *nodes;
    char reason[256]; /* "": nothing was refused */
};

#endif
