/* Ways in which a node is lost: loaded before the C library's kill.
 *
 * A rule such as n3@put:5 kills all of a node, one process after the other, the launcher's daemon
 * first and the process that has come to the place last. NODE_LOSS has something else become of it:
 *
 *   daemon   the daemon alone is killed; its ranks have asked the kernel to die with it
 *   cut      for a while no packet leaves the node, and none comes in
 *   frozen   the same, and its processes do not run, as in a virtual machine that is moved
 *
 * NODE_BACK_S says after how many seconds the latter two end. Some seconds later the process that
 * waits on the node for another launch is asked to remove all, as a batch system would ask it. So
 * what is left then should have ended before.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* The rules of routing in front of which those for the node's own addresses must come. */
#define CUT "printf '%s\n' 'rule add pref 10 iif eth0 blackhole' 'rule add pref 20 lookup local' " \
            "'rule add pref 30 to 10.77.0.0/16 blackhole' 'rule del pref 0' | ip -batch -"
#define HEAL "printf '%s\n' 'rule add pref 0 lookup local' 'rule del pref 10' 'rule del pref 20' " \
             "'rule del pref 30' | ip -batch -"
#define LEAVE "; sleep 3; for p in /proc/[0-9]*; do tr '\\0' '\\n' < $p/cmdline | sed -n 3p | " \
              "grep -q nodedirectory.py && kill ${p#/proc/}; done"

static int (*real_kill)(pid_t, int);
static const char *way, *back;
static char stopped[16384]; /* the processes of the node, in words */

__attribute__((constructor)) static void load(void)
{
    real_kill = (int (*)(pid_t, int))dlsym(RTLD_NEXT, "kill");
    way = getenv("NODE_LOSS");
    back = getenv("NODE_BACK_S");
}

/* Run a command without this process's files and variables, by which it would be ended with the
   job, perhaps after a while and by itself. */
static void run(const char *delay, const char *command, const char *words, const char *then)
{
    char line[sizeof stopped + 1024];
    snprintf(line, sizeof line, "PATH=/usr/sbin:/sbin:/usr/bin:/bin; sleep %s; %s %s %s",
             delay, command, words, then);
    pid_t child = fork();
    if (child == 0) {
        if (delay[0] != '0' && fork())
            _exit(0);
        setsid();
        close_range(0, ~0U, 0);
        for (int fd = 0; fd < 3; fd++)
            open("/dev/null", O_RDWR);
        clearenv();
        execl("/bin/sh", "sh", "-c", line, (char *)NULL);
        _exit(127);
    }
    waitpid(child, NULL, 0);
}

/* Stop a process; with the last one of the node, see to it that all run on later. */
static void stop(pid_t pid)
{
    char word[16];
    snprintf(word, sizeof word, " %d", (int)pid);
    strncat(stopped, word, sizeof stopped - strlen(stopped) - 1);
    if (pid == getpid())
        run(back, HEAL "; kill -CONT", stopped, LEAVE);
    real_kill(pid, SIGSTOP);
}

int kill(pid_t pid, int number)
{
    static pid_t daemon; /* of the launcher's, once a rule strikes */
    if (!way || number != SIGKILL || (!daemon && pid != getppid()))
        return real_kill(pid, number);
    int first = !daemon;
    daemon = first ? pid : daemon;
    if (first && !strcmp(way, "daemon"))
        return real_kill(pid, number);
    if (first)
        run("0", CUT, "", "");
    if (!strcmp(way, "frozen"))
        stop(pid);
    else if (first)
        run(back, HEAL, "", LEAVE);
    return 0;
}
