/* A process that ends itself says so before it is gone, since nobody else learns its exit status.
 *
 * What the others notice of a death is that it happened; the status goes to the launcher, which
 * keeps it.  So an end of the program's own making is noted in the control file: by the handlers of
 * exit(3) and of the signals that an error of the program's raises, by Python's os._exit, and by an
 * MPI error where MPI_ERRORS_ARE_FATAL is set.  Such an end is the job's, and no failure; what ends
 * a process from outside leaves no note.
 *
 * Shared memory that is full when it is first touched (SIGBUS) is noted, too, but as the failure
 * that it is.
 *
 * Nothing else is noted while a failure is pending or not repaired yet: the MPI library crashes now and
 * then over somebody else's death, and its helpers call exit().
 */
#define _GNU_SOURCE
#include <mpi.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "comm.h"

#define FULL_BYTES (1u << 20) /* less than what any repair takes */

static pid_t own_pid;
static const int errors[] = {SIGSEGV, SIGABRT, SIGFPE, SIGILL, SIGBUS};
#define NERRORS ((int)(sizeof errors / sizeof *errors))
static struct sigaction before[NERRORS];

/* Somebody's death is not repaired yet, though perhaps nobody has noticed it. */
static int failing(void)
{
    if (LOAD(&ftrma_ctl->alarm) != LOAD(&ftrma_ctl->repaired))
        return 1;
    for (uint32_t p = 0; p < ftrma_ctl->nprocs; p++)
        if ((int)p != ftrma_me && LOAD(&ftrma_ctl->proc[p].state) == FTRMA_DEAD
            && !LOAD(&ftrma_ctl->proc[p].reported))
            return 1;
    return 0;
}

static void note(int how, int value)
{
    if (!ftrma_ctl || getpid() != own_pid || LOAD(&ftrma_ctl->alarm) == FTRMA_ENDED
        || LOAD(&ftrma_ctl->request))
        return;
    if (ftrma_link >= 0)
        ftrma_tell("{\"event\": \"leaving\", \"how\": %d, \"value\": %d}\n", how, value);
    STORE(&ftrma_ctl->proc[ftrma_me].leaving, how | value);
}

void ftrma_note_exit(int status)
{
    note(FTRMA_LEFT_BY_STATUS, status & 0xff);
}

static void at_exit(int status, void *unused)
{
    (void)unused;
    if (ftrma_ctl && !failing())
        note(FTRMA_LEFT_BY_EXIT, status & 0xff);
}

static int is_full(void)
{
    struct statvfs room;
    return !statvfs(ftrma_directory, &room) && room.f_bavail * room.f_frsize < FULL_BYTES;
}

/* What was there before (the MPI library's stack trace, the program's own handler, the end) has its
   turn afterwards. */
static void on_error(int number, siginfo_t *info, void *context)
{
    (void)context;
    int own = info->si_code > 0 || (info->si_code == SI_TKILL && info->si_pid == getpid());
    if (number == SIGBUS && own && info->si_code != BUS_ADRALN) {
        if (ftrma_ctl && is_full())
            note(FTRMA_LEFT_BY_MEMORY, number);
    } else if (own && ftrma_ctl && !failing())
        note(FTRMA_LEFT_BY_SIGNAL, number);
    /* Where memory is lacking a stack trace tells nothing. */
    struct sigaction then = {.sa_handler = SIG_DFL};
    for (int i = 0; i < NERRORS; i++)
        if (errors[i] == number && number != SIGBUS)
            then = before[i];
    sigaction(number, &then, NULL);
    raise(number); /* comes when this handler returns */
}

void ftrma_watch_own_end(void)
{
    static char stack[1 << 16]; /* for an overflow of the other one */
    stack_t have;
    if (!sigaltstack(NULL, &have) && have.ss_flags & SS_DISABLE)
        sigaltstack(&(stack_t){.ss_sp = stack, .ss_size = sizeof stack}, NULL);
    own_pid = getpid();
    on_exit(at_exit, NULL);
    struct sigaction action = {.sa_sigaction = on_error, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    for (int i = 0; i < NERRORS; i++)
        sigaction(errors[i], &action, &before[i]);
}

/* ---- MPI_ERRORS_ARE_FATAL ------------------------------------------------------------------- */

/* The library's own way to be fatal does not end a process here, whose launcher is told to let jobs
   run on; and what it says is lost with the launcher's notices. */
static void fatal(const char *object, const int *code, const char *call)
{
    int slot = -1, length = 0;
    if (ftrma_judge(*code) == ftrma_code_unwind)
        return; /* somebody died: the call returns, and its caller unwinds */
    char text[MPI_MAX_ERROR_STRING] = "unknown error";
    PMPI_Error_string(*code, text, &length);
    if (ftrma_ctl)
        ftrma_my_role(&slot);
    /* One write, so that the lines of several ranks do not mix. */
    char words[2 * MPI_MAX_ERROR_STRING];
    if (!call || strstr(call, "call_errhandler")) /* from this library, about any call */
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

/* Open MPI passes the name of the call behind the code. */
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

/* In place of MPI_ERRORS_ARE_FATAL and of MPI_ERRORS_ABORT, which are told apart when they are got. */
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
            PMPI_Errhandler_free(handler); /* what was got is one reference more */
            *handler = aborts ? MPI_ERRORS_ABORT : MPI_ERRORS_ARE_FATAL;
        }
}

/* The handlers that stand for others were not got from the library, which counts them. */
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
    int rc = PMPI_Comm_set_errhandler(ftrma_face(comm), substitute(COMM, handler));
    return rc || !c || c->live == MPI_COMM_NULL
               ? rc
               : PMPI_Comm_set_errhandler(c->live, substitute(COMM, handler));
}

int MPI_Comm_get_errhandler(MPI_Comm comm, MPI_Errhandler *handler)
{
    int rc = PMPI_Comm_get_errhandler(ftrma_face(comm), handler);
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
