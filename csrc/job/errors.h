/* Errors of MPI calls, and guarded calls of the library (errors.c). */
#ifndef FTRMA_ERRORS_H
#define FTRMA_ERRORS_H

#include <mpi.h>

#include "interrupt.h"

extern int ftrma_code_unwind; /* error code that Python turns into Rollback; made at the start */
/* The program has called MPI_Finalize; written there, and where it is entered again. */
extern int ftrma_finalized;

/* Make the code. An MPI code. */
int ftrma_unwind_prepare(void);

/* What an error of the library means: an error of the program's, or a failure. */
int ftrma_judge(int rc);

/* The error of a call that others would have to join after MPI_Finalize. */
int ftrma_after_finalize(void);

/* An error of the program's, in words; w: the window whose error handler is called, or NULL.  Returns
   the code. */
struct window;
int ftrma_window_fail(struct window *w, int class, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The alarm has rung when the call was bracketed: another thread than the program's leaves again (0). */
int ftrma_stays_in(void);

/* Turn the result of an MPI call into what the user's program sees. */
static inline int ftrma_result(int rc)
{
    return likely(rc == MPI_SUCCESS) ? rc : ftrma_judge(rc);
}

/* The calling thread is inside a call that may block (1), or unwinds from it (0).  The alarm is looked at
   once more behind the bracket: a repair waits for the threads that it finds inside (ftrma_revoke_await). */
static inline int ftrma_go_in(void)
{
    if (ftrma_unwinding())
        return 0;
    ftrma_enter_call();
    return likely(!ftrma_ctl || LOAD(&ftrma_ctl->alarm) == ftrma_thread.round) || ftrma_stays_in();
}

/* An MPI call that may block, bracketed for the watchdog and with its result turned. */
#define GUARDED(call)                                                                             \
    ({                                                                                            \
        int guarded_rc = ftrma_code_unwind;                                                       \
        if (unlikely(ftrma_finalized)) {                                                          \
            guarded_rc = ftrma_after_finalize();                                                  \
        } else if (ftrma_go_in()) {                                                               \
            guarded_rc = (call);                                                                  \
            ftrma_leave_call();                                                                   \
            guarded_rc = ftrma_result(guarded_rc);                                                \
        }                                                                                         \
        guarded_rc;                                                                               \
    })

#endif
