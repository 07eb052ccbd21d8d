/* Bringing the program's thread to a repair that it does not come to by itself (wake.c). */
#ifndef FTRMA_WAKE_H
#define FTRMA_WAKE_H

/* The calling thread, which is the program's, is the one that is brought.  Before the watching thread
   begins. */
void ftrma_wake_know(void);
/* The program's thread takes part in a repair (1), or is back in the program (0). */
void ftrma_wake_attend(int attends);
/* Called by the watching thread, again and again. */
void ftrma_wake_look(void);

#endif
