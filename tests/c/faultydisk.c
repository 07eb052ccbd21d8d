/* A disk that refuses writes to files of checkpoints: loaded before the C library's.
 *
 * DISK_FAULT is ENOSPC, EIO or short; one of DISK_RATE writes and syncs of files named slot-* or
 * manifest* is struck. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* 1 if this call is to be struck. */
static int strikes(int fd)
{
    static unsigned calls;
    char link[64], path[4096];
    const char *fault = getenv("DISK_FAULT"), *rate = getenv("DISK_RATE");
    if (!fault || !rate)
        return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    if (n <= 0)
        return 0;
    path[n] = 0;
    const char *name = strrchr(path, '/');
    if (!name || (strncmp(name, "/slot-", 6) && strncmp(name, "/manifest", 9)))
        return 0;
    return __atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED) % (unsigned)atoi(rate) == 0;
}

static int fault(void)
{
    errno = strcmp(getenv("DISK_FAULT"), "EIO") ? ENOSPC : EIO;
    return -1;
}

ssize_t write(int fd, const void *data, size_t size)
{
    static ssize_t (*real)(int, const void *, size_t);
    if (!real)
        real = (ssize_t(*)(int, const void *, size_t))dlsym(RTLD_NEXT, "write");
    if (!strikes(fd))
        return real(fd, data, size);
    if (!strcmp(getenv("DISK_FAULT"), "short"))
        return real(fd, data, size > 1 ? size / 2 : size);
    return fault();
}

int fsync(int fd)
{
    static int (*real)(int);
    if (!real)
        real = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
    return strikes(fd) && strcmp(getenv("DISK_FAULT"), "short") ? fault() : real(fd);
}
