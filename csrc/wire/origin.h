/* What the files of an origin have in common: what it has sent, and to whom (origin.c). */
#ifndef FTRMA_ORIGIN_H
#define FTRMA_ORIGIN_H

#include "engine.h"
#include "internal.h"

#define FTRMA_TOKEN (1ull << 63) /* of requests without a number, which no number reaches */

/* Requests with a number that are not acknowledged, in the order of their numbers: struct
   ftrma_wire_head and payload, each from a multiple of 8 on. */
struct ftrma_sent {
    char *data;
    size_t from, to, room;
};

struct ftrma_toward {
    uint32_t node, generation;
    uint64_t number; /* the last that was given */
    struct ftrma_sent sent;
    uint64_t again; /* AGAINs to it on this connection of its node */
    int refused;    /* since the last: what follows would be dropped; it is sent when it is live */
    int asked;    /* the last one that was sent has an answer, and nothing follows it */
    int answered; /* and it is here, not taken yet */
    int flushing; /* somebody waits for all of it to be acknowledged */
    struct ftrma_wire_answer answer;
};

/* The one request without a number that is waited for. */
struct ftrma_ask {
    int active, done;
    uint32_t node;
    struct ftrma_wire_head head;
    const void *payload;
    void *data; /* where what comes goes to */
    size_t bytes;
    uint64_t told;
};

struct ftrma_node {
    struct ftrma_way *way; /* NULL: not connected */
    uint64_t next_ns;      /* when to try again */
    unsigned tries;
};

struct ftrma_origin {
    struct ftrma_engine *engine;
    ftrma_wire_connect *connect;
    ftrma_wire_acked *acked;
    void *arg;
    uint32_t ntargets, nnodes, epoch;
    int stale, patience_ms;
    uint64_t token;
    struct ftrma_ask ask;
    struct ftrma_toward *targets;
    struct ftrma_node *nodes;
    char reason[256]; /* empty: nothing was refused */
};

static inline struct ftrma_wire_head *ftrma_sent_first(const struct ftrma_sent *s)
{
    return s->from == s->to ? NULL : (struct ftrma_wire_head *)(void *)(s->data + s->from);
}

static inline size_t ftrma_sent_size(const struct ftrma_wire_head *head)
{
    return sizeof *head + (((size_t)head->length + 7) & ~(size_t)7);
}

#endif
