/* One connection of the engine over TCP: bytes out, bytes in, whole messages out of these.
 *
 * What is sent is collected up to PUSH bytes, then written; what the socket does not take stays in
 * memory until it does.  A peer that sends requests and does not take the replies is not read from
 * while HELD bytes wait for it.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "message.h"
#include "tcp.h"

#define HEAD sizeof(struct ftrma_wire_head)
#define PUSH (32u << 10)
#define HELD (1u << 20)
#define LEFT (1u << 20) /* read at most of a way that is closed, so that its peer gets our last words */

/* Have at least so much room behind `to`, what is there at the front. 0 or -ENOMEM. */
static int make_room(struct bytes *b, size_t more, size_t least)
{
    if (b->from && b->room - b->to < more) {
        memmove(b->data, b->data + b->from, b->to - b->from);
        b->to -= b->from;
        b->from = 0;
    }
    if (b->room - b->to >= more)
        return 0;
    size_t room = b->to + more > 2 * b->room ? b->to + more : 2 * b->room;
    room = room < least ? least : room;
    char *data = realloc(b->data, room);
    if (!data)
        return -ENOMEM;
    b->data = data;
    b->room = room;
    return 0;
}

void ftrma_tcp_queue(struct ftrma_way *w)
{
    struct ftrma_engine *e = w->engine;
    if (w->ready)
        return;
    w->ready = 1;
    w->turn = 0;
    w->next_ready = NULL;
    *(e->first_ready ? &e->last_ready->next_ready : &e->first_ready) = w;
    e->last_ready = w;
}

void ftrma_tcp_unqueue(struct ftrma_way *w)
{
    struct ftrma_engine *e = w->engine;
    struct ftrma_way **at = &e->first_ready, *before = NULL;
    for (; *at && *at != w; at = &(*at)->next_ready)
        before = *at;
    if (!*at)
        return;
    *at = w->next_ready;
    if (e->last_ready == w)
        e->last_ready = before;
    w->ready = 0;
}

static void fail(struct ftrma_way *w, const char *why)
{
    if (w->gone)
        return;
    w->gone = 1;
    w->failure = w->failure ? w->failure : why;
    w->engine->unsent -= w->out.from != w->out.to;
    w->out.from = w->out.to = 0;
    epoll_ctl(w->engine->epoll, EPOLL_CTL_DEL, w->fd, NULL);
    ftrma_tcp_queue(w);
}

static int is_held(const struct ftrma_way *w)
{
    return w->engine->side == FTRMA_WIRE_REQUESTS && w->out.to - w->out.from > HELD;
}

static void look_for(struct ftrma_way *w)
{
    uint32_t events = (is_held(w) ? 0u : (uint32_t)EPOLLIN)
                      | (w->out.from != w->out.to ? (uint32_t)EPOLLOUT : 0u);
    if (events == w->events || w->gone)
        return;
    struct epoll_event event = {.events = events, .data.ptr = w};
    if (epoll_ctl(w->engine->epoll, EPOLL_CTL_MOD, w->fd, &event))
        fail(w, "epoll has refused it");
    w->events = events;
}

void ftrma_tcp_push(struct ftrma_way *w)
{
    int held = is_held(w);
    while (w->out.from != w->out.to) {
        ssize_t n = send(w->fd, w->out.data + w->out.from, w->out.to - w->out.from,
                         MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno != EAGAIN) {
            fail(w, "the connection is broken");
            return;
        }
        if (n < 0)
            break;
        w->out.from += (size_t)n;
        w->engine->unsent -= w->out.from == w->out.to;
    }
    if (w->out.from == w->out.to) {
        w->out.from = w->out.to = 0;
        if (w->out.room > 2 * PUSH) { /* a peer was slow for a while */
            free(w->out.data);
            w->out = (struct bytes){0};
        }
    }
    look_for(w);
    if (held && !is_held(w))
        ftrma_tcp_queue(w);
}

void ftrma_engine_send(struct ftrma_way *w, const struct ftrma_wire_head *head, const void *payload)
{
    if (w->gone)
        return;
    size_t length = head->length, sent = 0;
    if (length >= PUSH / 2) { /* not copied, if the socket takes it */
        ftrma_tcp_push(w);
        if (!w->gone && w->out.from == w->out.to) {
            struct iovec parts[2] = {{(void *)(uintptr_t)head, HEAD},
                                     {(void *)(uintptr_t)payload, length}};
            struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
            ssize_t n = sendmsg(w->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
            sent = n > 0 ? (size_t)n : 0; /* an error comes again below */
        }
    }
    if (w->gone || sent == HEAD + length)
        return;
    if (make_room(&w->out, HEAD + length - sent, 2 * PUSH)) {
        fail(w, "no memory for what is sent");
        return;
    }
    w->engine->unsent += w->out.from == w->out.to;
    if (sent < HEAD) {
        memcpy(w->out.data + w->out.to, (const char *)head + sent, HEAD - sent);
        w->out.to += HEAD - sent;
        sent = HEAD;
    }
    if (length > sent - HEAD)
        memcpy(w->out.data + w->out.to, (const char *)payload + (sent - HEAD),
               length - (sent - HEAD));
    w->out.to += length - (sent - HEAD);
    if (w->out.to - w->out.from >= PUSH)
        ftrma_tcp_push(w);
}

/* Read what has come.  0: there was nothing. */
static int pull(struct ftrma_way *w, size_t wanted)
{
    int was_long = w->in.room > FTRMA_TCP_ROOM;
    if (w->in.from == w->in.to)
        w->in.from = w->in.to = 0;
    size_t have = w->in.to - w->in.from;
    if (make_room(&w->in, wanted > have ? wanted - have : 1, FTRMA_TCP_ROOM)) {
        fail(w, "no memory for a message");
        return 0;
    }
    w->engine->long_in += !was_long && w->in.room > FTRMA_TCP_ROOM;
    ssize_t n;
    do
        n = recv(w->fd, w->in.data + w->in.to, w->in.room - w->in.to, MSG_DONTWAIT);
    while (n < 0 && errno == EINTR);
    if (n > 0) {
        /* A short read has emptied the socket; epoll tells if it has not. */
        w->readable = (size_t)n == w->in.room - w->in.to;
        w->in.to += (size_t)n;
        return 1;
    }
    w->readable = 0;
    if (n == 0)
        fail(w, w->in.from == w->in.to ? "it was closed" : "it was closed amid a message");
    else if (errno != EAGAIN)
        fail(w, "the connection is broken");
    return 0;
}

int ftrma_tcp_take(struct ftrma_way *w, struct ftrma_wire_head *head, const void **payload)
{
    while (!is_held(w)) {
        size_t have = w->in.to - w->in.from, wanted = HEAD;
        if (have >= HEAD) {
            memcpy(head, w->in.data + w->in.from, HEAD);
            const char *fault = ftrma_message_fault(head, w->engine->side);
            if (fault)
                w->failure = fault; /* what follows means nothing; the peer can be told */
            if (fault)
                return -1;
            wanted += head->length;
        }
        if (have >= HEAD && have >= wanted) {
            *payload = w->in.data + w->in.from + HEAD;
            w->taken = wanted;
            return 1;
        }
        if (w->failure)
            return -1;
        if (!w->readable)
            return 0;
        pull(w, wanted);
    }
    return w->failure ? -1 : 0;
}

void ftrma_way_close(struct ftrma_way *w)
{
    struct ftrma_engine *e = w->engine;
    if (!w->gone)
        ftrma_tcp_push(w); /* its last words, as far as they go */
    char rest[4096];
    for (unsigned read = 0; !w->gone && read < LEFT; read += (unsigned)sizeof rest)
        if (recv(w->fd, rest, sizeof rest, MSG_DONTWAIT) <= 0)
            break;
    ftrma_tcp_unqueue(w);
    struct ftrma_way **at = &e->ways;
    while (*at != w)
        at = &(*at)->next;
    *at = w->next;
    if (e->current == w)
        e->current = NULL;
    e->unsent -= w->out.from != w->out.to;
    e->long_in -= w->in.room > FTRMA_TCP_ROOM;
    close(w->fd);
    free(w->in.data);
    free(w->out.data);
    free(w);
}

const char *ftrma_way_failure(const struct ftrma_way *w)
{
    return w->failure;
}

size_t ftrma_way_unsent(const struct ftrma_way *w)
{
    return w->out.to - w->out.from;
}
