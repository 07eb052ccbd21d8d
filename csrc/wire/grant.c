/* Locks are granted in the order in which they were asked for; shared ones that follow each other
 * together.  Who holds what lies in the ledger; who waits is lost with the agent, and asks again.
 */
#include "grant.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "reply.h"
#include "strike.h"

/* Whether the origin can have the lock beside those that hold it.  Its own hold, which an agent gave
   that died before it stored the number, is no obstacle. */
static int is_free(const struct ftrma_ledger *l, int part, uint32_t origin, int shared)
{
    for (uint32_t o = 0; o < l->header->origins; o++) {
        unsigned char holds = *ftrma_ledger_hold(l, (uint32_t)part, o);
        if (o != origin && holds
            && (!shared || holds == FTRMA_HOLDS_EXCLUSIVE))
            return 0;
    }
    return 1;
}

static int waits_for_lock(const struct ftrma_parked *p, int part)
{
    return p->part == part && p->head.kind == FTRMA_WIRE_LOCK;
}

static void done(struct ftrma_peer *peer, const struct ftrma_wire_head *head)
{
    struct ftrma_agent *agent = peer->agent;
    ftrma_strike(agent, FTRMA_WIRE_AT_GRANT);
    STORE(&ftrma_ledger_pair(agent->ledger, peer->origin, head->target)->number, head->number);
    ftrma_strike(agent, FTRMA_WIRE_AT_LOCKED);
    ftrma_reply_acks(peer, head->target, 0);
    ftrma_reply(peer, head, FTRMA_WIRE_DONE, 0, NULL, 0);
}

static void grant(struct ftrma_peer *peer, const struct ftrma_wire_head *head, int part)
{
    unsigned char *hold = ftrma_ledger_hold(peer->agent->ledger, (uint32_t)part, peer->origin);
    STORE(hold, head->operand ? FTRMA_HOLDS_SHARED : FTRMA_HOLDS_EXCLUSIVE);
    done(peer, head);
}

int ftrma_grant_lock(const struct ftrma_request *r)
{
    struct ftrma_agent *agent = r->peer->agent;
    int waiting = 0;
    for (struct ftrma_parked *p = agent->parked; p && !waiting; p = p->next)
        waiting = waits_for_lock(p, r->part);
    int mine = *ftrma_ledger_hold(agent->ledger, (uint32_t)r->part, r->peer->origin) != 0;
    if ((waiting && !mine)
        || !is_free(agent->ledger, r->part, r->peer->origin, r->head->operand == 1))
        return ftrma_grant_park(r);
    grant(r->peer, r->head, r->part);
    return 0;
}

void ftrma_grant_unlock(const struct ftrma_request *r)
{
    /* Done again it frees nobody else's. */
    STORE(ftrma_ledger_hold(r->peer->agent->ledger, (uint32_t)r->part, r->peer->origin),
          FTRMA_HOLDS_NOTHING);
    done(r->peer, r->head);
    ftrma_grant_next(r->peer->agent, r->part);
}

/* ---- those that wait ---- */

int ftrma_grant_park(const struct ftrma_request *r)
{
    struct ftrma_agent *agent = r->peer->agent;
    struct ftrma_parked *p = malloc(sizeof *p);
    if (!p)
        return -ENOMEM;
    p->next = NULL;
    p->peer = r->peer;
    p->part = r->part;
    p->head = *r->head;
    if (r->head->length)
        memcpy(p->payload, r->payload, r->head->length);
    agent->busy += p->head.kind != FTRMA_WIRE_LOCK;
    *agent->last_parked = p;
    agent->last_parked = &p->next;
    return 0;
}

/* Take out what is at this place of the list. */
static void unpark(struct ftrma_agent *agent, struct ftrma_parked **at)
{
    struct ftrma_parked *p = *at;
    agent->busy -= p->head.kind != FTRMA_WIRE_LOCK;
    if (agent->last_parked == &p->next)
        agent->last_parked = at;
    *at = p->next;
    free(p);
}

void ftrma_grant_drop(struct ftrma_agent *agent, const struct ftrma_peer *peer, int64_t target,
                      void (*each)(const struct ftrma_parked *parked))
{
    for (struct ftrma_parked **at = &agent->parked; *at;) {
        struct ftrma_parked *p = *at;
        if (peer ? p->peer == peer : target < 0 || p->head.target == target) {
            if (each)
                each(p);
            unpark(agent, at);
        } else {
            at = &p->next;
        }
    }
}

void ftrma_grant_next(struct ftrma_agent *agent, int part)
{
    for (struct ftrma_parked **at = &agent->parked; *at;) {
        struct ftrma_parked *p = *at;
        if (!waits_for_lock(p, part)) {
            at = &p->next;
            continue;
        }
        if (!is_free(agent->ledger, part, p->peer->origin, p->head.operand == 1))
            return; /* nobody overtakes it */
        grant(p->peer, &p->head, part);
        unpark(agent, at);
    }
}

void ftrma_grant_retry(struct ftrma_agent *agent, int (*attempt)(const struct ftrma_request *))
{
    for (struct ftrma_parked **at = &agent->parked; *at;) {
        struct ftrma_parked *p = *at;
        struct ftrma_request r = {.peer = p->peer, .head = &p->head, .payload = p->payload,
                                  .part = p->part};
        if (p->head.kind != FTRMA_WIRE_LOCK && attempt(&r))
            unpark(agent, at);
        else
            at = &p->next;
    }
}
