/* A job over several nodes: which node is whose, and how this process and its node's agent wake each
 * other (nodes.c).  On one node all are on node 0, and there is no agent.
 */
#ifndef FTRMA_NODES_H
#define FTRMA_NODES_H

#include "control.h"
#include "wire.h"

static inline int ftrma_node_of(int slot)
{
    return ftrma_ctl ? ftrma_ctl->proc[ftrma_roles(ftrma_ctl)->slot_proc[slot]].node : 0;
}

static inline int ftrma_node_here(void)
{
    return ftrma_ctl ? ftrma_ctl->proc[ftrma_me].node : 0;
}

/* From now on other nodes are reached by this origin; the ledger is this node's. */
void ftrma_wire_reach(struct ftrma_origin *origin, struct ftrma_ledger *ledger);
/* By which this process reaches other nodes' parts; NULL: the job has one node, or this is no slot. */
struct ftrma_origin *ftrma_wire_origin(void);
/* Of this node, or NULL. */
struct ftrma_ledger *ftrma_wire_ledger(void);

/* The agent writes to it when the alarm was raised on another node; -1: there is none. */
int ftrma_poke(void);
/* It was read: whoever writes next wakes again. */
void ftrma_poke_clear(void);
/* Have the waits of this process's origins end. */
void ftrma_ring_origins(void);

#endif
