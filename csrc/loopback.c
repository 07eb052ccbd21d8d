/* Connections to the launcher and its daemons: only some are accepted.
 *
 * A launcher or daemon that waits for the first message of a connection does nothing else
 * meanwhile, and accepts as many connections as it has descriptors: one idle connection, which
 * anybody can open, keeps the MPI library from repairing anything. This library is preloaded into
 * both. Of connections from this host they then accept only those of this user's processes: the
 * kernel says who owns a socket. On one node nobody else connects. Over several nodes other hosts
 * do, and only a few of their connections may be silent at a time, for some seconds.
 *
 * On one node this library also makes the launcher listen on loopback alone. PRRTE 3.0 binds its
 * port for other nodes' daemons to all addresses, and as soon as there is another interface,
 * `prte_if_include` cannot choose loopback (oob_tcp_component.c, component_available).
 *
 * The library removes itself from the environment, so that no rank and no program of the user's is
 * started with it. It can be removed when the launcher has options for all of this.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define TURNED_AWAY 64  /* refused in one call at most, since its caller has other things to do, and
                           calls again */
#define SILENT 32       /* strangers from other hosts, as many as a job's supervisor accepts */
#define SILENT_S 5
#define HEAD_BYTES 64   /* less than any message with which a daemon or rank begins */

static int acts, alone; /* 1: this library acts in this process; and the job is on one node */

union address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
};

__attribute__((constructor)) static void begin(void)
{
    const char *name = program_invocation_short_name, *all = getenv("LD_PRELOAD");
    acts = !strcmp(name, "prterun") || !strcmp(name, "prte") || !strcmp(name, "prted");
    if (!acts || !all)
        return;
    const char *rest = strchr(all, ':'); /* this library is the first */
    const char *last = strstr(all, "/loopback.so"); /* by the name of the link through which it was
                                                       loaded */
    alone = last && (!rest || last < rest);
    if (rest)
        setenv("LD_PRELOAD", rest + 1, 1);
    else
        unsetenv("LD_PRELOAD");
}

/* ---- whose a socket of this host is --------------------------------------------------------- */

enum { MINE, FOREIGN, ELSEWHERE, UNKNOWN };

static int judge(uint32_t uid, uint32_t inode)
{
    return inode && uid == geteuid() ? MINE : FOREIGN; /* a socket without an inode was closed */
}

static void split(const union address *a, uint32_t ip[4], uint16_t *port)
{
    memset(ip, 0, 16);
    if (a->any.sa_family == AF_INET6)
        memcpy(ip, &a->v6.sin6_addr, 16);
    else
        memcpy(ip, &a->v4.sin_addr, 4);
    *port = a->any.sa_family == AF_INET6 ? a->v6.sin6_port : a->v4.sin_port;
}

/* Ask the kernel for the other end of a connection: one question, however many sockets there
   are. */
static int ask(const union address *here, const union address *there)
{
    struct {
        struct nlmsghdr head;
        struct inet_diag_req_v2 body;
    } question = {
        .head = {.nlmsg_len = sizeof question, .nlmsg_type = SOCK_DIAG_BY_FAMILY,
                 .nlmsg_flags = NLM_F_REQUEST},
        .body = {.sdiag_family = (uint8_t)here->any.sa_family, .sdiag_protocol = IPPROTO_TCP,
                 .idiag_states = ~0u,
                 .id.idiag_cookie = {INET_DIAG_NOCOOKIE, INET_DIAG_NOCOOKIE}},
    };
    struct {
        struct nlmsghdr head;
        union {
            struct inet_diag_msg found;
            struct nlmsgerr error;
            char room[1024];
        } body;
    } answer;
    split(there, question.body.id.idiag_src, &question.body.id.idiag_sport);
    split(here, question.body.id.idiag_dst, &question.body.id.idiag_dport);
    int fd = socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, NETLINK_SOCK_DIAG), whose = UNKNOWN;
    if (fd >= 0 && send(fd, &question, sizeof question, 0) == (ssize_t)sizeof question
        && recv(fd, &answer, sizeof answer, 0) > (ssize_t)sizeof answer.head) {
        if (answer.head.nlmsg_type == SOCK_DIAG_BY_FAMILY)
            whose = judge(answer.body.found.idiag_uid, answer.body.found.idiag_inode);
        else if (answer.head.nlmsg_type == NLMSG_ERROR && answer.body.error.error == -ENOENT)
            whose = ELSEWHERE; /* or the kernel cannot be asked */
    }
    if (fd >= 0)
        close(fd);
    return whose;
}

/* Find the owner of a socket in the kernel's list of all sockets, for kernels without sock_diag. */
static int search(const union address *here, const union address *there)
{
    int six = here->any.sa_family == AF_INET6, whose = ELSEWHERE, words = six ? 4 : 1;
    FILE *list = fopen(six ? "/proc/net/tcp6" : "/proc/net/tcp", "re");
    uint32_t ip[2][4];
    uint16_t port[2];
    char line[512], wanted[96], *end = wanted;
    if (!list)
        return UNKNOWN;
    split(there, ip[0], &port[0]);
    split(here, ip[1], &port[1]);
    for (int side = 0; side < 2; side++) {
        for (int i = 0; i < words; i++)
            end += sprintf(end, "%08X", ip[side][i]);
        end += sprintf(end, ":%04X ", ntohs(port[side]));
    }
    while (whose == ELSEWHERE && fgets(line, sizeof line, list)) {
        const char *at = strstr(line, wanted);
        unsigned uid, inode;
        if (at && sscanf(at + (end - wanted), "%*x %*x:%*x %*x:%*x %*x %u %*u %u", &uid,
                         &inode) == 2)
            whose = judge(uid, inode);
    }
    fclose(list);
    return whose;
}

/* Unwrap an address of IPv4 that IPv6 wraps: a socket of IPv4 shows its other end unwrapped. */
static union address plain(const union address *a)
{
    if (a->any.sa_family != AF_INET6 || !IN6_IS_ADDR_V4MAPPED(&a->v6.sin6_addr))
        return *a;
    union address four = {.v4 = {.sin_family = AF_INET, .sin_port = a->v6.sin6_port}};
    memcpy(&four.v4.sin_addr, &a->v6.sin6_addr.s6_addr[12], 4);
    return four;
}

static int owner(const union address *here, const union address *there)
{
    static int answers; /* the kernel has answered a question, so its "there is none" is an answer,
                           too */
    union address mine = plain(here), other = plain(there);
    int whose = ask(&mine, &other);
    if (whose == MINE || whose == FOREIGN)
        __atomic_store_n(&answers, 1, __ATOMIC_RELAXED);
    else if (!__atomic_load_n(&answers, __ATOMIC_RELAXED))
        whose = search(&mine, &other);
    return whose;
}

/* ---- those from other hosts ----------------------------------------------------------------- */

static struct stranger {
    int fd;
    time_t since;
    union address from;
} strangers[SILENT];
static int nstrangers;
static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;

static time_t now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec;
}

/* 1 if this is still the connection that came, and nothing was received over it yet. Its owner may
   have closed the descriptor and used it again. */
static int is_silent(const struct stranger *s)
{
    union address from = {0};
    struct tcp_info info = {0};
    socklen_t size = sizeof from, length = sizeof info;
    return !getpeername(s->fd, &from.any, &size) && !memcmp(&from, &s->from, sizeof from)
           && !getsockopt(s->fd, IPPROTO_TCP, TCP_INFO, &info, &length)
           && info.tcpi_bytes_received < HEAD_BYTES;
}

/* Accept a stranger. A stranger that is silent for too long, or is the first of too many, is cut
   off; the owner of its descriptor sees the end of the connection. */
static void let_in(int fd, const union address *from)
{
    pthread_mutex_lock(&guard);
    time_t now = now_s();
    int kept = 0;
    for (int i = 0; i < nstrangers; i++) {
        if (!is_silent(&strangers[i]))
            continue;
        if (now - strangers[i].since > SILENT_S || (nstrangers == SILENT && !i))
            shutdown(strangers[i].fd, SHUT_RDWR);
        else
            strangers[kept++] = strangers[i];
    }
    nstrangers = kept;
    strangers[nstrangers++] = (struct stranger){fd, now, *from};
    pthread_mutex_unlock(&guard);
}

/* ---- what the launcher calls ---------------------------------------------------------------- */

static int welcome(int fd)
{
    union address here = {0}, there = {0};
    socklen_t size = sizeof here, length = sizeof there;
    if (getsockname(fd, &here.any, &size) || getpeername(fd, &there.any, &length)
        || (here.any.sa_family != AF_INET && here.any.sa_family != AF_INET6))
        return 1; /* it is of another kind, or gone already */
    int whose = owner(&here, &there);
    if (whose == ELSEWHERE && !alone)
        let_in(fd, &there);
    return whose == MINE || whose == UNKNOWN || (whose == ELSEWHERE && !alone);
}

int accept4(int fd, struct sockaddr *address, socklen_t *length, int flags)
{
    socklen_t room = length ? *length : 0;
    for (int turned_away = 0;;) {
        int made = (int)syscall(SYS_accept4, fd, address, length, flags);
        if (made < 0 || !acts || welcome(made))
            return made;
        close(made);
        if (length)
            *length = room;
        struct pollfd more = {.fd = fd, .events = POLLIN};
        if (++turned_away == TURNED_AWAY || poll(&more, 1, 0) <= 0) {
            errno = EAGAIN;
            return -1;
        }
    }
}

int accept(int fd, struct sockaddr *address, socklen_t *length)
{
    return accept4(fd, address, length, 0);
}

int bind(int fd, const struct sockaddr *address, socklen_t length)
{
    union address to;
    if (alone && address && length <= sizeof to && length >= sizeof to.v4) {
        memcpy(&to, address, length);
        if (to.any.sa_family == AF_INET && to.v4.sin_addr.s_addr == htonl(INADDR_ANY))
            to.v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        else if (to.any.sa_family == AF_INET6 && length >= sizeof to.v6
                 && !memcmp(&to.v6.sin6_addr, &in6addr_any, sizeof in6addr_any))
            to.v6.sin6_addr = in6addr_loopback;
        address = &to.any;
    }
    return (int)syscall(SYS_bind, fd, address, length);
}
