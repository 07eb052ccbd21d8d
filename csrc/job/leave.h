/* Notes of a process that ends itself (leave.c). */
#ifndef FTRMA_LEAVE_H
#define FTRMA_LEAVE_H

/* From now on, note each way in which this process ends itself. */
void ftrma_watch_own_end(void);

/* Note that the program has called MPI_Abort with this status. */
void ftrma_note_abort(int status);

#endif
