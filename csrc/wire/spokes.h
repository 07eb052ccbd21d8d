/* Hub and spokes: what agents say to each other (spokes.c). */
#ifndef FTRMA_SPOKES_H
#define FTRMA_SPOKES_H

#include "agent_state.h"

/* Another agent has sent this. NULL, or why the connection ends. */
const char *ftrma_spokes_obey(struct ftrma_peer *peer, const struct ftrma_wire_head *head,
                              const void *payload);
/* Tell the others what was changed here. */
void ftrma_spokes_scan(struct ftrma_agent *agent);
/* Milliseconds until the next look, whatever happens until then; -1: none is needed. */
int ftrma_spokes_scan_in_ms(const struct ftrma_agent *agent);
void ftrma_spokes_close(struct ftrma_agent *agent);

#endif
