/* The interface of an engine, which carries whole messages over connections.
 *
 * An engine is a table of operations that registers itself (engine.c); tcp.c is one. The rest of
 * the wire calls the functions below and knows nothing of streams: a message arrives whole or not
 * at all, and the messages of a connection arrive in the order in which they were sent. A failed
 * connection reports this once, after its last whole message. A failure does not prove that the
 * other end is dead, and silence does not prove that it is alive. ftrma/docs/add-an-engine.md says
 * how to add an engine.
 */
#ifndef FTRMA_ENGINE_H
#define FTRMA_ENGINE_H

#include "message.h"

/* The first members of the structs by which an engine keeps itself and a connection. */
struct ftrma_engine {
    const struct ftrma_engine_ops *ops;
};
struct ftrma_connection {
    const struct ftrma_engine_ops *ops;
};

/* A connected stream to the other end, which Python has made and authenticated. An engine sends its
   messages over the socket, or both ends use the socket to agree on something else. */
struct ftrma_stream {
    int socket;
};

/* Operations of an engine. None but `wait` ever waits. */
struct ftrma_engine_ops {
    const char *name;

    /* side: which messages may arrive here (message.h). 0 or -errno. */
    int (*open)(int side, struct ftrma_engine **engine);
    /* Closes the engine and all its connections. */
    void (*close)(struct ftrma_engine *engine);

    /* Make a connection from a stream, whose socket belongs to the engine from now on, even if this
       fails. owner: returned with each message that arrives. 0 or -errno. */
    int (*adopt)(struct ftrma_engine *engine, struct ftrma_stream stream, void *owner,
                 struct ftrma_connection **connection);
    /* Send what is left, as far as the other end takes it at once, and then close. */
    void (*disconnect)(struct ftrma_connection *connection);
    /* Why the connection has failed, in words; NULL: it has not. */
    const char *(*failure)(const struct ftrma_connection *connection);
    /* Bytes that the other end has not taken yet. */
    size_t (*unsent)(const struct ftrma_connection *connection);

    /* Send a message, at the latest in the next wait. Only `next` reports a failure. The receiver
       of the message compares its payload with its sum. */
    void (*send)(struct ftrma_connection *connection, const struct ftrma_wire_head *head,
                 const void *payload);
    /* Take the next message, from all connections in turn. 1: there is one, and its payload is
       valid until the next call; 0: there is none; -1: the owner's connection has failed. */
    int (*next)(struct ftrma_engine *engine, void **owner, struct ftrma_wire_head *head,
                const void **payload);

    /* Make every wait end with this result, a bit, as long as the descriptor can be read. The
       descriptor remains the caller's. -EBUSY: the bit already has a descriptor. */
    int (*wake_by)(struct ftrma_engine *engine, int descriptor, int result);
    /* Wait for messages and for the descriptors of `wake_by`. Returns the bits of what has come,
       with FTRMA_WIRE_TRAFFIC for messages; 0: the time is over (-1: never). */
    int (*wait)(struct ftrma_engine *engine, int timeout_ms);
};

/* Add an engine to those that can be opened. The table must stay valid; called before main(). */
void ftrma_engine_register(const struct ftrma_engine_ops *ops);
/* Open the engine of this name. 0; -ENOENT: there is none of the name; another -errno. */
int ftrma_engine_open(const char *name, int side, struct ftrma_engine **engine);
/* The monotonic clock in ns, by which engines and their callers count. */
uint64_t ftrma_engine_ns(void);

static inline void ftrma_engine_close(struct ftrma_engine *engine)
{
    engine->ops->close(engine);
}

static inline int ftrma_engine_adopt(struct ftrma_engine *engine, struct ftrma_stream stream,
                                     void *owner, struct ftrma_connection **connection)
{
    return engine->ops->adopt(engine, stream, owner, connection);
}

static inline int ftrma_engine_next(struct ftrma_engine *engine, void **owner,
                                    struct ftrma_wire_head *head, const void **payload)
{
    return engine->ops->next(engine, owner, head, payload);
}

static inline int ftrma_engine_wake_by(struct ftrma_engine *engine, int descriptor, int result)
{
    return engine->ops->wake_by(engine, descriptor, result);
}

static inline int ftrma_engine_wait(struct ftrma_engine *engine, int timeout_ms)
{
    return engine->ops->wait(engine, timeout_ms);
}

static inline void ftrma_connection_close(struct ftrma_connection *connection)
{
    connection->ops->disconnect(connection);
}

static inline const char *ftrma_connection_failure(const struct ftrma_connection *connection)
{
    return connection->ops->failure(connection);
}

static inline size_t ftrma_connection_unsent(const struct ftrma_connection *connection)
{
    return connection->ops->unsent(connection);
}

static inline void ftrma_connection_send(struct ftrma_connection *connection,
                                         const struct ftrma_wire_head *head, const void *payload)
{
    struct ftrma_wire_head sealed = *head;
    ftrma_message_seal(&sealed, payload);
    connection->ops->send(connection, &sealed, payload);
}

#endif
