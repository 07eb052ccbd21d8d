/* The attempts of the program that threads belong to (attempt.c). */
#ifndef FTRMA_ATTEMPT_H
#define FTRMA_ATTEMPT_H

#include "internal.h"

/* A thread's knowledge of failures; only the thread itself writes it. */
struct ftrma_thread {
    uint64_t round;   /* the newest alarm that its calls need not heed */
    uint64_t attempt; /* the attempt that it belongs to; 0: not known yet */
    unsigned calls;   /* number of calls of MPI that it is in and that may block; a repair can begin
                         inside one */
    unsigned called;  /* 1 while it runs an operation of the program that a call of ours has called:
                         it must not be unwound */
};
extern _Thread_local struct ftrma_thread ftrma_thread __attribute__((tls_model("initial-exec")));
/* The number of the program's current attempt in this process, from 1 on; a rollback ends it and
   begins the next. */
extern uint64_t ftrma_attempt;
/* The attempt in which a call of a thread other than the program's main one has unwound: that
   thread is lost, so the slot cannot go on in place. */
extern uint64_t ftrma_thread_lost;

/* 1 if this thread was started in an earlier attempt, so that its calls have no effect. */
static inline int ftrma_stale(void)
{
    return ftrma_thread.attempt && ftrma_thread.attempt != LOAD(&ftrma_attempt);
}

/* End the current attempt: the next number is in force. */
void ftrma_attempt_advance(void);
/* Make the calling thread, which enters the program, belong to the current attempt. */
void ftrma_attempt_join(void);

#endif
