/* The launcher of a job on one node listens on loopback alone.
 *
 * PRRTE 3.0 binds its port for other nodes' daemons to all addresses, and leaves loopback out of
 * those that `prte_if_include` can choose as soon as there is another interface
 * (oob_tcp_component.c, component_available).  On one node nobody but local processes connects.
 * This library is preloaded into the launcher and turns "all addresses" into loopback.  It acts in
 * the launcher only and takes itself out of its environment, so that no rank and no program of the
 * user's is started with it.  It can go when the launcher can be told to listen on loopback.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

static int acts;

__attribute__((constructor)) static void begin(void)
{
    const char *name = program_invocation_short_name, *all = getenv("LD_PRELOAD");
    acts = !strcmp(name, "prterun") || !strcmp(name, "prte");
    if (!acts || !all)
        return;
    const char *rest = strchr(all, ':'); /* this library is the first */
    if (rest)
        setenv("LD_PRELOAD", rest + 1, 1);
    else
        unsetenv("LD_PRELOAD");
}

int bind(int fd, const struct sockaddr *address, socklen_t length)
{
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } to;
    if (acts && address && length <= sizeof to && length >= sizeof to.v4) {
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
