/* A connection of the engine over TCP: bytes out, bytes in, and the messages that they make.
 *
 * Messages are collected up to PUSH bytes, then written. Bytes that the socket does not take stay
 * in memory until it does. An agent does not read from a peer while UNTAKEN bytes wait for it, so
 * that a peer that sends requests and takes no replies cannot fill the memory.
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
#include "tcp_connection.h"

#define HEAD sizeof(struct ftrma_wire_head)
#define PUSH (32u << 10)
#define UNTAKEN (1u << 20)
#define LEFT (1u << 20) /* read at most before a close, so that the peer gets the last words */

static struct ftrma_tcp_connection *tcp_connection_of(struct ftrma_connection *connection)
{
    return (struct ftrma_tcp_connection *)(void *)connection;
}

/* Make room for `more` bytes after `to`. least: the least size of a buffer that is made larger.
   Returns 0 or -ENOMEM. */
static int make_room(struct ftrma_tcp_buffer *b, size_t more, size_t least)
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

void ftrma_tcp_queue(struct ftrma_tcp_connection *c)
{
    struct ftrma_tcp *e = c->engine;
    if (c->ready)
        return;
    c->ready = 1;
    c->turn = 0;
    c->next_ready = NULL;
    *(e->first_ready ? &e->last_ready->next_ready : &e->first_ready) = c;
    e->last_ready = c;
}

void ftrma_tcp_unqueue(struct ftrma_tcp_connection *c)
{
    struct ftrma_tcp *e = c->engine;
    struct ftrma_tcp_connection **at = &e->first_ready, *before = NULL;
    for (; *at && *at != c; at = &(*at)->next_ready)
        before = *at;
    if (!*at)
        return;
    *at = c->next_ready;
    if (e->last_ready == c)
        e->last_ready = before;
    c->ready = 0;
}

static void fail(struct ftrma_tcp_connection *c, const char *why)
{
    if (c->gone)
        return;
    c->gone = 1;
    c->failure = c->failure ? c->failure : why;
    c->engine->unsent -= c->out.from != c->out.to;
    c->out.from = c->out.to = 0;
    epoll_ctl(c->engine->epoll, EPOLL_CTL_DEL, c->socket, NULL);
    ftrma_tcp_queue(c);
}

static int is_held(const struct ftrma_tcp_connection *c)
{
    return c->engine->side == FTRMA_WIRE_REQUESTS && c->out.to - c->out.from > UNTAKEN;
}

static void set_events(struct ftrma_tcp_connection *c)
{
    uint32_t events = (is_held(c) ? 0u : (uint32_t)EPOLLIN)
                      | (c->out.from != c->out.to ? (uint32_t)EPOLLOUT : 0u);
    if (events == c->events || c->gone)
        return;
    struct epoll_event event = {.events = events, .data.ptr = c};
    if (epoll_ctl(c->engine->epoll, EPOLL_CTL_MOD, c->socket, &event))
        fail(c, "epoll has refused it");
    c->events = events;
}

void ftrma_tcp_push(struct ftrma_tcp_connection *c)
{
    int held = is_held(c);
    while (c->out.from != c->out.to) {
        ssize_t n = send(c->socket, c->out.data + c->out.from, c->out.to - c->out.from,
                         MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno != EAGAIN) {
            fail(c, "the connection is broken");
            return;
        }
        if (n < 0)
            break;
        c->out.from += (size_t)n;
        c->engine->unsent -= c->out.from == c->out.to;
    }
    if (c->out.from == c->out.to) {
        c->out.from = c->out.to = 0;
        if (c->out.room > 2 * PUSH) { /* a peer was slow for a while */
            free(c->out.data);
            c->out = (struct ftrma_tcp_buffer){0};
        }
    }
    set_events(c);
    if (held && !is_held(c))
        ftrma_tcp_queue(c);
}

void ftrma_tcp_send(struct ftrma_connection *connection, const struct ftrma_wire_head *head,
                    const void *payload)
{
    struct ftrma_tcp_connection *c = tcp_connection_of(connection);
    if (c->gone)
        return;
    size_t length = head->length, sent = 0;
    if (length >= PUSH / 2) { /* it is not copied if the socket takes all */
        ftrma_tcp_push(c);
        if (!c->gone && c->out.from == c->out.to) {
            struct iovec parts[2] = {{(void *)(uintptr_t)head, HEAD},
                                     {(void *)(uintptr_t)payload, length}};
            struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
            ssize_t n = sendmsg(c->socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
            sent = n > 0 ? (size_t)n : 0; /* an error is found again at the next push */
        }
    }
    if (c->gone || sent == HEAD + length)
        return;
    if (make_room(&c->out, HEAD + length - sent, 2 * PUSH)) {
        fail(c, "no memory for what is sent");
        return;
    }
    c->engine->unsent += c->out.from == c->out.to;
    if (sent < HEAD) {
        memcpy(c->out.data + c->out.to, (const char *)head + sent, HEAD - sent);
        c->out.to += HEAD - sent;
        sent = HEAD;
    }
    if (length > sent - HEAD)
        memcpy(c->out.data + c->out.to, (const char *)payload + (sent - HEAD),
               length - (sent - HEAD));
    c->out.to += length - (sent - HEAD);
    if (c->out.to - c->out.from >= PUSH)
        ftrma_tcp_push(c);
}

/* Read the bytes that have come. Returns 0 if there are none. */
static int pull(struct ftrma_tcp_connection *c, size_t wanted)
{
    int was_long = c->in.room > FTRMA_TCP_ROOM;
    if (c->in.from == c->in.to)
        c->in.from = c->in.to = 0;
    size_t have = c->in.to - c->in.from;
    if (make_room(&c->in, wanted > have ? wanted - have : 1, FTRMA_TCP_ROOM)) {
        fail(c, "no memory for a message");
        return 0;
    }
    c->engine->long_in += !was_long && c->in.room > FTRMA_TCP_ROOM;
    ssize_t n;
    do
        n = recv(c->socket, c->in.data + c->in.to, c->in.room - c->in.to, MSG_DONTWAIT);
    while (n < 0 && errno == EINTR);
    if (n > 0) {
        /* A short read has emptied the socket; epoll tells when more has come. */
        c->readable = (size_t)n == c->in.room - c->in.to;
        c->in.to += (size_t)n;
        return 1;
    }
    c->readable = 0;
    if (n == 0)
        fail(c, c->in.from == c->in.to ? "it was closed" : "it was closed amid a message");
    else if (errno != EAGAIN)
        fail(c, "the connection is broken");
    return 0;
}

int ftrma_tcp_take(struct ftrma_tcp_connection *c, struct ftrma_wire_head *head,
                   const void **payload)
{
    while (!is_held(c)) {
        size_t have = c->in.to - c->in.from, wanted = HEAD;
        if (have >= HEAD) {
            memcpy(head, c->in.data + c->in.from, HEAD);
            const char *fault = ftrma_message_fault(head, c->engine->side);
            if (fault)
                c->failure = fault; /* bytes after it mean nothing; the peer is still told */
            if (fault)
                return -1;
            wanted += head->length;
        }
        if (have >= HEAD && have >= wanted) {
            *payload = c->in.data + c->in.from + HEAD;
            c->taken = wanted;
            return 1;
        }
        if (c->failure)
            return -1;
        if (!c->readable)
            return 0;
        pull(c, wanted);
    }
    return c->failure ? -1 : 0;
}

void ftrma_tcp_disconnect(struct ftrma_connection *connection)
{
    struct ftrma_tcp_connection *c = tcp_connection_of(connection);
    struct ftrma_tcp *e = c->engine;
    if (!c->gone)
        ftrma_tcp_push(c); /* the last words, as far as the socket takes them */
    char rest[4096];
    for (unsigned read = 0; !c->gone && read < LEFT; read += (unsigned)sizeof rest)
        if (recv(c->socket, rest, sizeof rest, MSG_DONTWAIT) <= 0)
            break;
    ftrma_tcp_unqueue(c);
    struct ftrma_tcp_connection **at = &e->connections;
    while (*at != c)
        at = &(*at)->next;
    *at = c->next;
    if (e->current == c)
        e->current = NULL;
    e->unsent -= c->out.from != c->out.to;
    e->long_in -= c->in.room > FTRMA_TCP_ROOM;
    close(c->socket);
    free(c->in.data);
    free(c->out.data);
    free(c);
}

const char *ftrma_tcp_failure(const struct ftrma_connection *connection)
{
    return ((const struct ftrma_tcp_connection *)(const void *)connection)->failure;
}

size_t ftrma_tcp_unsent(const struct ftrma_connection *connection)
{
    const struct ftrma_tcp_connection *c = (const void *)connection;
    return c->out.to - c->out.from;
}
