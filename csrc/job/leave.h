/* How this process says that it ends itself (leave.c). */
#ifndef FTRMA_LEAVE_H
#define FTRMA_LEAVE_H

/* From now on an end of this process's own making is noted. */
void ftrma_watch_own_end(void);

/* The program has called MPI_Abort with this status. */
void ftrma_note_abort(int status);

#endif
