/* Requests that read or write a part: PUT, PUTV, SET, GET, GETV, ACC, FOP, CAS (apply.c). */
#ifndef FTRMA_APPLY_H
#define FTRMA_APPLY_H

#include "agent_state.h"

/* Why it reaches outside of the part; NULL: it does not. */
const char *ftrma_apply_fault(const struct ftrma_request *request);

/* Do it, if its number is the next. NULL, or why nobody can do it, in words. */
const char *ftrma_apply_put(const struct ftrma_request *request);
const char *ftrma_apply_set(const struct ftrma_request *request);
const char *ftrma_apply_get(const struct ftrma_request *request);
/* The same; ftrma_apply_parked: a process of the node is inside a change. */
const char *ftrma_apply_atomic(const struct ftrma_request *request);
extern const char *const ftrma_apply_parked;

/* It was done before: tell again what was told. */
void ftrma_apply_repeat(const struct ftrma_request *request);

#endif
