/* Bringing the program's thread to a repair that it does not come to by itself.
 *
 * The program's thread comes to a repair by its calls of MPI. While it waits in Python, for a
 * queue, a child or the clock, it makes none, and what it waits for may never come: a thread that
 * was to provide it with calls of MPI may have ended at the failure. So the watching thread sends
 * it a signal, which ends the wait and has Python call a handler in it (ftrma/program/waking.py),
 * as Ctrl-C does. A thread that computes is left alone, since it comes with its next call, unless
 * all that it computes is lost anyway.
 *
 * If no signal helps, another process has to end this one. So the watching thread notes in the
 * control file that its program computes. Over several nodes it tells this to the supervisor, and
 * also if the program waits for long.
 */
#define _GNU_SOURCE
#include "wake.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "alarm.h"
#include "attempt.h"
#include "control.h"

/* A thread that computes is found running at least once within this time, even if others use the
   processor. */
#define ASLEEP_NS 200000000u
#define LOST_NS 20000000u /* patience with a thread whose results are of no use any more */
/* Time in which an attempt that is over may end its work, such as joining threads. */
#define DOOMED_NS 1000000000u
#define TELL_NS 1000000000u

/* Written by ftrma_wake_know. */
static pthread_t program;
static const struct ftrma_thread *its;
static char its_state[64]; /* path of the file */
/* Written by the program's thread. */
static int wake_signal, may_wake, attending;
static ftrma_wake_function trip;
static uint64_t absent_ns = 5000000000u; /* of checksum ranks and spares, which run no program */

void ftrma_wake_know(void)
{
    program = pthread_self();
    its = &ftrma_thread;
    snprintf(its_state, sizeof its_state, "/proc/self/task/%d/stat", (int)syscall(SYS_gettid));
}

static void on_wake(int number)
{
    int kept = errno;
    trip(number);
    errno = kept;
}

int ftrma_wake_by(int number, ftrma_wake_function function, uint64_t patience_ns)
{
    struct sigaction action = {.sa_handler = on_wake}; /* no SA_RESTART: a system call that waits
                                                          returns */
    trip = function;
    STORE(&absent_ns, patience_ns);
    STORE(&wake_signal, number);
    return sigaction(number, &action, NULL) ? -errno : 0;
}

void ftrma_wake_allow(int allowed)
{
    STORE(&may_wake, allowed);
}

int ftrma_wake_inside(void)
{
    return ftrma_thread.calls || ftrma_thread.called;
}

void ftrma_wake_attend(int attends)
{
    STORE(&attending, attends);
}

/* 1 if the program's thread sleeps just now, or if the kernel does not say. */
static int sleeps(void)
{
    char text[128];
    int fd = open(its_state, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
    if (fd >= 0)
        close(fd);
    text[n > 0 ? n : 0] = 0;
    const char *name_end = strrchr(text, ')'); /* the name itself may have a parenthesis */
    return !name_end || (name_end[1] && name_end[2] == 'S');
}

/* Send the signal, unless the program uses it itself. */
static void wake(void)
{
    struct sigaction now;
    int number = LOAD(&wake_signal);
    if (number && !sigaction(number, NULL, &now) && now.sa_handler == on_wake)
        pthread_kill(program, number);
}

/* 1 once `what` has been true for `long_ns`; then the time begins anew. */
static int for_long(uint64_t *since, int what, uint64_t now, uint64_t long_ns)
{
    if (!what || !*since)
        *since = what ? now : 0;
    if (!what || now - *since < long_ns)
        return 0;
    *since = now;
    return 1;
}

/* The program's thread, as the watching thread finds it. */
struct found {
    int inside;  /* in a call of MPI */
    int awaited; /* a repair waits for it */
    int asleep;  /* it is awaited, and sleeps */
    int lost;    /* it is awaited, and all that it computes is lost */
    int over;    /* its attempt is over */
};

static struct found find(void)
{
    uint64_t attempt = LOAD(&ftrma_attempt);
    struct found now = {.inside = LOAD(&its->calls) || LOAD(&its->called),
                        .over = LOAD(&its->attempt) != attempt};
    now.awaited = ftrma_pending() && LOAD(&ftrma_ctl->proc[ftrma_me].met) >> 8 < LOAD(&ftrma_ctl->alarm);
    now.lost = now.awaited && LOAD(&ftrma_thread_lost) == attempt;
    now.asleep = now.awaited && sleeps();
    return now;
}

/* Wake the program's thread if it would not come by itself. */
static void bring(const struct found *found, uint64_t now)
{
    static uint64_t asleep_since, doomed_since;
    int wakeable = LOAD(&may_wake) && !LOAD(&attending) && !found->inside;
    uint64_t patience_ns = found->lost ? LOST_NS : ASLEEP_NS;
    int asleep_long = for_long(&asleep_since, wakeable && found->asleep, now, patience_ns);
    int doomed = found->over || found->lost;
    int doomed_long = for_long(&doomed_since, wakeable && doomed, now, DOOMED_NS);
    if (asleep_long || doomed_long)
        wake();
}

/* Tell others that the program's thread computes, or has waited for long, while it is awaited. */
static void report(const struct found *found, uint64_t now)
{
    static uint64_t computes_since, absent_since;
    if (found->awaited && (!found->asleep || found->inside))
        STORE(&ftrma_ctl->proc[ftrma_me].busy_ns, now);
    int computing = found->awaited && !found->asleep && !found->inside;
    int computes = for_long(&computes_since, computing, now, TELL_NS);
    int away = found->asleep && !found->inside && !LOAD(&attending); /* a repair's own waits have limits */
    int absent = for_long(&absent_since, away, now, LOAD(&absent_ns));
    if (ftrma_link >= 0 && (computes || absent))
        ftrma_tell("{\"event\": \"awaited\", \"computes\": %d}\n", computes);
}

void ftrma_wake_look(void)
{
    uint64_t now = ftrma_now_ns();
    struct found found = find();
    bring(&found, now);
    report(&found, now);
}
