/* Notes of a process that ends itself, since nobody else learns its exit status.
 *
 * The other processes notice a death, but its status goes to the launcher, which keeps it. So an
 * end that the program itself brings about is noted in the control file: by the handlers of exit(3)
 * and of the signals that an error in the program raises, by Python's os._exit, and by an MPI error
 * where MPI_ERRORS_ARE_FATAL is set. Such an end ends the job, and is no failure. An end from
 * outside leaves no note.
 *
 * If shared memory is full when a page of it is first touched (SIGBUS), this is noted, too, but as
 * a failure.
 *
 * Nothing else is noted while a failure is pending or not repaired yet: the MPI library sometimes
 * crashes after another process's death, and its helpers call exit().
 */
#define _GNU_SOURCE
#include <signal.h>
#include <stdlib.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "control.h"
#include "leave.h"

#define FULL_BYTES (1u << 20) /* less memory than any repair takes */

static pid_t own_pid;
static const int errors[] = {SIGSEGV, SIGABRT, SIGFPE, SIGILL, SIGBUS};
#define NERRORS ((int)(sizeof errors / sizeof *errors))
static struct sigaction before[NERRORS];

/* 1 if a death is not repaired yet, even if nobody has noticed it so far. */
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

void ftrma_note_abort(int status)
{
    note(FTRMA_LEFT_BY_ABORT, status & 0xff);
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

/* Note the error, then let the earlier handler have its turn: the MPI library's stack trace, the
   program's own handler, or the end of the process. */
static void on_error(int number, siginfo_t *info, void *context)
{
    (void)context;
    int own = info->si_code > 0 || (info->si_code == SI_TKILL && info->si_pid == getpid());
    if (number == SIGBUS && own && info->si_code != BUS_ADRALN) {
        if (ftrma_ctl && is_full())
            note(FTRMA_LEFT_BY_MEMORY, number);
    } else if (own && ftrma_ctl && !failing())
        note(FTRMA_LEFT_BY_SIGNAL, number);
    /* If memory lacks, a stack trace tells nothing. */
    struct sigaction then = {.sa_handler = SIG_DFL};
    for (int i = 0; i < NERRORS; i++)
        if (errors[i] == number && number != SIGBUS)
            then = before[i];
    sigaction(number, &then, NULL);
    raise(number); /* the signal is delivered when this handler returns */
}

void ftrma_watch_own_end(void)
{
    static char stack[1 << 16]; /* for a signal after an overflow of the other stack */
    stack_t have;
    if (!sigaltstack(NULL, &have) && have.ss_flags & SS_DISABLE)
        sigaltstack(&(stack_t){.ss_sp = stack, .ss_size = sizeof stack}, NULL);
    own_pid = getpid();
    on_exit(at_exit, NULL);
    struct sigaction action = {.sa_sigaction = on_error, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    for (int i = 0; i < NERRORS; i++)
        sigaction(errors[i], &action, &before[i]);
}
