/* What the files of an origin have in common: what it has sent, and to whom (origin.c). */
#ifndef FTRMA_ORIGIN_STATE_H
#define FTRMA_ORIGIN_STATE_H

#include "engine.h"
#include "internal.h"

#define FTRMA_TOKEN (1ull << 63) /* of requests without a number, which no number reaches */

/* Requests with a number that are not acknowledged, in the order of their numbers: struct
   ftrma_wire_head and payload, each from a multiple of 8 on. */
struct ftrma_retransmit {
    char *data;
    size_t from, to, room;
};

struct ftrma_origin_target {
    uint32_t node, generation;
    uint64_t number; /* the last that was given */
    struct ftrma_retransmit kept;
    uint64_t resends; /* RESENDs to it on this connection of its node */
    int refused;    /* since the last: what follows would be dropped; it is sent when it is live */
    int asked;    /* the last one that was sent has an answer, and nothing follows it */
    int answered; /* and it is here, not taken yet */
    int flushing; /* somebody waits for all of it to be acknowledged */
    struct ftrma_wire_answer answer;
};

/* The one request without a number that is waited for. */
struct ftrma_origin_query {
    int active, done;
    uint32_t node;
    struct ftrma_wire_head head;
    const void *payload;
    void *data; /* where what comes goes to */
    size_t bytes;
    uint64_t told;
};

struct ftrma_origin_node {
    struct ftrma_connection *connection; /* NULL: not connected */
    uint64_t next_ns;      /* when to try again */
    unsigned tries;
};

struct ftrma_origin {
    struct ftrma_engine *engine;
    int alarm; /* an eventfd */
    ftrma_wire_connect *connect;
    ftrma_wire_acked *acked;
    void *arg;
    uint32_t ntargets, nnodes, roles_number;
    int stale, timeout_ms;
    uint64_t token;
    struct ftrma_origin_query ask;
    struct ftrma_origin_target *targets;
    struct ftrma_origin_node *nodes;
    char reason[256]; /* empty: nothing was refused */
};

#endif
