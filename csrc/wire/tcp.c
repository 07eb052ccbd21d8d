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

#include "tcp.h"

#define SPIN_NS 100000
#define TURN_NS 10000 /* a look takes 1 us; what takes so long was another process's turn */
#define TURN 64       /* messages of one way before the next one's turn */
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
    for (struct ftrma_way *w; (w = e->first_ready);) {
        int got = ftrma_tcp_take(w, head, payload);
        if (got != 1 || ++w->turn >= TURN) {
            ftrma_tcp_unqueue(w);
            if (got == 1)
                ftrma_tcp_queue(w);
        }
        *owner = w->owner;
        if (got == 1) {
            e->current = w;
            return 1;
        }
        if (got < 0 && !w->told) {
            w->told = 1;
            return -1;
        }
    }
    return 0;
}

int ftrma_engine_adopt(struct ftrma_engine *e, int fd, void *owner, struct ftrma_way **way)
{
    int one = 1, flags = fcntl(fd, F_GETFL);
    struct ftrma_way *w = calloc(1, sizeof *w);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = w};
    if (!w || flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK)
        || fcntl(fd, F_SETFD, FD_CLOEXEC) || epoll_ctl(e->epoll, EPOLL_CTL_ADD, fd, &event)) {
        int error = w ? errno : ENOMEM;
        free(w);
        close(fd);
        return -error;
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one); /* a socketpair has none */
    w->engine = e;
    w->fd = fd;
    w->owner = owner;
    w->events = EPOLLIN;
    w->next = e->ways;
    e->ways = w;
    *way = w;
    return 0;
}

/* Before a sleep: no memory is kept for long messages that are over. */
static void shrink(struct ftrma_engine *e)
{
    for (struct ftrma_way *w = e->ways; w && e->long_in; w = w->next)
        if (w->in.room > FTRMA_TCP_ROOM && w->in.from == w->in.to && w != e->current) {
            free(w->in.data);
            w->in = (struct bytes){0};
            e->long_in--;
        }
}

static int look(struct ftrma_engine *e, int timeout_ms)
{
    struct epoll_event events[EVENTS];
    int found = 0, n = epoll_wait(e->epoll, events, EVENTS, timeout_ms);
    for (int i = 0; i < n; i++) {
        struct ftrma_way *w = events[i].data.ptr;
        if (!w)
            found |= FTRMA_WIRE_RUNG;
        else if ((void *)w == (void *)e)
            found |= FTRMA_WIRE_KNOCK;
        else if (!w->gone) {
            if (events[i].events & (uint32_t)(EPOLLOUT | EPOLLERR | EPOLLHUP))
                ftrma_tcp_push(w);
            if (events[i].events & ~(uint32_t)EPOLLOUT) {
                w->readable = 1;
                ftrma_tcp_queue(w);
            }
        }
    }
    return found | (e->first_ready ? FTRMA_WIRE_TRAFFIC : 0);
}

static void push_all(struct ftrma_engine *e)
{
    for (struct ftrma_way *w = e->ways; w && e->unsent; w = w->next)
        if (!w->gone && w->out.from != w->out.to && !(w->events & (uint32_t)EPOLLOUT))
            ftrma_tcp_push(w);
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
    while (e->ways)
        ftrma_way_close(e->ways);
    if (e->epoll >= 0)
        close(e->epoll);
    if (e->alarm >= 0 && !e->borrowed)
        close(e->alarm);
    free(e);
}
