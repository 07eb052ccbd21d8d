/* Joining the job, and the thread that watches it.
 *
 * Detection does not go through MPI.  A thread of every process sleeps in poll() on one pidfd per
 * process of the job; the kernel makes it readable the moment the process is gone, whatever it was
 * doing.  The thread then does three things that are safe from any thread and idempotent over
 * processes: marks the death, raises the alarm, and revokes the user's communicators so that
 * whoever is blocked inside MPI comes back.  Over several nodes it watches the processes of its own;
 * of the others it hears by the alarm, for which the agent wakes it.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "alarm.h"
#include "control.h"
#include "interrupt.h"
#include "leave.h"
#include "nodes.h"
#include "revoke.h"
#include "wake.h"

int ftrma_join(struct ftrma_ctl *ctl, int proc, const char *directory)
{
    if (proc < 0 || proc >= (int)ctl->nprocs)
        return -EINVAL;
    char *copy = strdup(directory);
    if (!copy)
        return -ENOMEM;
    /* Windows from Create are read and written across processes by process_vm_readv; where the
       kernel restricts that to descendants, this lets the job's other processes in. It fails
       harmlessly where there is no such restriction. */
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
    ftrma_die_with_parent(); /* nobody is left behind when the launcher is killed */
    ftrma_directory = copy;
    ftrma_me = proc;
    ftrma_ctl = ctl;
    ftrma_round = LOAD(&ctl->alarm);
    ctl->proc[proc].pid = (int32_t)getpid();
    ctl->proc[proc].leaving = 0;
    STORE(&ctl->proc[proc].state, FTRMA_ALIVE);
    ftrma_watch_own_end();
    ftrma_arm();
    return 0;
}

/* ---- the watching thread -------------------------------------------------------------------- */

/* Without its supervisor or launcher the job is at its end: all processes are being killed, and that
   is no failure to be repaired, which would put vaults aside that the next launch needs. */
static void left_alone(void)
{
    uint64_t nothing = FTRMA_NOTHING;
    __atomic_compare_exchange_n(&ftrma_ctl->request, &nothing, FTRMA_RELAUNCH, 0,
                                __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}

/* A pidfd of a process; -1 where it is gone, and [out] *error where it cannot be watched. */
static int look_at(int32_t pid, int *error)
{
    int fd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (fd < 0 && errno != ESRCH)
        *error = errno;
    return fd;
}

/* Behind the processes come their keepers: whoever died because of them is looked at before, so that
   the cause is seen with the consequence.  [out] *error: an errno value. */
static struct pollfd *look_at_all(int n, int *error)
{
    const int32_t keepers[] = {ftrma_ctl->supervisor, ftrma_ctl->launcher};
    struct pollfd *fds = calloc((size_t)n + 3, sizeof *fds);
    *error = fds ? 0 : ENOMEM;
    if (!fds)
        return NULL;
    for (int i = 0; i < n + 2; i++)
        fds[i] = (struct pollfd){.fd = -1, .events = POLLIN};
    fds[n + 2] = (struct pollfd){.fd = ftrma_poke(), .events = POLLIN};
    for (int k = 0; k < 2 && !*error; k++)
        if (keepers[k] > 0 && (fds[n + k].fd = look_at(keepers[k], error)) < 0 && !*error)
            left_alone();
    for (int i = 0; i < n && !*error; i++) {
        int watched = i != ftrma_me && ftrma_ctl->proc[i].node == ftrma_node_here();
        if (watched && (fds[i].fd = look_at(ftrma_ctl->proc[i].pid, error)) < 0 && !*error)
            ftrma_note_death(i);
    }
    return fds;
}

static void *watch(void *opened)
{
    struct pollfd *fds = opened;
    int n = (int)ftrma_ctl->nprocs, strike = -1;
    uint64_t revoked = LOAD(&ftrma_ctl->alarm), told = revoked, last_calls = 0;
    for (;;) {
        /* Deaths wake the thread; the timeout serves alarms raised for another reason, and rules
           for a time. Rare, because a program is to feel nothing of it. */
        int timeout_ms = ftrma_armed & (1u << FTRMA_PLACE_TIME) ? 5 : 200;
        if (ftrma_pending())
            timeout_ms = LOAD(&ftrma_ctl->alarm) == revoked ? 20 : 1;
        strike = poll(fds, (nfds_t)n + 3, timeout_ms);
        ftrma_poke_clear();
        if (LOAD(&ftrma_ctl->alarm) == FTRMA_ENDED)
            break;
        for (int k = n; strike > 0 && k < n + 2; k++)
            if (fds[k].fd >= 0 && fds[k].revents) {
                left_alone();
                close(fds[k].fd);
                fds[k].fd = -1;
            }
        for (int i = 0; strike > 0 && i < n; i++)
            if (fds[i].fd >= 0 && fds[i].revents) {
                close(fds[i].fd);
                fds[i].fd = -1;
                ftrma_note_death(i);
            }
        uint64_t alarm = LOAD(&ftrma_ctl->alarm);
        if (alarm != told)
            ftrma_alarm_seen();
        told = alarm;
        uint64_t calls = LOAD(&ftrma_ctl->proc[ftrma_me].calls);
        uint64_t inside = calls & FTRMA_CALLS_INSIDE;
        /* Over several nodes a revocation costs the library something: only whoever waits in it. */
        int needed = LOAD(&ftrma_ctl->nodes) == 1 || inside;
        if (alarm != revoked && (!ftrma_pending() || (needed && ftrma_revoke_all())))
            revoked = alarm;
        if (ftrma_pending() && alarm == revoked && inside && calls == last_calls)
            ftrma_jolt();
        last_calls = calls;
        ftrma_wake_look();
        ftrma_place(FTRMA_PLACE_TIME);
    }
    free(fds);
    return NULL;
}

int ftrma_watch(void)
{
    int n = (int)ftrma_ctl->nprocs, failed;
    struct pollfd *fds = look_at_all(n, &failed);
    if (failed) {
        for (int i = 0; fds && i < n + 2; i++)
            if (fds[i].fd >= 0)
                close(fds[i].fd);
        free(fds);
        return -failed;
    }
    ftrma_wake_know();
    pthread_t thread;
    sigset_t all, old;
    sigfillset(&all); /* signals belong to Python's main thread, but for errors in this one */
    for (const int *error = (const int[]){SIGSEGV, SIGBUS, SIGFPE, SIGILL, 0}; *error; error++)
        sigdelset(&all, *error);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    failed = pthread_create(&thread, NULL, watch, fds);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (failed)
        free(fds);
    else
        pthread_detach(thread);
    return -failed;
}
