/* Locks, and the requests that wait (grant.c). */
#ifndef FTRMA_GRANT_H
#define FTRMA_GRANT_H

#include "agent_state.h"

/* A LOCK whose number is the next: granted, or parked. 0, or -ENOMEM. */
int ftrma_grant_lock(const struct ftrma_request *request);
/* A LOCK of all changes: 0, it cannot be had now. */
int ftrma_grant_change(const struct ftrma_request *request);
void ftrma_grant_unlock(const struct ftrma_request *request);

/* Have a request wait. 0, or -ENOMEM. */
int ftrma_grant_park(const struct ftrma_request *request);
/* Those of a peer that is gone, or (NULL) to a target that is on HOLD (-1: to any), wait no longer;
   `each`, if there is one, is called with each before it is freed. */
void ftrma_grant_drop(struct ftrma_agent *agent, const struct ftrma_peer *peer, int64_t target,
                      void (*each)(const struct ftrma_parked *parked));
/* Grant the locks of a part that can be had. */
void ftrma_grant_next(struct ftrma_agent *agent, int part);
/* The same of all parts for which somebody waits. */
void ftrma_grant_all(struct ftrma_agent *agent);
/* Changes that wait for a process of the node: tried again by `attempt`, which returns whether one
   has been done with. */
void ftrma_grant_retry(struct ftrma_agent *agent, int (*attempt)(const struct ftrma_request *));

#endif
