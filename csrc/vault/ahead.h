/* Memory of a vault that is taken while the program computes; see ahead.c. */
#ifndef FTRMA_AHEAD_H
#define FTRMA_AHEAD_H

#include "vault.h"

/* No more is taken ahead: [in] whoever calls takes the rest itself, from `vault->ahead.taken` on. */
void ftrma_ahead_stop(struct ftrma_vault *vault);
/* Nothing is taken beyond what is in use, and so many blocks of the copy and of the stage. */
void ftrma_ahead_give_back(struct ftrma_vault *vault, uint64_t blocks, uint64_t staging);
/* Nor is anything of it mapped any more: before the map is taken away. */
void ftrma_ahead_close(struct ftrma_vault *vault);

#endif
