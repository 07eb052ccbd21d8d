/* The state of an agent, which its files share: its peers, its waiting requests (agent.c). */
#ifndef FTRMA_AGENT_STATE_H
#define FTRMA_AGENT_STATE_H

#include "engine.h"
#include "parts.h"

#define FTRMA_AGENT_ACKS 64 /* runs of records that can wait for an acknowledgement */

/* Puts of one origin to one target that are applied but not acknowledged. */
struct ftrma_unacknowledged {
    size_t n;
    uint64_t bytes; /* of the puts */
    struct ftrma_wire_ack acks[FTRMA_AGENT_ACKS];
};

/* An origin or the agent of another node, as long as its connection lasts. */
struct ftrma_peer {
    struct ftrma_agent *agent;
    struct ftrma_peer *next;
    struct ftrma_connection *connection;
    int is_agent; /* it is an agent, and `origin` its node; the fields below are for origins */
    int greeted;  /* the agent has sent its first MIRRORED */
    uint32_t origin;
    unsigned char *refused; /* [target]: 1: requests are dropped until RESEND */
    uint64_t *resends;      /* [target]: the number of the last RESEND */
    struct ftrma_unacknowledged **unacknowledged; /* [target] */
};

/* A request that waits for a lock, or for the end of a change by a process of this node. */
struct ftrma_parked {
    struct ftrma_parked *next;
    struct ftrma_peer *peer;
    int part;
    uint64_t round; /* the last round of ftrma_grant_all() that has looked at it */
    struct ftrma_wire_head head;
    unsigned char payload[FTRMA_WIRE_ATOMIC_BYTES];
};

struct ftrma_agent {
    struct ftrma_engine *engine;
    struct ftrma_ledger *ledger;
    struct ftrma_peer *peers;
    struct ftrma_peer *nodes;    /* connected agents: the spokes of a hub, the hub of a spoke */
    struct ftrma_mirror *mirror; /* NULL: nothing is mirrored here */
    uint32_t node;               /* 0: the hub */
    int scan_due;                /* words may have changed: scan for them */
    int hub_lost;                /* the hub's connection has ended; ftrma_agent_serve() returns */
    uint64_t damaged;            /* messages that were changed on their way */
    int damage_new;              /* a damaged message has come since; ftrma_agent_serve() returns */
    char reason[256];            /* why hub and spoke cannot mirror with each other; "": they can */
    struct ftrma_parked *parked, **last_parked; /* in the order in which they came */
    unsigned char *scratch;                     /* FTRMA_WIRE_PAYLOAD_BYTES bytes */
    int parked_changes; /* number of parked changes; the agent is not told when to try them again */
    uint64_t neighbours_until; /* ns: until then the node's processes have precedence at locks; 0:
                                  they have none */
    uint64_t round;
    int failpoint; /* enum ftrma_wire_failpoint to be killed at; 0: none */
    uint64_t visits;
};

/* A request whose part is known. */
struct ftrma_request {
    struct ftrma_peer *peer;
    const struct ftrma_wire_head *head;
    const unsigned char *payload;
    int part;
};

#endif
