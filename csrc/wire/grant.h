/* Locks, and requests that wait for them (grant.c). */
#ifndef FTRMA_GRANT_H
#define FTRMA_GRANT_H

#include "agent_state.h"

/* Grant or park a LOCK whose number is the next one. 0 or -ENOMEM. */
int ftrma_grant_lock(const struct ftrma_request *request);
/* Grant a LOCK of kind CHANGE. 1: done; 0: it is not available now. */
int ftrma_grant_change(const struct ftrma_request *request);
void ftrma_grant_unlock(const struct ftrma_request *request);

/* Park a request, so that it waits. 0 or -ENOMEM. */
int ftrma_grant_park(const struct ftrma_request *request);
/* Drop the waiting requests of a peer; or, if peer is NULL, those to a target (-1: to any). `each`,
   unless NULL, is called with each request before it is freed. */
void ftrma_grant_drop(struct ftrma_agent *agent, const struct ftrma_peer *peer, int64_t target,
                      void (*each)(const struct ftrma_parked *parked));
/* Grant the waiting locks of a part that are available, in order. */
void ftrma_grant_next(struct ftrma_agent *agent, int part);
/* Grant the waiting locks of all parts that are available. */
void ftrma_grant_all(struct ftrma_agent *agent);
/* Try the waiting changes again. `attempt` returns 1 for a request that waits no longer. */
void ftrma_grant_retry(struct ftrma_agent *agent, int (*attempt)(const struct ftrma_request *));

#endif
