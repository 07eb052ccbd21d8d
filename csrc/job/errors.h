/* Errors of MPI calls, and guarded calls of the library (errors.c). */
#ifndef FTRMA_ERRORS_H
#define FTRMA_ERRORS_H

#include <mpi.h>
#include <stdarg.h>

#include "interrupt.h"

extern int ftrma_code_unwind; /* error code that Python turns into Rollback; made at the start */
/* The program has called MPI_Finalize; written there, and when the program is entered again. */
extern int ftrma_finalized;

/* Make the code. An MPI code. */
int ftrma_unwind_prepare(void);

/* Decide what an error of the library means: returns the error if it is the program's, or the
   unwind code if a failure caused it. */
int ftrma_judge(int rc);

/* Make the error for a call after MPI_Finalize in which others would have to take part. */
int ftrma_after_finalize(void);

/* A code of this MPI class for an error of the program's, with its words; printf-like. */
int ftrma_error_code(int class, const char *format, ...) __attribute__((format(printf, 2, 3)));
int ftrma_error_vcode(int class, const char *format, va_list args);

/* Check the alarm that rang while the call was bracketed. 1: the call goes on; 0: a thread other
   than the program's has left the bracket again. */
int ftrma_stays_in(void);

/* Convert the result of an MPI call into the one that the program sees. */
static inline int ftrma_result(int rc)
{
    return likely(rc == MPI_SUCCESS) ? rc : ftrma_judge(rc);
}

/* Enter a call that may block. 1: the thread is inside; 0: it unwinds. The alarm is checked once
   more after the bracket is set, since a repair waits for the threads that it finds inside
   (ftrma_revoke_await). */
static inline int ftrma_go_in(void)
{
    if (ftrma_unwinding())
        return 0;
    ftrma_enter_call();
    return likely(!ftrma_ctl || LOAD(&ftrma_ctl->alarm) == ftrma_thread.round) || ftrma_stays_in();
}

/* An MPI call that may block, bracketed for the watchdog and with its result converted. */
#define GUARDED(call)                                                                             \
    ({                                                                                            \
        int guarded_rc = ftrma_code_unwind;                                                       \
        if (unlikely(ftrma_finalized)) {                                                          \
            guarded_rc = ftrma_after_finalize();                                                  \
        } else if (ftrma_go_in()) {                                                               \
            ftrma_name_call(__func__);                                                            \
            guarded_rc = (call);                                                                  \
            ftrma_leave_call();                                                                   \
            guarded_rc = ftrma_result(guarded_rc);                                                \
        }                                                                                         \
        guarded_rc;                                                                               \
    })

#endif
