/* Requests that read or write a part: PUT, PUTV, GET, GETV, ACC, FOP, CAS (apply.c). */
#ifndef FTRMA_APPLY_H
#define FTRMA_APPLY_H

#include "agent.h"

enum { FTRMA_APPLIED, FTRMA_APPLY_PARKED, FTRMA_APPLY_FAILED };

/* Why it reaches outside of the part; NULL: it does not. */
const char *ftrma_apply_fault(const struct ftrma_request *request);

/* Do it, if its number is the next. */
int ftrma_apply_put(const struct ftrma_request *request);
void ftrma_apply_get(const struct ftrma_request *request);
/* PARKED: a process of the node is inside a change. */
int ftrma_apply_atomic(const struct ftrma_request *request);

/* It was done before: tell again what was told. */
void ftrma_apply_repeat(struct ftrma_peer *peer, const struct ftrma_wire_head *head, int part);

#endif
