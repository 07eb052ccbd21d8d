/* Errors of MPI calls: judging those of the library, and making ftrma's own, which have texts. */
#include "errors.h"

#include <stdio.h>
#include <unistd.h>

#if defined(OPEN_MPI)
#include <mpi-ext.h>
#endif

#include "alarm.h"
#include "attempt.h"
#include "control.h"
#include "event_clock.h"
#include "interrupt.h"

int ftrma_code_unwind;
int ftrma_finalized;

static char last_error[512];
static int code_of[128]; /* MPI class -> code with ftrma's text */

int ftrma_error_vcode(int class, const char *format, va_list args)
{
    vsnprintf(last_error, sizeof last_error, format, args);
    int code = class;
    if (class > 0 && class < (int)(sizeof code_of / sizeof *code_of)) {
        if (!code_of[class] && PMPI_Add_error_code(class, &code_of[class]))
            code_of[class] = 0;
        char text[MPI_MAX_ERROR_STRING];
        snprintf(text, sizeof text, "%.*s", MPI_MAX_ERROR_STRING - 1, last_error);
        if (code_of[class] && !PMPI_Add_error_string(code_of[class], text))
            code = code_of[class];
    }
    return code;
}

int ftrma_error_code(int class, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int code = ftrma_error_vcode(class, format, args);
    va_end(args);
    return code;
}

/* The time to wait for the alarm, by the class of an error: the library may notice a death before the
   watching thread was scheduled, and reports it to some as an unspecific error (Open MPI 5.0: class 16,
   "other").  [out] *broken: the library itself says that a process failed. */
static unsigned patience_for(int class, int *broken)
{
    unsigned patience_ms = class == MPI_ERR_OTHER || class == MPI_ERR_UNKNOWN
                                   || class == MPI_ERR_INTERN
                               ? 50
                               : 0;
    *broken = 0;
#if defined(OMPI_HAVE_MPI_EXT_FTMPI)
    if (class == MPI_ERR_PROC_FAILED || class == MPI_ERR_PROC_FAILED_PENDING
        || class == MPI_ERR_REVOKED)
        patience_ms = 2000, *broken = 1;
#endif
    /* Across nodes no alarm is raised: the supervisor learns of the death and ends this process. A
       node that has vanished is noticed only when its connection times out. */
    return ftrma_link >= 0 ? 10 * patience_ms : patience_ms;
}

int ftrma_judge(int rc)
{
    int class = MPI_ERR_UNKNOWN, broken;
    PMPI_Error_class(rc, &class);
    unsigned patience_ms = patience_for(class, &broken);
    for (unsigned waited = 0; ftrma_ctl && waited <= patience_ms; waited++) {
        if (ftrma_stale())
            return ftrma_code_unwind;
        /* A thread other than the program's may learn of a failure that has been repaired
           meanwhile. */
        int late = broken && !ftrma_counted && ftrma_thread.round != LOAD(&ftrma_round);
        if (ftrma_pending() || late) {
            if (!ftrma_counted)
                ftrma_lose_thread();
            return ftrma_code_unwind;
        }
        if (waited < patience_ms)
            usleep(1000);
    }
    return rc;
}

int ftrma_stays_in(void)
{
    if (ftrma_counted || !ftrma_unwinding())
        return 1;
    ftrma_leave_call();
    return 0;
}

/* Others may have ended already. One line says so, since mpi4py no longer asks for the text of an
   error then. */
int ftrma_after_finalize(void)
{
    static int told;
    int slot;
    ftrma_my_role(&slot);
    if (!__atomic_exchange_n(&told, 1, __ATOMIC_RELAXED))
        dprintf(STDERR_FILENO, "ftrma: slot %d calls MPI after MPI_Finalize: an error\n", slot);
    return ftrma_error_code(MPI_ERR_OTHER, "a call of MPI after MPI_Finalize");
}

int ftrma_unwind_prepare(void)
{
    int class, rc = PMPI_Add_error_class(&class);
    if (!rc)
        rc = PMPI_Add_error_code(class, &ftrma_code_unwind);
    return rc ? rc : PMPI_Add_error_string(ftrma_code_unwind, "a process failed: rolling back");
}

int ftrma_unwind_code(void)
{
    return ftrma_code_unwind;
}
