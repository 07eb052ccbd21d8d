/* Origins, and other agents, that are connected to an agent (peer.c). */
#ifndef FTRMA_PEER_H
#define FTRMA_PEER_H

#include "agent_state.h"

/* End a connection, and drop the requests of the peer that wait. */
void ftrma_peer_leave(struct ftrma_peer *peer);

#endif
