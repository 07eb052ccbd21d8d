/* Places at which an agent kills itself, for tests (failpoint.c). */
#ifndef FTRMA_FAILPOINT_H
#define FTRMA_FAILPOINT_H

#include "agent_state.h"

/* The agent is at one of enum ftrma_wire_failpoint. */
void ftrma_failpoint(struct ftrma_agent *agent, int failpoint);

#endif
