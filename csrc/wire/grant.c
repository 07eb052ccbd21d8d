/* Locks, and requests that wait.
 *
 * Locks are granted in the order of their requests; shared ones that follow each other are granted
 * together. The ledger has the holders of other nodes. Waiting requests are lost with the agent,
 * and come again from their origins. Processes of the node take the same lock by a word in shared
 * memory, in which the agent stands for all other nodes, as a holder or as one that waits (wire.h).
 */
#include "grant.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "failpoint.h"
#include "reply.h"

#define NEIGHBOURS_NS 1000000 /* head start of the node's processes that sleep for a lock */

/* 1 if no other origin's hold keeps this one from the lock. The origin's own hold is no obstacle:
   an agent that died before it stored the number has granted it. */
static int is_free(const struct ftrma_ledger *l, uint32_t part, uint32_t origin, int shared)
{
    for (uint32_t o = 0; o < l->header->origins; o++) {
        unsigned char holds = *ftrma_ledger_hold(l, part, o);
        if (o != origin && holds && (!shared || holds == FTRMA_HOLDS_EXCLUSIVE))
            return 0;
    }
    return 1;
}

/* Take the lock word, unless processes of the node hold it. waits: then make them leave the next
   turn to the agent. */
static int take_word(uint64_t *lock, int shared, int waits)
{
    uint64_t word = LOAD(lock), next;
    for (;;) {
        uint64_t owner = word & FTRMA_LOCK_OWNER, others = word & FTRMA_LOCK_SHARED;
        int taken = owner || (!shared && (others || FTRMA_LOCK_HERE(word)));
        next = word + (1ull << 32);
        if (!taken)
            next = (next | (shared ? FTRMA_LOCK_SHARED : FTRMA_LOCK_OWNER)) & ~FTRMA_LOCK_WAITS;
        else if (waits)
            next = word | FTRMA_LOCK_WAITS;
        else
            return 0;
        if (__atomic_compare_exchange_n(lock, &word, next, 0, __ATOMIC_SEQ_CST, __ATOMIC_ACQUIRE))
            return !taken;
    }
}

static int waits_for_lock(const struct ftrma_parked *p, int part)
{
    return p->part == part && p->head.kind == FTRMA_WIRE_LOCK
           && p->head.operand != FTRMA_WIRE_CHANGE;
}

static void done(struct ftrma_peer *peer, const struct ftrma_wire_head *head, uint64_t told)
{
    struct ftrma_agent *agent = peer->agent;
    ftrma_failpoint(agent, FTRMA_WIRE_AT_GRANT);
    STORE(&ftrma_ledger_pair(agent->ledger, peer->origin, head->target)->number, head->number);
    ftrma_failpoint(agent, FTRMA_WIRE_AT_LOCKED);
    ftrma_reply_acks(peer, head->target, 0);
    ftrma_reply(peer, head, FTRMA_WIRE_DONE, told, NULL, 0);
}

/* Grant a lock to an origin. Returns 0 if it cannot be granted now. */
static int grant(struct ftrma_peer *peer, const struct ftrma_wire_head *head, int part, int waits)
{
    struct ftrma_ledger *l = peer->agent->ledger;
    unsigned char *hold = ftrma_ledger_hold(l, (uint32_t)part, peer->origin);
    struct ftrma_wire_words *words = ftrma_parts_words(l, (uint32_t)part);
    int shared = head->operand == FTRMA_WIRE_SHARED;
    if (!words || !is_free(l, (uint32_t)part, peer->origin, shared))
        return 0;
    if (!*hold && !take_word(&words->lock, shared, waits))
        return 0;
    STORE(hold, shared ? FTRMA_HOLDS_SHARED : FTRMA_HOLDS_EXCLUSIVE);
    done(peer, head, LOAD(&words->lock) >> 32);
    return 1;
}

int ftrma_grant_change(const struct ftrma_request *r)
{
    struct ftrma_wire_words *words = ftrma_parts_words(r->peer->agent->ledger, (uint32_t)r->part);
    int32_t nobody = 0, mine = -2 - (int32_t)r->peer->origin;
    if (!words
        || (!__atomic_compare_exchange_n(&words->owner, &nobody, mine, 0, __ATOMIC_SEQ_CST,
                                         __ATOMIC_ACQUIRE) && nobody != mine))
        return 0;
    done(r->peer, r->head, 0);
    return 1;
}

int ftrma_grant_lock(const struct ftrma_request *r)
{
    struct ftrma_agent *agent = r->peer->agent;
    if (r->head->operand == FTRMA_WIRE_CHANGE)
        return ftrma_grant_change(r) ? 0 : ftrma_grant_park(r);
    int waiting = 0;
    for (struct ftrma_parked *p = agent->parked; p && !waiting; p = p->next)
        waiting = waits_for_lock(p, r->part);
    int mine = *ftrma_ledger_hold(agent->ledger, (uint32_t)r->part, r->peer->origin) != 0;
    if ((!waiting || mine) && grant(r->peer, r->head, r->part, 1))
        return 0;
    return ftrma_grant_park(r);
}

void ftrma_grant_unlock(const struct ftrma_request *r)
{
    struct ftrma_agent *agent = r->peer->agent;
    struct ftrma_ledger *l = agent->ledger;
    uint32_t part = (uint32_t)r->part;
    if (r->head->operand == FTRMA_WIRE_CHANGE) {
        struct ftrma_wire_words *words = ftrma_parts_words(l, part);
        int32_t mine = -2 - (int32_t)r->peer->origin;
        if (words)
            __atomic_compare_exchange_n(&words->owner, &mine, 0, 0, __ATOMIC_SEQ_CST,
                                        __ATOMIC_RELAXED);
        ftrma_parts_wake(l, part);
        done(r->peer, r->head, 0);
        return;
    }
    /* A repeated UNLOCK must not give back another origin's lock. */
    STORE(ftrma_ledger_hold(l, part, r->peer->origin), FTRMA_HOLDS_NOTHING);
    int asleep = ftrma_parts_sleepers(l, part);
    ftrma_parts_refresh_lock(l, part);
    done(r->peer, r->head, 0);
    if (!asleep)
        ftrma_grant_next(agent, r->part);
    else if (!agent->neighbours_until) /* processes of the node wait, too */
        agent->neighbours_until = ftrma_engine_ns() + NEIGHBOURS_NS;
}

/* ---- waiting requests ---- */

int ftrma_grant_park(const struct ftrma_request *r)
{
    struct ftrma_agent *agent = r->peer->agent;
    struct ftrma_parked *p = malloc(sizeof *p);
    if (!p)
        return -ENOMEM;
    p->next = NULL;
    p->peer = r->peer;
    p->part = r->part;
    p->round = 0;
    p->head = *r->head;
    if (r->head->length)
        memcpy(p->payload, r->payload, r->head->length);
    agent->parked_changes += !waits_for_lock(p, p->part);
    *agent->last_parked = p;
    agent->last_parked = &p->next;
    return 0;
}

/* Remove a request from the list. at: the pointer to it. */
static void unpark(struct ftrma_agent *agent, struct ftrma_parked **at)
{
    struct ftrma_parked *p = *at;
    agent->parked_changes -= !waits_for_lock(p, p->part);
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
        if (!grant(p->peer, &p->head, part, 1))
            return; /* no other request overtakes it */
        unpark(agent, at);
    }
}

void ftrma_grant_retry(struct ftrma_agent *agent, int (*attempt)(const struct ftrma_request *))
{
    for (struct ftrma_parked **at = &agent->parked; *at;) {
        struct ftrma_parked *p = *at;
        struct ftrma_request r = {.peer = p->peer, .head = &p->head, .payload = p->payload,
                                  .part = p->part};
        if (!waits_for_lock(p, p->part) && attempt(&r))
            unpark(agent, at);
        else
            at = &p->next;
    }
}

/* The next part with waiting locks in this round; -1 if there are no more. */
static int next_part(struct ftrma_agent *agent)
{
    struct ftrma_parked *p = agent->parked;
    while (p && (p->round == agent->round || !waits_for_lock(p, p->part)))
        p = p->next;
    int part = p ? p->part : -1;
    for (; p; p = p->next)
        if (p->part == part)
            p->round = agent->round;
    return part;
}

void ftrma_grant_all(struct ftrma_agent *agent)
{
    agent->neighbours_until = 0;
    agent->round++;
    for (int part; (part = next_part(agent)) >= 0;)
        ftrma_grant_next(agent, part);
}
