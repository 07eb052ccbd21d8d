/* Memory of a vault that is taken while the program computes; see ahead.c. */
#ifndef FTRMA_AHEAD_H
#define FTRMA_AHEAD_H

#include "vault_state.h"

/* Stop taking memory ahead: [in] the caller takes the rest itself, from `vault->ahead.taken` on. */
void ftrma_ahead_stop(struct ftrma_vault *vault);
/* Give memory back that is neither in use nor among so many blocks of the copy and of the stage. */
void ftrma_ahead_give_back(struct ftrma_vault *vault, uint64_t blocks, uint64_t staging);
/* End the thread, so that nothing maps the vault any more: before it is unmapped. */
void ftrma_ahead_close(struct ftrma_vault *vault);

#endif
