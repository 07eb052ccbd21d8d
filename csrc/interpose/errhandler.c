/* Error handlers of the program: MPI_ERRORS_ARE_FATAL ends the job with the text of the error. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "communicator.h"
#include "control.h"
#include "errhandler.h"
#include "errors.h"

/* End the job with the error's text. The library's own fatal handler does not end a process here,
   since the launcher is told to let jobs run on, and its text is lost with the launcher's
   notices. */
static void fatal(const char *object, const int *code, const char *call)
{
    int slot = -1, length = 0;
    if (ftrma_judge(*code) == ftrma_code_unwind)
        return; /* a process has died: the call returns, and its caller unwinds */
    char text[MPI_MAX_ERROR_STRING] = "unknown error";
    PMPI_Error_string(*code, text, &length);
    if (ftrma_ctl)
        ftrma_my_role(&slot);
    /* One write, so that the lines of several ranks do not mix. */
    char words[2 * MPI_MAX_ERROR_STRING];
    if (!call || strstr(call, "call_errhandler")) /* the error comes from ftrma, and may be about
                                                     any call */
        call = "a call of MPI";
    int n = snprintf(words, sizeof words, "ftrma: error: slot %d: %s on a %s with "
                     "MPI_ERRORS_ARE_FATAL: %s\n", slot, call, object, text);
    if (n > 0)
        (void)!write(2, words, (size_t)n < sizeof words ? (size_t)n : sizeof words - 1);
    int class = MPI_ERR_UNKNOWN;
    PMPI_Error_class(*code, &class);
    ftrma_note_exit(class & 0xff ? class & 0xff : 1);
    _exit(class & 0xff ? class & 0xff : 1);
}

/* Open MPI passes the name of the call after the code. */
#define NAMED_CALL(code)                                                                          \
    va_list args;                                                                                 \
    va_start(args, code);                                                                         \
    const char *call = va_arg(args, const char *);                                                \
    va_end(args)

static void fatal_on_comm(MPI_Comm *comm, int *code, ...)
{
    (void)comm;
    NAMED_CALL(code);
    fatal("communicator", code, call);
}

static void fatal_on_win(MPI_Win *win, int *code, ...)
{
    (void)win;
    NAMED_CALL(code);
    fatal("window", code, call);
}

static void fatal_on_file(MPI_File *file, int *code, ...)
{
    (void)file;
    NAMED_CALL(code);
    fatal("file", code, call);
}

/* Handlers in place of MPI_ERRORS_ARE_FATAL and of MPI_ERRORS_ABORT: a program that asks for its
   handler is told which of them it has. */
enum { COMM, WIN, FILE_HANDLE, KINDS };
static MPI_Errhandler ours[KINDS][2] = {
    {MPI_ERRHANDLER_NULL, MPI_ERRHANDLER_NULL},
    {MPI_ERRHANDLER_NULL, MPI_ERRHANDLER_NULL},
    {MPI_ERRHANDLER_NULL, MPI_ERRHANDLER_NULL},
};

static MPI_Errhandler substitute(int kind, MPI_Errhandler handler)
{
    int aborts = handler == MPI_ERRORS_ABORT;
    if (!ftrma_ctl || (handler != MPI_ERRORS_ARE_FATAL && !aborts))
        return handler;
    MPI_Errhandler *our = &ours[kind][aborts];
    int rc = MPI_SUCCESS;
    if (*our == MPI_ERRHANDLER_NULL)
        rc = kind == COMM  ? PMPI_Comm_create_errhandler(fatal_on_comm, our)
             : kind == WIN ? PMPI_Win_create_errhandler(fatal_on_win, our)
                           : PMPI_File_create_errhandler(fatal_on_file, our);
    return rc ? handler : *our;
}

static void uncover(int kind, MPI_Errhandler *handler)
{
    for (int aborts = 0; aborts < 2; aborts++)
        if (*handler == ours[kind][aborts] && *handler != MPI_ERRHANDLER_NULL) {
            PMPI_Errhandler_free(handler); /* each handler that was got is one more reference */
            *handler = aborts ? MPI_ERRORS_ABORT : MPI_ERRORS_ARE_FATAL;
        }
}

/* Free a handler of the program's. Those that stand for the predefined ones did not come from the
   library, which counts references, so they are not passed to it. */
int MPI_Errhandler_free(MPI_Errhandler *handler)
{
    if (!ftrma_ctl || (*handler != MPI_ERRORS_ARE_FATAL && *handler != MPI_ERRORS_ABORT))
        return PMPI_Errhandler_free(handler);
    *handler = MPI_ERRHANDLER_NULL;
    return MPI_SUCCESS;
}

int MPI_Comm_set_errhandler(MPI_Comm comm, MPI_Errhandler handler)
{
    const struct communicator *c = ftrma_communicator(comm);
    int rc = PMPI_Comm_set_errhandler(ftrma_handle(comm), substitute(COMM, handler));
    return rc || !c || c->backing == MPI_COMM_NULL
               ? rc
               : PMPI_Comm_set_errhandler(c->backing, substitute(COMM, handler));
}

int MPI_Comm_get_errhandler(MPI_Comm comm, MPI_Errhandler *handler)
{
    int rc = PMPI_Comm_get_errhandler(ftrma_handle(comm), handler);
    if (!rc)
        uncover(COMM, handler);
    return rc;
}

int ftrma_win_set_errhandler(MPI_Win win, MPI_Errhandler handler)
{
    return PMPI_Win_set_errhandler(win, substitute(WIN, handler));
}

int MPI_Win_set_errhandler(MPI_Win win, MPI_Errhandler handler)
{
    return ftrma_win_set_errhandler(win, handler);
}

int MPI_Win_get_errhandler(MPI_Win win, MPI_Errhandler *handler)
{
    int rc = PMPI_Win_get_errhandler(win, handler);
    if (!rc)
        uncover(WIN, handler);
    return rc;
}

int MPI_File_set_errhandler(MPI_File file, MPI_Errhandler handler)
{
    return PMPI_File_set_errhandler(file, substitute(FILE_HANDLE, handler));
}

int MPI_File_get_errhandler(MPI_File file, MPI_Errhandler *handler)
{
    int rc = PMPI_File_get_errhandler(file, handler);
    if (!rc)
        uncover(FILE_HANDLE, handler);
    return rc;
}
