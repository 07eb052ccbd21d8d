/* Hub and spokes: messages between agents (spokes.c). */
#ifndef FTRMA_SPOKES_H
#define FTRMA_SPOKES_H

#include "agent_state.h"

/* Take a message of another agent. NULL, or why the connection ends, in words. */
const char *ftrma_spokes_obey(struct ftrma_peer *peer, const struct ftrma_wire_head *head,
                              const void *payload);
/* Scan for words that were changed on this node, and send them to the others. */
void ftrma_spokes_scan(struct ftrma_agent *agent);
/* Milliseconds until the next scan is due, even if nothing comes until then; -1: none is due. */
int ftrma_spokes_scan_in_ms(const struct ftrma_agent *agent);
void ftrma_spokes_close(struct ftrma_agent *agent);

#endif
