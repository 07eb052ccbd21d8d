/* Requests that read or write a part: PUT, PUTV, SET, GET, GETV, ACC, FOP, CAS (apply.c). */
#ifndef FTRMA_APPLY_H
#define FTRMA_APPLY_H

#include "agent_state.h"

/* Why a request reaches outside of its part, in words; NULL: it does not. */
const char *ftrma_apply_fault(const struct ftrma_request *request);

/* Carry out a request whose number is the next one, or that has none. NULL, or why it cannot be
   carried out, in words. */
const char *ftrma_apply_put(const struct ftrma_request *request);
const char *ftrma_apply_set(const struct ftrma_request *request);
const char *ftrma_apply_get(const struct ftrma_request *request);
/* Carry out an atomic. ftrma_apply_parked: a process of the node is inside a change; try again
   later. */
const char *ftrma_apply_atomic(const struct ftrma_request *request);
extern const char *const ftrma_apply_parked;

/* Repeat the reply to a request that was carried out before. */
void ftrma_apply_repeat(const struct ftrma_request *request);

#endif
