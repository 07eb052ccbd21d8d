/* Joining the job, and the thread that watches it.
 *
 * Detection does not go through MPI. A thread of every process sleeps in poll() on one pidfd per
 * process of the job; the kernel makes it readable the moment the process is gone, whatever it was
 * doing. The thread then does three things that are safe from any thread and may be done by several
 * processes: it marks the death, raises the alarm, and revokes the user's communicators, so that
 * threads that are blocked inside MPI come back. Over several nodes it watches the processes of its
 * own node; the alarm reports deaths on other nodes, and the agent wakes this thread for it.
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
#include "killrules.h"
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
       kernel restricts that to descendants, this allows it to the job's other processes. Where
       there is no such restriction, it fails without harm. */
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
    ftrma_die_with_parent(); /* no process is left behind when the launcher is killed */
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

/* Ask for a relaunch, since without its supervisor or launcher the job is at its end. All processes
   are being killed then, and their deaths must not be repaired: a repair would put vaults aside
   that the next launch needs. */
static void left_alone(void)
{
    uint64_t nothing = FTRMA_NOTHING;
    __atomic_compare_exchange_n(&ftrma_ctl->request, &nothing, FTRMA_RELAUNCH, 0,
                                __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}

/* Open a pidfd of a process; -1 if it is gone, and [out] *error if it cannot be watched. */
static int look_at(int32_t pid, int *error)
{
    int fd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (fd < 0 && errno != ESRCH)
        *error = errno;
    return fd;
}

/* Open the descriptors of all processes, then those of the launcher and the supervisor, the
   keepers. The keepers are opened first: a process that died because of a keeper is then found
   after it. [out] *error: an errno value. */
static struct pollfd *look_at_all(int n, int *error)
{
    const int32_t keepers[] = {ftrma_ctl->supervisor, ftrma_ctl->launcher};
    struct pollfd *fds = calloc((size_t)n + 3, sizeof *fds);
    *error = fds ? 0 : ENOMEM;
    if (!fds)
        return NULL;
    for (int i = 0; i < n + 2; i++)
        fds[i] = (struct pollfd){.fd = -1, .events = POLLIN};
    fds[n + 2] = (struct pollfd){.fd = ftrma_wake_fifo(), .events = POLLIN};
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

/* Wait until a process dies, this process is woken, or it is time to check. Returns 1 if some
   descriptor has news. The time limit serves alarms that are raised for another reason, and kill
   rules for a time. It is long, so that the program is not slowed down. */
static int await_news(struct pollfd *fds, int n, uint64_t revoked)
{
    int timeout_ms = ftrma_armed & (1u << FTRMA_FAILPOINT_TIME) ? 5 : 200;
    if (ftrma_pending())
        timeout_ms = LOAD(&ftrma_ctl->alarm) == revoked ? 20 : 1;
    int found = poll(fds, (nfds_t)n + 3, timeout_ms);
    ftrma_wake_fifo_clear();
    return found > 0;
}

/* Note which processes have died: the keepers first, since the others may have died because of
   them. */
static void note_the_dead(struct pollfd *fds, int n)
{
    for (int k = n; k < n + 2; k++)
        if (fds[k].fd >= 0 && fds[k].revents) {
            left_alone();
            close(fds[k].fd);
            fds[k].fd = -1;
        }
    for (int i = 0; i < n; i++)
        if (fds[i].fd >= 0 && fds[i].revents) {
            close(fds[i].fd);
            fds[i].fd = -1;
            ftrma_note_death(i);
        }
}

/* Revoke for a new alarm all communicators in which the program's threads may be blocked; [in/out]
   the newest alarm for which this was done. If it was done before and a thread stays in one call,
   wake the library's sleepers once more; [in/out] the number of calls at the last check. */
static void bring_back(uint64_t alarm, uint64_t *revoked, uint64_t *last_calls)
{
    uint64_t calls = LOAD(&ftrma_ctl->proc[ftrma_me].calls);
    uint64_t inside = calls & FTRMA_CALLS_INSIDE;
    /* Over several nodes a revocation is expensive in the library, and only a thread that waits in
       it needs one. */
    int needed = LOAD(&ftrma_ctl->nodes) == 1 || inside;
    if (alarm != *revoked && (!ftrma_pending() || (needed && ftrma_revoke_all())))
        *revoked = alarm;
    if (ftrma_pending() && alarm == *revoked && inside && calls == *last_calls)
        ftrma_revoke_dummy();
    *last_calls = calls;
}

static void *watch(void *opened)
{
    struct pollfd *fds = opened;
    int n = (int)ftrma_ctl->nprocs;
    uint64_t revoked = LOAD(&ftrma_ctl->alarm), told = revoked, last_calls = 0;
    for (;;) {
        int news = await_news(fds, n, revoked);
        if (LOAD(&ftrma_ctl->alarm) == FTRMA_ENDED)
            break;
        if (news)
            note_the_dead(fds, n);
        uint64_t alarm = LOAD(&ftrma_ctl->alarm);
        if (alarm != told)
            ftrma_alarm_seen();
        told = alarm;
        bring_back(alarm, &revoked, &last_calls);
        ftrma_wake_look();
        ftrma_failpoint(FTRMA_FAILPOINT_TIME);
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
    sigfillset(&all); /* Python's main thread takes all signals, except those of errors in this
                         thread */
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
