/* What an engine over TCP is made of, for the two files that are one (tcp.c, connection.c). */
#ifndef FTRMA_TCP_CONNECTION_H
#define FTRMA_TCP_CONNECTION_H

#include "engine.h"

#define FTRMA_TCP_ROOM (32u << 10) /* of a connection's input; more while a long message comes */

struct ftrma_tcp_buffer {
    char *data;
    size_t from, to, room;
};

struct ftrma_connection {
    struct ftrma_engine *engine;
    struct ftrma_connection *next; /* of all */
    struct ftrma_connection *next_ready;
    void *owner;
    const char *failure;
    struct ftrma_tcp_buffer in, out;
    size_t taken; /* of the message that was handed over last */
    int fd;
    int gone;     /* the connection is broken; without it a failure is a message's */
    int ready;    /* is in the queue */
    int readable; /* there may be something in the socket */
    int told;     /* the failure was */
    int turn;     /* messages since it is at the head of the queue */
    uint32_t events; /* that epoll looks for */
};

struct ftrma_engine {
    int side, epoll, alarm, watched;
    int borrowed; /* the alarm is its owner's */
    struct ftrma_connection *connections;
    struct ftrma_connection *first_ready, *last_ready; /* those with messages, maybe */
    struct ftrma_connection *current;                  /* whose message was handed over last */
    uint64_t traffic_ns;                        /* when something last came */
    unsigned unsent, long_in; /* connections with output; with a long input */
};

/* The queue of those that may have messages. */
void ftrma_tcp_queue(struct ftrma_connection *connection);
void ftrma_tcp_unqueue(struct ftrma_connection *connection);

/* Write what waits, as far as the socket takes it. */
void ftrma_tcp_push(struct ftrma_connection *connection);

/* Take a whole message out of what has come, reading if need be. 1; 0: none; -1: it has failed. */
int ftrma_tcp_take(struct ftrma_connection *connection, struct ftrma_wire_head *head,
                   const void **payload);

#endif
