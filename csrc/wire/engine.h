/* An engine: ordered whole messages over connections, their failure, and one place to sleep (tcp.c).
 *
 * Above it nothing knows of streams: a message arrives whole or not at all, and those of a connection
 * in the order in which they were sent.  A failed connection says so once, behind its last whole
 * message; that is no proof of a death, nor is silence of life.  Connections are made and
 * authenticated before (Python); both ends hand the descriptor over, from which another engine than
 * TCP may make what it needs.
 */
#ifndef FTRMA_ENGINE_H
#define FTRMA_ENGINE_H

#include "wire.h"

struct ftrma_engine;
struct ftrma_connection; /* one connection */

/* side: what may arrive here (message.h). alarm: a descriptor that stays the caller's, -1: an eventfd
   of its own. 0 or -errno. */
int ftrma_engine_open(int side, int alarm, struct ftrma_engine **engine);
void ftrma_engine_close(struct ftrma_engine *engine); /* with all its connections */

/* Make a connection of a connected descriptor, which is the engine's from now on. 0 or -errno.
   owner: told with what arrives. */
int ftrma_engine_adopt(struct ftrma_engine *engine, int fd, void *owner,
                       struct ftrma_connection **connection);
void ftrma_connection_close(struct ftrma_connection *connection);
/* Why it has failed, NULL: it has not. */
const char *ftrma_connection_failure(const struct ftrma_connection *connection);

/* Bytes that its peer has not taken yet. */
size_t ftrma_connection_unsent(const struct ftrma_connection *connection);

/* Send a message; never waits.  It leaves at the latest with the next wait.  The failure of a connection is
   told by ftrma_engine_next() alone. */
void ftrma_engine_send(struct ftrma_connection *connection, const struct ftrma_wire_head *head,
                       const void *payload);

/* The next message, in turn from all connections. 1: there is one, valid until the next call; 0: none; -1:
   this connection has failed. */
int ftrma_engine_next(struct ftrma_engine *engine, void **owner, struct ftrma_wire_head *head,
                      const void **payload);

/* Wait for messages, the alarm, or the watched descriptor, whichever comes first: bits of
   FTRMA_WIRE_TRAFFIC and so on; 0: milliseconds have passed (-1: never). */
int ftrma_engine_wait(struct ftrma_engine *engine, int timeout_ms);
/* The monotonic clock by which engines and who waits for them count. */
uint64_t ftrma_engine_ns(void);
int ftrma_engine_watch(struct ftrma_engine *engine, int fd);
/* The alarm; while there is something to read, every wait ends. */
int ftrma_engine_alarm(const struct ftrma_engine *engine);

#endif
