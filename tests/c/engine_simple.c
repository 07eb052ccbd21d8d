/* A second engine, small and slow: the example of the page ftrma/docs/add-an-engine.md.
 *
 * It sends messages over the stream itself, as tcp.c does, but by poll() and without any look
 * ahead.  tests/unit/native/test_wire_engines.py compiles it into a library of its own, and runs the
 * wire's tests over it.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "engine.h"
#include "message.h"

#define HEAD sizeof(struct ftrma_wire_head)
#define PIECE 65536        /* bytes that are read at once */
#define UNTAKEN (1u << 20) /* bytes of replies; whoever leaves more untaken is not read from */
#define MOST_CONNECTIONS 1024

struct bytes {
    char *data;
    size_t n, room;
};

struct simple_connection {
    struct ftrma_connection base;
    struct simple *engine;
    void *owner;
    const char *failure;
    struct bytes in, out;
    size_t taken; /* bytes of the message that was returned last */
    int socket, broken, told;
};

struct simple {
    struct ftrma_engine base;
    int side, nwakers, wakers[4], results[4];
    size_t n, turn; /* turn: the connection that is asked first */
    struct simple_connection *connections[MOST_CONNECTIONS];
};

static int append(struct bytes *b, const void *data, size_t n)
{
    if (b->n + n > b->room) {
        char *grown = realloc(b->data, 2 * (b->n + n));
        if (!grown)
            return -ENOMEM;
        b->data = grown;
        b->room = 2 * (b->n + n);
    }
    memcpy(b->data + b->n, data, n);
    b->n += n;
    return 0;
}

static void drop(struct bytes *b, size_t n)
{
    b->n -= n;
    memmove(b->data, b->data + n, b->n);
}

static void fail(struct simple_connection *c, const char *why)
{
    c->broken = 1;
    c->failure = c->failure ? c->failure : why;
    c->out.n = 0;
}

static void push(struct simple_connection *c)
{
    while (c->out.n && !c->broken) {
        ssize_t n = send(c->socket, c->out.data, c->out.n, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EAGAIN)
            return;
        if (n < 0 && errno != EINTR)
            fail(c, "the connection is broken");
        if (n > 0)
            drop(&c->out, (size_t)n);
    }
}

static int is_held(const struct simple_connection *c)
{
    return c->engine->side == FTRMA_WIRE_REQUESTS && c->out.n > UNTAKEN;
}

/* The length of the first message. 0: it is not whole. */
static size_t whole(struct simple_connection *c, struct ftrma_wire_head *head)
{
    if (c->in.n - c->taken < HEAD)
        return 0;
    memcpy(head, c->in.data + c->taken, HEAD);
    const char *fault = ftrma_message_fault(head, c->engine->side);
    if (fault)
        c->failure = fault;
    return !fault && c->in.n - c->taken >= HEAD + head->length ? HEAD + head->length : 0;
}

/* Read what has come, as long as no message is whole. 0: there is none. */
static size_t pull(struct simple_connection *c, struct ftrma_wire_head *head)
{
    char piece[PIECE];
    size_t n = 0;
    while (!is_held(c) && !(n = whole(c, head)) && !c->failure) {
        ssize_t got = recv(c->socket, piece, sizeof piece, MSG_DONTWAIT);
        if (got < 0 && errno == EAGAIN)
            return 0;
        if (got == 0)
            fail(c, c->in.n > c->taken ? "it was closed amid a message" : "it was closed");
        else if (got < 0 && errno != EINTR)
            fail(c, "the connection is broken");
        else if (got > 0 && append(&c->in, piece, (size_t)got))
            fail(c, "no memory for a message");
    }
    return n;
}

static int simple_next(struct ftrma_engine *engine, void **owner, struct ftrma_wire_head *head,
                      const void **payload)
{
    struct simple *e = (void *)engine;
    for (size_t i = 0; i < e->n; i++)
        if (e->connections[i]->taken) {
            drop(&e->connections[i]->in, e->connections[i]->taken);
            e->connections[i]->taken = 0;
        }
    for (size_t i = 0; i < e->n; i++) {
        struct simple_connection *c = e->connections[e->turn++ % e->n];
        size_t n = pull(c, head);
        *owner = c->owner;
        if (n) {
            *payload = c->in.data + HEAD;
            c->taken = n;
            return 1;
        }
        if (c->failure && !c->told) {
            c->told = 1;
            return -1;
        }
    }
    return 0;
}

static int simple_wait(struct ftrma_engine *engine, int timeout_ms)
{
    struct simple *e = (void *)engine;
    struct pollfd polled[MOST_CONNECTIONS + 4];
    int found = 0;
    for (size_t i = 0; i < e->n; i++) {
        struct simple_connection *c = e->connections[i];
        struct ftrma_wire_head head;
        push(c);
        found |= (!is_held(c) && whole(c, &head)) || (c->failure && !c->told);
        short events = (short)((is_held(c) ? 0 : POLLIN) | (c->out.n ? POLLOUT : 0));
        polled[i] = (struct pollfd){.fd = c->failure ? -1 : c->socket, .events = events};
    }
    for (int i = 0; i < e->nwakers; i++)
        polled[e->n + (size_t)i] = (struct pollfd){.fd = e->wakers[i], .events = POLLIN};
    int n = poll(polled, e->n + (nfds_t)e->nwakers, found ? 0 : timeout_ms);
    found = found ? FTRMA_WIRE_TRAFFIC : 0;
    for (size_t i = 0; n > 0 && i < e->n; i++)
        found |= polled[i].revents ? FTRMA_WIRE_TRAFFIC : 0;
    for (int i = 0; n > 0 && i < e->nwakers; i++)
        found |= polled[e->n + (size_t)i].revents ? e->results[i] : 0;
    return found;
}

static int simple_wake_by(struct ftrma_engine *engine, int descriptor, int result)
{
    struct simple *e = (void *)engine;
    for (int i = 0; i < e->nwakers; i++)
        if (e->results[i] == result)
            return -EBUSY;
    if (e->nwakers == 4)
        return -EBUSY;
    e->wakers[e->nwakers] = descriptor;
    e->results[e->nwakers++] = result;
    return 0;
}

static int simple_adopt(struct ftrma_engine *engine, struct ftrma_stream stream, void *owner,
                       struct ftrma_connection **connection)
{
    struct simple *e = (void *)engine;
    struct simple_connection *c = e->n < MOST_CONNECTIONS ? calloc(1, sizeof *c) : NULL;
    if (!c || fcntl(stream.socket, F_SETFD, FD_CLOEXEC)) {
        int error = c ? errno : ENOMEM;
        free(c);
        close(stream.socket);
        return -error;
    }
    c->base.ops = engine->ops;
    c->engine = e;
    c->owner = owner;
    c->socket = stream.socket;
    e->connections[e->n++] = c;
    *connection = &c->base;
    return 0;
}

static void simple_disconnect(struct ftrma_connection *connection)
{
    struct simple_connection *c = (void *)connection;
    struct simple *e = c->engine;
    char rest[4096];
    push(c);
    /* Unread bytes would have the kernel reset the connection, and lose the last words. */
    for (int i = 0; i < 256 && recv(c->socket, rest, sizeof rest, MSG_DONTWAIT) > 0; i++)
        ;
    for (size_t i = 0; i < e->n; i++)
        if (e->connections[i] == c)
            e->connections[i--] = e->connections[--e->n];
    close(c->socket);
    free(c->in.data);
    free(c->out.data);
    free(c);
}

static const char *simple_failure(const struct ftrma_connection *connection)
{
    return ((const struct simple_connection *)(const void *)connection)->failure;
}

static size_t simple_unsent(const struct ftrma_connection *connection)
{
    return ((const struct simple_connection *)(const void *)connection)->out.n;
}

static void simple_send(struct ftrma_connection *connection, const struct ftrma_wire_head *head,
                       const void *payload)
{
    struct simple_connection *c = (void *)connection;
    if (c->broken)
        return;
    if (append(&c->out, head, HEAD) || (head->length && append(&c->out, payload, head->length)))
        fail(c, "no memory for what is sent");
    else
        push(c);
}

static void simple_close(struct ftrma_engine *engine)
{
    struct simple *e = (void *)engine;
    while (e->n)
        simple_disconnect(&e->connections[0]->base);
    free(e);
}

static int simple_open(int side, struct ftrma_engine **engine);

static const struct ftrma_engine_ops simple = {
    .name = "simple",
    .open = simple_open,
    .close = simple_close,
    .adopt = simple_adopt,
    .disconnect = simple_disconnect,
    .failure = simple_failure,
    .unsent = simple_unsent,
    .send = simple_send,
    .next = simple_next,
    .wake_by = simple_wake_by,
    .wait = simple_wait,
};

static int simple_open(int side, struct ftrma_engine **engine)
{
    struct simple *e = calloc(1, sizeof *e);
    if (!e)
        return -ENOMEM;
    e->base.ops = &simple;
    e->side = side;
    *engine = &e->base;
    return 0;
}

__attribute__((constructor)) static void add_plain(void)
{
    ftrma_engine_register(&simple);
}
