/* Places at which an agent kills itself, for tests (strike.c). */
#ifndef FTRMA_STRIKE_H
#define FTRMA_STRIKE_H

#include "agent.h"

/* The agent is at one of enum ftrma_wire_place. */
void ftrma_strike(struct ftrma_agent *agent, int place);

#endif
