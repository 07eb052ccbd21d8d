/* The engine over TCP: sockets that never block, epoll, one eventfd for the alarm. See engine.h.
 *
 * After traffic a wait looks for SPIN_NS before it sleeps: on a quiet machine to be woken costs 26 to
 * 100 us, measured, where looking costs 11 to 16.  Where another process had the core meanwhile, looking
 * on would only take it from the one that is waited for, so then it sleeps at once.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "tcp_connection.h"

#define SPIN_NS 100000
#define TURN_NS 10000 /* a look takes 1 us; what takes so long was another process's turn */
#define TURN 64       /* messages of one connection before the next one's turn */
#define EVENTS 32

uint64_t ftrma_engine_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

int ftrma_engine_next(struct ftrma_engine *e, void **owner, struct ftrma_wire_head *head,
                      const void **payload)
{
    if (e->current) {
        e->current->in.from += e->current->taken;
        e->current->taken = 0;
        e->current = NULL;
    }
    for (struct ftrma_connection *c; (c = e->first_ready);) {
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

int ftrma_engine_adopt(struct ftrma_engine *e, int fd, void *owner,
                       struct ftrma_connection **connection)
{
    int one = 1, flags = fcntl(fd, F_GETFL);
    struct ftrma_connection *c = calloc(1, sizeof *c);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
    if (!c || flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) || fcntl(fd, F_SETFD, FD_CLOEXEC)
        || epoll_ctl(e->epoll, EPOLL_CTL_ADD, fd, &event)) {
        int error = c ? errno : ENOMEM;
        free(c);
        close(fd);
        return -error;
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one); /* a socketpair has none */
    c->engine = e;
    c->fd = fd;
    c->owner = owner;
    c->events = EPOLLIN;
    c->next = e->connections;
    e->connections = c;
    *connection = c;
    return 0;
}

/* Before a sleep: no memory is kept for long messages that are over. */
static void shrink(struct ftrma_engine *e)
{
    for (struct ftrma_connection *c = e->connections; c && e->long_in; c = c->next)
        if (c->in.room > FTRMA_TCP_ROOM && c->in.from == c->in.to && c != e->current) {
            free(c->in.data);
            c->in = (struct ftrma_tcp_buffer){0};
            e->long_in--;
        }
}

static int look(struct ftrma_engine *e, int timeout_ms)
{
    struct epoll_event events[EVENTS];
    int found = 0, n = epoll_wait(e->epoll, events, EVENTS, timeout_ms);
    for (int i = 0; i < n; i++) {
        struct ftrma_connection *c = events[i].data.ptr;
        if (!c)
            found |= FTRMA_WIRE_RUNG;
        else if ((void *)c == (void *)e)
            found |= FTRMA_WIRE_WATCHED;
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

static void push_all(struct ftrma_engine *e)
{
    for (struct ftrma_connection *c = e->connections; c && e->unsent; c = c->next)
        if (!c->gone && c->out.from != c->out.to && !(c->events & (uint32_t)EPOLLOUT))
            ftrma_tcp_push(c);
}

int ftrma_engine_wait(struct ftrma_engine *e, int timeout_ms)
{
    push_all(e);
    int found = look(e, 0);
    uint64_t now = ftrma_engine_ns();
    while (!found && timeout_ms && now - e->traffic_ns < SPIN_NS) {
        sched_yield();
        found = look(e, 0);
        uint64_t before = now;
        if ((now = ftrma_engine_ns()) - before > TURN_NS)
            break;
    }
    if (!found && timeout_ms) {
        shrink(e);
        found = look(e, timeout_ms);
    }
    if (found)
        e->traffic_ns = ftrma_engine_ns();
    return found;
}

int ftrma_engine_watch(struct ftrma_engine *e, int fd)
{
    if (e->watched >= 0)
        return -EBUSY;
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = e};
    if (epoll_ctl(e->epoll, EPOLL_CTL_ADD, fd, &event))
        return -errno;
    e->watched = fd;
    return 0;
}

int ftrma_engine_alarm(const struct ftrma_engine *e)
{
    return e->alarm;
}

int ftrma_engine_open(int side, int alarm, struct ftrma_engine **engine)
{
    struct ftrma_engine *e = calloc(1, sizeof *e);
    if (!e)
        return -ENOMEM;
    struct epoll_event event = {.events = EPOLLIN};
    e->side = side;
    e->watched = -1;
    e->epoll = epoll_create1(EPOLL_CLOEXEC);
    e->alarm = alarm >= 0 ? alarm : eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    e->borrowed = alarm >= 0;
    if (e->epoll < 0 || e->alarm < 0
        || epoll_ctl(e->epoll, EPOLL_CTL_ADD, e->alarm, &event)) {
        int error = errno;
        ftrma_engine_close(e);
        return -error;
    }
    *engine = e;
    return 0;
}

void ftrma_engine_close(struct ftrma_engine *e)
{
    while (e->connections)
        ftrma_connection_close(e->connections);
    if (e->epoll >= 0)
        close(e->epoll);
    if (e->alarm >= 0 && !e->borrowed)
        close(e->alarm);
    free(e);
}
