/* One connection of the engine over TCP, and what it shares with the engine (tcp_connection.c). */
#ifndef FTRMA_TCP_CONNECTION_H
#define FTRMA_TCP_CONNECTION_H

#include "engine.h"

#define FTRMA_TCP_ROOM (32u << 10) /* bytes of input that a connection keeps room for */
#define FTRMA_TCP_WAKERS 2         /* descriptors that a wait can watch beside connections */

struct ftrma_tcp_buffer {
    char *data;
    size_t from, to, room;
};

struct ftrma_tcp_connection {
    struct ftrma_connection base;
    struct ftrma_tcp *engine;
    struct ftrma_tcp_connection *next; /* of all */
    struct ftrma_tcp_connection *next_ready;
    void *owner;
    const char *failure;
    struct ftrma_tcp_buffer in, out;
    size_t taken; /* bytes of the message that was last handed over */
    int socket;
    int gone;        /* the socket is broken; a failure without this is due to a message */
    int ready;       /* it is in the queue of connections that may have messages */
    int readable;    /* there may be something in the socket */
    int told;        /* the failure was reported */
    int turn;        /* messages taken since it is at the head of the queue */
    uint32_t events; /* that epoll looks for */
};

struct ftrma_tcp {
    struct ftrma_engine base;
    int side, epoll;
    int wakers[FTRMA_TCP_WAKERS]; /* results of a wait; their addresses are used as epoll's data */
    struct ftrma_tcp_connection *connections;
    struct ftrma_tcp_connection *first_ready, *last_ready; /* those that may have messages */
    struct ftrma_tcp_connection *current; /* whose message was handed over last */
    uint64_t traffic_ns;                  /* when something has come last */
    unsigned unsent, long_in;             /* number of connections with output; with a long input */
};

/* Put a connection into the queue of those that may have messages, and take it out. */
void ftrma_tcp_queue(struct ftrma_tcp_connection *connection);
void ftrma_tcp_unqueue(struct ftrma_tcp_connection *connection);

/* Write what is to be sent, as far as the socket takes it. */
void ftrma_tcp_push(struct ftrma_tcp_connection *connection);
/* Take a whole message out of the input; read from the socket if need be. 1: it is there; 0: there
   is none; -1: the connection has failed. */
int ftrma_tcp_take(struct ftrma_tcp_connection *connection, struct ftrma_wire_head *head,
                   const void **payload);

/* Operations of the engine, see engine.h. */
void ftrma_tcp_disconnect(struct ftrma_connection *connection);
const char *ftrma_tcp_failure(const struct ftrma_connection *connection);
size_t ftrma_tcp_unsent(const struct ftrma_connection *connection);
void ftrma_tcp_send(struct ftrma_connection *connection, const struct ftrma_wire_head *head,
                    const void *payload);

#endif
