/* Which attempt of the program a thread belongs to (attempt.c). */
#ifndef FTRMA_ATTEMPT_H
#define FTRMA_ATTEMPT_H

#include "internal.h"

/* What a thread knows of failures; it alone writes this. */
struct ftrma_thread {
    uint64_t round;   /* alarm that its calls need not heed */
    uint64_t attempt; /* of the program that it belongs to; 0: not known yet */
    unsigned calls;   /* of MPI that may block, which it is in: a repair can begin inside one */
    unsigned called;  /* up from a call of ours, as an operation of the program's: not to be unwound */
};
extern _Thread_local struct ftrma_thread ftrma_thread __attribute__((tls_model("initial-exec")));
/* The program's current one in this process, from 1 on; counted on where a timeline ends. */
extern uint64_t ftrma_attempt;
/* The attempt in which a call of another thread than the program's own has unwound: that thread is lost,
   and nobody can go on without it. */
extern uint64_t ftrma_thread_lost;

/* This thread was begun in an earlier attempt: its calls have no effect. */
static inline int ftrma_stale(void)
{
    return ftrma_thread.attempt && ftrma_thread.attempt != LOAD(&ftrma_attempt);
}

/* The program's current one is over; and the calling thread belongs to the current one from now on (it
   enters the program). */
void ftrma_attempt_end(void);
void ftrma_attempt_begin(void);

#endif
