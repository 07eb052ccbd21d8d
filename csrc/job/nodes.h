/* A job over several nodes: which process is on which node, and how this process and its node's
 * agent wake each other (nodes.c). In a job on one node all are on node 0, and there is no agent.
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

/* 1 if a target of origins (a slot or, numbered after the slots, a node) is lost with its node. */
int ftrma_is_lost(uint32_t target);

/* Set the origin by which other nodes are reached from now on, and this node's ledger. */
void ftrma_wire_reach(struct ftrma_origin *origin, struct ftrma_ledger *ledger);
/* The origin by which this process reaches parts on other nodes; NULL: the job has one node, or
   this process holds no slot. */
struct ftrma_origin *ftrma_wire_origin(void);
/* The ledger of this node, or NULL. */
struct ftrma_ledger *ftrma_wire_ledger(void);

/* The FIFO to which the agent writes when the alarm was raised on another node; -1: there is
   none. */
int ftrma_wake_fifo(void);
/* Empty the FIFO, so that the next byte wakes again. */
void ftrma_wake_fifo_clear(void);
/* End the waits of this process's origins. */
void ftrma_ring_origins(void);

#endif
