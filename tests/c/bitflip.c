/* A network that changes one bit: loaded before the C library's.
 *
 * FLIP_FILE names a file of words that all processes of a job map. The nth write of at least `least`
 * bytes to a connection with an agent has one of its bits changed on the way: the messages that
 * _wire.so sends, and the hello and the welcome before them. The sender's memory stays as it is.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

struct flip {
    uint64_t nth, least, bit;            /* drawn; bit: of the write, modulo its length */
    uint64_t count, struck;              /* writes so far; 1: a bit was changed */
    uint64_t at, size, agent, greeting;  /* the byte, and which write it was */
    unsigned char first[64];             /* its first bytes */
};

static struct flip *file;
static int is_agent;

static ssize_t (*real_send)(int, const void *, size_t, int);
static ssize_t (*real_sendmsg)(int, const struct msghdr *, int);

__attribute__((constructor)) static void load(void)
{
    const char *path = getenv("FLIP_FILE");
    real_send = (ssize_t(*)(int, const void *, size_t, int))dlsym(RTLD_NEXT, "send");
    real_sendmsg = (ssize_t(*)(int, const struct msghdr *, int))dlsym(RTLD_NEXT, "sendmsg");
    int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (fd < 0)
        return;
    void *map = mmap(NULL, sizeof *file, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    file = map == MAP_FAILED ? NULL : map;
    char said[512] = "";
    fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, said, sizeof said - 1);
    close(fd);
    for (ssize_t i = 0; i < n; i++)
        is_agent |= !strcmp(said + i, "ftrma.launch.agent");
}

static int begins(const void *data, size_t size, const char *with)
{
    return size >= strlen(with) && !memcmp(data, with, strlen(with));
}

/* 1: these bytes go over a connection with an agent. */
static int is_ours(const void *caller, const void *data, size_t size)
{
    Dl_info where;
    if (!file)
        return 0;
    if (begins(data, size, "{\"event\": \"hello\", \"kind\": \"wire\"")
        || begins(data, size, "{\"event\": \"hello\", \"kind\": \"mirror\"")
        || (is_agent && begins(data, size, "{\"event\": \"welcome\"")))
        return 1;
    return dladdr(caller, &where) && where.dli_fname && strstr(where.dli_fname, "/_wire.so");
}

static int is_drawn(size_t size)
{
    return size >= file->least && size
           && __atomic_add_fetch(&file->count, 1, __ATOMIC_SEQ_CST) == file->nth;
}

/* Send a copy with one bit changed. If the socket takes too few bytes, a later write is struck. */
static ssize_t send_changed(int fd, const unsigned char *data, size_t size, int flags)
{
    unsigned char *copy = malloc(size);
    uint64_t bit = file->bit % (8 * size);
    if (!copy)
        return real_send(fd, data, size, flags);
    memcpy(copy, data, size);
    copy[bit / 8] ^= (unsigned char)(1u << bit % 8);
    ssize_t n = real_send(fd, copy, size, flags);
    free(copy);
    if (n <= (ssize_t)(bit / 8)) {
        file->nth += 1;
        return n;
    }
    memcpy(file->first, data, size < sizeof file->first ? size : sizeof file->first);
    file->at = bit / 8;
    file->size = size;
    file->agent = (uint64_t)is_agent;
    file->greeting = *data == '{';
    file->struck = 1;
    return n;
}

ssize_t send(int fd, const void *data, size_t size, int flags)
{
    if (is_ours(__builtin_return_address(0), data, size) && is_drawn(size))
        return send_changed(fd, data, size, flags);
    return real_send(fd, data, size, flags);
}

ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
    size_t size = 0;
    for (size_t i = 0; i < message->msg_iovlen; i++)
        size += message->msg_iov[i].iov_len;
    if (!message->msg_iovlen || message->msg_controllen
        || !is_ours(__builtin_return_address(0), message->msg_iov[0].iov_base,
                    message->msg_iov[0].iov_len)
        || !is_drawn(size))
        return real_sendmsg(fd, message, flags);
    unsigned char *whole = malloc(size), *to = whole;
    for (size_t i = 0; whole && i < message->msg_iovlen; i++) {
        memcpy(to, message->msg_iov[i].iov_base, message->msg_iov[i].iov_len);
        to += message->msg_iov[i].iov_len;
    }
    ssize_t n = whole ? send_changed(fd, whole, size, flags) : real_sendmsg(fd, message, flags);
    free(whole);
    return n;
}
