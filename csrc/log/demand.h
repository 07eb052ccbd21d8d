/* Demand checkpoints (demand.c). */
#ifndef FTRMA_DEMAND_H
#define FTRMA_DEMAND_H

#include "chunks.h"

/* 1 if the access of slot `source` is in the demand checkpoint with this cut. */
int ftrma_cut_holds(const uint64_t *cut, uint64_t words, const struct ftrma_record *record,
                    int source);

#endif
