/* Starts a process that is nobody's child.

   A program's wait() must not find a process that ftrma has started. wait() passes over a child
   whose end sends no signal (clone(2), __WCLONE), but execve() gives a process such a signal. So a
   child without a signal starts the process and ends, and the kernel hands the process over to
   init. Child and process share the caller's memory, and the caller stands still until the process
   runs its program, as with vfork(2). */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "wire.h"

#ifndef SYS_close_range
#define SYS_close_range 436
#endif

enum { STACK = 1 << 16, ABOVE = FTRMA_WIRE_KEPT + 1 };

struct order {
    const char *path, *directory;
    char *const *argv, *const *envp;
    int input, kept; /* above ABOVE */
    sigset_t mask;
    char *stack; /* of the process */
    int error;   /* why the program does not run */
};

static void close_from(int first) {
    if (!syscall(SYS_close_range, first, ~0U, 0))
        return;
    struct rlimit most; /* a kernel before 5.9 */
    int n = getrlimit(RLIMIT_NOFILE, &most) || most.rlim_cur > INT_MAX ? 65536 : (int)most.rlim_cur;
    for (int fd = first; fd < n; fd++)
        close(fd);
}

/* The code of the process, until it runs its program. */
static int process(void *arg) {
    struct order *order = arg;
    struct sigaction fallback = {.sa_handler = SIG_DFL};
    sigaction(SIGPIPE, &fallback, NULL); /* Python's processes ignore it */
    setsid();
    if (chdir(order->directory) || dup2(order->input, STDIN_FILENO) < 0 ||
        dup2(order->kept, FTRMA_WIRE_KEPT) < 0) {
        order->error = errno;
        _exit(127);
    }
    close_from(ABOVE);
    sigprocmask(SIG_SETMASK, &order->mask, NULL);
    execve(order->path, order->argv, order->envp);
    order->error = errno;
    _exit(127);
}

/* The code of the child that wait() does not find. */
static int child(void *arg) {
    struct order *order = arg;
    if (clone(process, order->stack + STACK, CLONE_VM | CLONE_VFORK | SIGCHLD, order) < 0)
        order->error = errno;
    _exit(0);
}

int ftrma_agent_start(const char *path, char *const argv[], char *const envp[],
                      const char *directory, int input, int kept) {
    struct order order = {.path = path, .directory = directory, .argv = argv, .envp = envp};
    char *stacks = mmap(NULL, 2 * STACK, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    if (stacks == MAP_FAILED)
        return -errno;
    order.stack = stacks;
    order.input = fcntl(input, F_DUPFD_CLOEXEC, ABOVE);
    order.kept = fcntl(kept, F_DUPFD_CLOEXEC, ABOVE);
    if (order.input < 0 || order.kept < 0) {
        order.error = errno;
    } else {
        sigset_t all; /* a handler of the program must not run in its memory twice */
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &order.mask);
        pid_t pid = clone(child, stacks + 2 * STACK, CLONE_VM | CLONE_VFORK, &order);
        if (pid < 0)
            order.error = errno;
        else
            while (waitpid(pid, NULL, (int)__WCLONE) < 0 && errno == EINTR)
                ;
        pthread_sigmask(SIG_SETMASK, &order.mask, NULL);
    }
    if (order.input >= 0)
        close(order.input);
    if (order.kept >= 0)
        close(order.kept);
    munmap(stacks, 2 * STACK);
    return -order.error;
}
