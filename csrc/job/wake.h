/* Bringing the program's thread to a repair if it does not come by itself (wake.c). */
#ifndef FTRMA_WAKE_H
#define FTRMA_WAKE_H

/* Make the calling thread, the program's, the one that is brought to repairs. Called before the
   watching thread begins. */
void ftrma_wake_know(void);
/* Tell that the program's thread takes part in a repair (1), or is back in the program (0). */
void ftrma_wake_attend(int attends);
/* Look after the program's thread. The watching thread calls this again and again. */
void ftrma_wake_look(void);

#endif
