/* Places at which a test can have an agent kill itself (failpoint.c). */
#ifndef FTRMA_FAILPOINT_H
#define FTRMA_FAILPOINT_H

#include "agent_state.h"

/* Die here, if the agent was told to. failpoint: an enum ftrma_wire_failpoint. */
void ftrma_failpoint(struct ftrma_agent *agent, int failpoint);

#endif
