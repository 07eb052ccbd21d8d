/* The peers of an agent.  Each origin has one connection, the newest. */
#include "peer.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "grant.h"

static void free_peer(struct ftrma_peer *p)
{
    for (uint32_t t = 0; p->unacknowledged && t < p->agent->ledger->header->targets; t++)
        free(p->unacknowledged[t]);
    free(p->unacknowledged);
    free(p->refused);
    free(p->resends);
    free(p);
}

void ftrma_peer_leave(struct ftrma_peer *p)
{
    struct ftrma_agent *a = p->agent;
    ftrma_grant_drop(a, p, -1, NULL);
    struct ftrma_peer **at = p->is_agent ? &a->nodes : &a->peers;
    a->hub_lost |= p->is_agent && a->node;
    while (*at != p)
        at = &(*at)->next;
    *at = p->next;
    ftrma_connection_close(p->connection);
    free_peer(p);
    /* The peer may have been first in the queue for a lock. */
    for (uint32_t i = 0; a->parked && i < a->ledger->header->parts; i++)
        ftrma_grant_next(a, (int)i);
}

int ftrma_agent_adopt(struct ftrma_agent *a, int fd, uint32_t origin, uint64_t incarnation)
{
    struct ftrma_ledger *l = a->ledger;
    int error = origin >= l->header->origins              ? -EINVAL
                : incarnation < l->incarnations[origin] ? -ESTALE
                                                          : 0;
    struct ftrma_peer *p = error ? NULL : calloc(1, sizeof *p);
    if (p) {
        p->agent = a;
        p->origin = origin;
        p->refused = calloc(l->header->targets, 1);
        p->resends = calloc(l->header->targets, sizeof *p->resends);
        p->unacknowledged = calloc(l->header->targets, sizeof *p->unacknowledged);
    }
    if (!p || !p->refused || !p->resends || !p->unacknowledged) {
        if (p)
            free_peer(p);
        close(fd);
        return error ? error : -ENOMEM;
    }
    error = ftrma_engine_adopt(a->engine, (struct ftrma_stream){fd}, p, &p->connection);
    if (error) {
        free_peer(p);
        return error;
    }
    /* Messages of the previous connection that were not read are lost: the origin sends them again,
       or its process is dead, and its requests count up to the number alone that has taken
       effect. */
    STORE(&l->incarnations[origin], incarnation);
    for (struct ftrma_peer *other = a->peers, *next; other; other = next) {
        next = other->next;
        if (other->origin == origin)
            ftrma_peer_leave(other);
    }
    p->next = a->peers;
    a->peers = p;
    return 0;
}
