/* The engine over TCP: sockets that never block, and epoll.  See engine.h.
 *
 * After traffic a wait polls for SPIN_NS before it sleeps: measured on a quiet machine, being woken
 * costs 26 to 100 us, and polling costs 11 to 16. If another process has run on the core meanwhile,
 * the wait sleeps at once: further polling could take the core from the process for which it waits.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tcp_connection.h"

#define SPIN_NS 100000
#define TURN_NS 10000 /* a poll takes 1 us; if it takes this long, another process had the core */
#define TURN 64       /* messages of one connection before the next one's turn */
#define EVENTS 32

static struct ftrma_tcp *tcp_of(struct ftrma_engine *engine)
{
    return (struct ftrma_tcp *)(void *)engine;
}

static int tcp_next(struct ftrma_engine *engine, void **owner, struct ftrma_wire_head *head,
                    const void **payload)
{
    struct ftrma_tcp *e = tcp_of(engine);
    if (e->current) {
        e->current->in.from += e->current->taken;
        e->current->taken = 0;
        e->current = NULL;
    }
    for (struct ftrma_tcp_connection *c; (c = e->first_ready);) {
        int got = ftrma_tcp_take(c, head, payload);
        if (got != 1 || ++c->turn >= TURN) {
            ftrma_tcp_unqueue(c);
            if (got == 1)
                ftrma_tcp_queue(c);
        }
        *owner = c->owner;
        if (got == 1) {
            e->current = c;
            return 1;
        }
        if (got < 0 && !c->told) {
            c->told = 1;
            return -1;
        }
    }
    return 0;
}

static int tcp_adopt(struct ftrma_engine *engine, struct ftrma_stream stream, void *owner,
                     struct ftrma_connection **connection)
{
    struct ftrma_tcp *e = tcp_of(engine);
    int one = 1, fd = stream.socket, flags = fcntl(fd, F_GETFL);
    struct ftrma_tcp_connection *c = calloc(1, sizeof *c);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
    if (!c || flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) || fcntl(fd, F_SETFD, FD_CLOEXEC)
        || epoll_ctl(e->epoll, EPOLL_CTL_ADD, fd, &event)) {
        int error = c ? errno : ENOMEM;
        free(c);
        close(fd);
        return -error;
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one); /* a socketpair has none */
    c->base.ops = e->base.ops;
    c->engine = e;
    c->socket = fd;
    c->owner = owner;
    c->events = EPOLLIN;
    c->next = e->connections;
    e->connections = c;
    *connection = &c->base;
    return 0;
}

/* Free the memory of long messages that are over. This is done before a sleep. */
static void shrink(struct ftrma_tcp *e)
{
    for (struct ftrma_tcp_connection *c = e->connections; c && e->long_in; c = c->next)
        if (c->in.room > FTRMA_TCP_ROOM && c->in.from == c->in.to && c != e->current) {
            free(c->in.data);
            c->in = (struct ftrma_tcp_buffer){0};
            e->long_in--;
        }
}

/* Call epoll. Returns the bits of what has come. */
static int poll_once(struct ftrma_tcp *e, int timeout_ms)
{
    struct epoll_event events[EVENTS];
    int found = 0, n = epoll_wait(e->epoll, events, EVENTS, timeout_ms);
    for (int i = 0; i < n; i++) {
        struct ftrma_tcp_connection *c = events[i].data.ptr;
        const int *waker = events[i].data.ptr;
        if (waker >= e->wakers && waker < e->wakers + FTRMA_TCP_WAKERS)
            found |= *waker;
        else if (!c->gone) {
            if (events[i].events & (uint32_t)(EPOLLOUT | EPOLLERR | EPOLLHUP))
                ftrma_tcp_push(c);
            if (events[i].events & ~(uint32_t)EPOLLOUT) {
                c->readable = 1;
                ftrma_tcp_queue(c);
            }
        }
    }
    return found | (e->first_ready ? FTRMA_WIRE_TRAFFIC : 0);
}

static void push_all(struct ftrma_tcp *e)
{
    for (struct ftrma_tcp_connection *c = e->connections; c && e->unsent; c = c->next)
        if (!c->gone && c->out.from != c->out.to && !(c->events & (uint32_t)EPOLLOUT))
            ftrma_tcp_push(c);
}

static int tcp_wait(struct ftrma_engine *engine, int timeout_ms)
{
    struct ftrma_tcp *e = tcp_of(engine);
    push_all(e);
    int found = poll_once(e, 0);
    uint64_t now = ftrma_engine_ns();
    while (!found && timeout_ms && now - e->traffic_ns < SPIN_NS) {
        sched_yield();
        found = poll_once(e, 0);
        uint64_t before = now;
        if ((now = ftrma_engine_ns()) - before > TURN_NS)
            break;
    }
    if (!found && timeout_ms) {
        shrink(e);
        found = poll_once(e, timeout_ms);
    }
    if (found)
        e->traffic_ns = ftrma_engine_ns();
    return found;
}

static int tcp_wake_by(struct ftrma_engine *engine, int descriptor, int result)
{
    struct ftrma_tcp *e = tcp_of(engine);
    int at = 0;
    while (at < FTRMA_TCP_WAKERS && e->wakers[at] && e->wakers[at] != result)
        at++;
    if (at == FTRMA_TCP_WAKERS || e->wakers[at])
        return -EBUSY;
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = &e->wakers[at]};
    if (epoll_ctl(e->epoll, EPOLL_CTL_ADD, descriptor, &event))
        return -errno;
    e->wakers[at] = result;
    return 0;
}

static void tcp_close(struct ftrma_engine *engine)
{
    struct ftrma_tcp *e = tcp_of(engine);
    while (e->connections)
        ftrma_tcp_disconnect(&e->connections->base);
    if (e->epoll >= 0)
        close(e->epoll);
    free(e);
}

static int tcp_open(int side, struct ftrma_engine **engine);

static const struct ftrma_engine_ops tcp = {
    .name = "tcp",
    .open = tcp_open,
    .close = tcp_close,
    .adopt = tcp_adopt,
    .disconnect = ftrma_tcp_disconnect,
    .failure = ftrma_tcp_failure,
    .unsent = ftrma_tcp_unsent,
    .send = ftrma_tcp_send,
    .next = tcp_next,
    .wake_by = tcp_wake_by,
    .wait = tcp_wait,
};

static int tcp_open(int side, struct ftrma_engine **engine)
{
    struct ftrma_tcp *e = calloc(1, sizeof *e);
    if (!e)
        return -ENOMEM;
    e->base.ops = &tcp;
    e->side = side;
    e->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (e->epoll < 0) {
        int error = errno;
        free(e);
        return -error;
    }
    *engine = &e->base;
    return 0;
}

__attribute__((constructor)) static void add_tcp(void)
{
    ftrma_engine_register(&tcp);
}
