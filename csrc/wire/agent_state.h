/* What the files of an agent have in common: its peers, and the request in hand (agent.c). */
#ifndef FTRMA_AGENT_STATE_H
#define FTRMA_AGENT_STATE_H

#include "engine.h"
#include "parts.h"

#define FTRMA_AGENT_ACKS 64 /* runs of records that wait for an acknowledgement */

/* Records of one origin toward one target that are applied and not acknowledged. */
struct ftrma_unacknowledged {
    size_t n;
    uint64_t bytes; /* of the puts */
    struct ftrma_wire_ack acks[FTRMA_AGENT_ACKS];
};

/* An origin or another node's agent, as long as its connection lasts. */
struct ftrma_peer {
    struct ftrma_agent *agent;
    struct ftrma_peer *next;
    struct ftrma_connection *connection;
    int is_agent;    /* it is another agent, and `origin` its node; all below is an origin's */
    int greeted;     /* MIRRORED has come of it */
    uint32_t origin;
    unsigned char *refused; /* [target]: until RESEND, what comes is part of what was refused */
    uint64_t *resends;        /* [target]: the number of the last RESEND */
    struct ftrma_unacknowledged **unacknowledged; /* [target] */
};

/* A request that waits for a lock, or for a process of this node that is inside a change. */
struct ftrma_parked {
    struct ftrma_parked *next;
    struct ftrma_peer *peer;
    int part;
    uint64_t round; /* in this round of ftrma_grant_all() */
    struct ftrma_wire_head head;
    unsigned char payload[FTRMA_WIRE_ATOMIC_BYTES];
};

struct ftrma_agent {
    struct ftrma_engine *engine;
    struct ftrma_ledger *ledger;
    struct ftrma_peer *peers;
    struct ftrma_peer *nodes;     /* hub: the spokes; spoke: the hub, while it is connected */
    struct ftrma_mirror *mirror;  /* NULL: nothing is mirrored here */
    uint32_t node;                /* 0: the hub */
    int scan_due;                 /* words may have changed */
    int hub_lost;                 /* the hub's connection has ended since the last look */
    char reason[256];             /* why hub and spoke do not understand each other */
    struct ftrma_parked *parked, **last_parked; /* in the order in which they came */
    unsigned char *scratch;                     /* FTRMA_WIRE_PAYLOAD_BYTES bytes */
    int parked_changes; /* changes are parked: neighbours tell nobody when they are outside */
    uint64_t neighbours_until; /* ns: until then the node's processes come first at locks; 0: no */
    uint64_t round;
    int failpoint; /* to be killed at */
    uint64_t visits;
};

/* A request, whose part is known. */
struct ftrma_request {
    struct ftrma_peer *peer;
    const struct ftrma_wire_head *head;
    const unsigned char *payload;
    int part;
};

#endif
