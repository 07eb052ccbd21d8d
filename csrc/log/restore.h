/* Windows in recovery (restore.c). */
#ifndef FTRMA_RESTORE_H
#define FTRMA_RESTORE_H

#include "chunks.h"

/* Write a logged access into this slot's part. 0: its place is not in the part, so the log is
   damaged. */
int ftrma_window_apply(const struct ftrma_record *record);
/* Load SC of each lock as the dead process knew it. */
void ftrma_locks_load(void);

#endif
