/* The agent of a node: carries out the requests of origins, one at a time.
 *
 * The agent is one thread, so that requests need no lock against each other, and it never waits
 * inside a request. A request that cannot be carried out now is parked (grant.c) or rejected. A
 * message that can never be carried out ends its connection, and no other. So does a message that
 * was changed on its way, which comes again over the next connection.
 */
#include "agent_state.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "apply.h"
#include "failpoint.h"
#include "files.h"
#include "grant.h"
#include "message.h"
#include "peer.h"
#include "reply.h"
#include "spokes.h"

#define BATCH 1024 /* messages at most between two checks of parked requests, bell and descriptor */

/* ---- requests about targets and roles ---- */

/* Tell origins whose requests to a target were rejected that they can send them again. */
static void tell_release(struct ftrma_agent *a, uint32_t target)
{
    struct ftrma_wire_head head = {.target = target};
    for (struct ftrma_peer *p = a->peers; p; p = p->next)
        if (p->refused[target])
            ftrma_reply(p, &head, FTRMA_WIRE_RELEASE, 0, NULL, 0);
}

static void reject_held(const struct ftrma_parked *p)
{
    ftrma_reply_reject(p->peer, &p->head, FTRMA_WIRE_HELD, 0);
}

static void tell_old(const struct ftrma_parked *p)
{
    ftrma_reply(p->peer, &p->head, FTRMA_WIRE_OLD_ROLES, 0, NULL, 0);
}

static void between_roles(void *agent)
{
    ftrma_failpoint(agent, FTRMA_WIRE_AT_ROLES);
}

static void take_roles(struct ftrma_agent *a, const struct ftrma_wire_head *head)
{
    struct ftrma_ledger *l = a->ledger;
    if (head->roles_number <= l->header->roles_number)
        return;
    int forgets = head->operand == 1;
    ftrma_parts_roles(l, head->roles_number, forgets, between_roles, a);
    ftrma_grant_drop(a, NULL, -1, tell_old);
    for (struct ftrma_peer *p = a->peers; forgets && p; p = p->next)
        ftrma_reply_forget_puts(p);
    for (uint32_t t = 0; t < l->header->targets; t++)
        if (!l->targets[t].hold)
            tell_release(a, t);
}

static void take_resend(struct ftrma_peer *peer, const struct ftrma_wire_head *head)
{
    peer->refused[head->target] = 0;
    peer->resends[head->target] = head->number;
}

/* Carry out a request that concerns no part. Returns 0 if it is another request. */
static int administer(struct ftrma_peer *peer, const struct ftrma_wire_head *head)
{
    struct ftrma_agent *a = peer->agent;
    struct ftrma_ledger *l = a->ledger;
    uint64_t told = 0;
    switch (head->kind) {
    case FTRMA_WIRE_ROLES:
        take_roles(a, head);
        break;
    case FTRMA_WIRE_HOLD:
        STORE(&l->targets[head->target].hold, 1);
        ftrma_grant_drop(a, NULL, head->target, reject_held);
        break;
    case FTRMA_WIRE_RELEASE:
        STORE(&l->targets[head->target].hold, 0);
        tell_release(a, head->target);
        break;
    case FTRMA_WIRE_NUMBER: /* answered even while the target is on HOLD, since its recovery asks
                               this */
        told = ftrma_ledger_number(l, peer->origin, head->target);
        break;
    case FTRMA_WIRE_RESEND:
        take_resend(peer, head);
        return 1;
    default:
        return 0;
    }
    ftrma_reply(peer, head, FTRMA_WIRE_DONE, told, NULL, 0);
    return 1;
}

/* ---- requests on parts ---- */

static int is_parked(const struct ftrma_peer *peer, uint32_t target)
{
    for (struct ftrma_parked *p = peer->agent->parked; p; p = p->next)
        if (p->peer == peer && p->head.target == target)
            return 1;
    return 0;
}

static const char *memory_fault(int error)
{
    return error ? "the agent has no memory for it" : NULL;
}

/* Carry out a request whose number is the next one, or that has none. Returns NULL, or why it can
   never be carried out. */
static const char *act(const struct ftrma_request *r)
{
    const char *fault;
    switch (r->head->kind) {
    case FTRMA_WIRE_PUT:
    case FTRMA_WIRE_PUTV:
        return ftrma_apply_put(r);
    case FTRMA_WIRE_SET:
        return ftrma_apply_set(r);
    case FTRMA_WIRE_GET:
    case FTRMA_WIRE_GETV:
        return ftrma_apply_get(r);
    case FTRMA_WIRE_LOCK:
        return memory_fault(ftrma_grant_lock(r));
    case FTRMA_WIRE_UNLOCK:
        ftrma_grant_unlock(r);
        return NULL;
    default:
        fault = ftrma_apply_atomic(r);
        return fault == ftrma_apply_parked ? memory_fault(ftrma_grant_park(r)) : fault;
    }
}

/* Try a parked change again. Returns 1 if it is parked no longer. */
static int attempt(const struct ftrma_request *parked)
{
    struct ftrma_request r = *parked;
    struct ftrma_ledger *l = r.peer->agent->ledger;
    int same = LOAD(&l->parts[r.part].place.generation) == r.head->generation;
    if (!same || !ftrma_parts_map(l, (uint32_t)r.part)) {
        ftrma_reply_reject(r.peer, r.head, FTRMA_WIRE_MOVED, 0);
        return 1;
    }
    if (r.head->kind == FTRMA_WIRE_LOCK)
        return ftrma_grant_change(&r);
    const char *fault = ftrma_apply_atomic(&r);
    if (fault && fault != ftrma_apply_parked)
        ftrma_reply_broken(r.peer, fault);
    return fault != ftrma_apply_parked;
}

static const char *on_part(struct ftrma_peer *peer, const struct ftrma_wire_head *head,
                           const void *payload)
{
    struct ftrma_ledger *l = peer->agent->ledger;
    struct ftrma_request r = {.peer = peer, .head = head, .payload = payload};
    uint64_t reached = ftrma_ledger_number(l, peer->origin, head->target);
    r.part = ftrma_parts_find(l, head->window, head->target, head->generation);
    if (r.part >= 0 && !ftrma_parts_map(l, (uint32_t)r.part))
        r.part = -1;
    if (ftrma_message_numbered(head) && head->number <= reached) {
        ftrma_apply_repeat(&r); /* even if the part is gone since */
        return NULL;
    }
    if (r.part < 0) {
        ftrma_reply_reject(peer, head, FTRMA_WIRE_MOVED, 0);
        return NULL;
    }
    const char *fault = ftrma_apply_fault(&r);
    if (fault)
        return fault;
    if (ftrma_message_numbered(head)) {
        if (head->number > reached + 1) {
            ftrma_reply_reject(peer, head, FTRMA_WIRE_GAP, reached);
            return NULL;
        }
        if (is_parked(peer, head->target))
            return NULL; /* the request that is parked already gets the reply */
    }
    return act(&r);
}

/* 1 if this is an atomic that was carried out before. Its answer may have been lost with the
   previous agent. A replay of the target needs the answer in its origin's log, so it is sent even
   during a HOLD. */
static int is_done_atomic(const struct ftrma_peer *peer, const struct ftrma_wire_head *head)
{
    return head->kind >= FTRMA_WIRE_ACC && head->kind <= FTRMA_WIRE_CAS
           && head->number <= ftrma_ledger_number(peer->agent->ledger, peer->origin, head->target);
}

/* Take a message. Returns NULL if it is carried out, parked or rejected; else why it can never be
   carried out. */
static const char *obey(struct ftrma_peer *peer, const struct ftrma_wire_head *head,
                        const void *payload)
{
    struct ftrma_ledger *l = peer->agent->ledger;
    const char *fault = ftrma_message_payload_fault(head, payload);
    if (fault)
        return fault;
    if (peer->is_agent)
        return ftrma_spokes_obey(peer, head, payload);
    if (ftrma_message_among_agents(head))
        return "not a request";
    if (head->target >= l->header->targets)
        return "no such target";
    if (head->roles_number < l->header->roles_number && head->kind != FTRMA_WIRE_ROLES) {
        ftrma_reply(peer, head, FTRMA_WIRE_OLD_ROLES, 0, NULL, 0);
        return NULL;
    }
    int early = head->roles_number > l->header->roles_number && head->kind != FTRMA_WIRE_ROLES;
    if (!early && administer(peer, head))
        return NULL;
    if (early && head->kind == FTRMA_WIRE_RESEND) {
        take_resend(peer, head);
        return NULL;
    }
    if (head->kind == FTRMA_WIRE_FILE && !early) /* requests that wait may need the file */
        return ftrma_files_serve(peer, head, payload);
    if (peer->refused[head->target])
        return NULL; /* the origin sends it again after RESEND */
    if (early || (l->targets[head->target].hold && !is_done_atomic(peer, head))) {
        ftrma_reply_reject(peer, head, early ? FTRMA_WIRE_EARLY : FTRMA_WIRE_HELD, 0);
        return NULL;
    }
    if (head->kind == FTRMA_WIRE_FLUSH) {
        ftrma_reply_acks(peer, head->target, head->number);
        return NULL;
    }
    return on_part(peer, head, payload);
}

/* ---- the loop ---- */

static void take(int got, struct ftrma_peer *peer, const struct ftrma_wire_head *head,
                 const void *payload)
{
    const char *fault =
        got > 0 ? obey(peer, head, payload) : ftrma_connection_failure(peer->connection);
    if (!fault)
        return;
    int damaged = fault == ftrma_message_damaged;
    peer->agent->damaged += (uint64_t)damaged;
    peer->agent->damage_new |= damaged;
    if (!damaged)
        ftrma_reply_broken(peer, fault); /* goes nowhere if the connection is broken */
    ftrma_peer_leave(peer);
}

/* Take messages that have come. */
static void take_some(struct ftrma_agent *a)
{
    struct ftrma_wire_head head;
    const void *payload;
    void *peer;
    for (int n = 0, got; n < BATCH; n++) {
        if (!(got = ftrma_engine_next(a->engine, &peer, &head, &payload)))
            break;
        take(got, peer, &head, payload);
    }
}

/* Act on a ring of the bell: words have changed, parts are released, or a lock is free. */
static void take_ring(struct ftrma_agent *a)
{
    a->scan_due = 1;
    ftrma_ledger_drain_bell(a->ledger);
    ftrma_parts_unmap_released(a->ledger);
    ftrma_grant_all(a);
}

int ftrma_agent_serve(struct ftrma_agent *a, int timeout_ms)
{
    for (;;) {
        take_some(a);
        if (a->parked_changes)
            ftrma_grant_retry(a, attempt);
        if (a->scan_due)
            ftrma_spokes_scan(a);
        if (a->hub_lost || a->damage_new) {
            a->hub_lost = a->damage_new = 0;
            return 0;
        }
        int soon = (a->parked_changes || a->neighbours_until) && timeout_ms;
        int pause = ftrma_spokes_scan_in_ms(a);
        int nap = pause >= 0 && (timeout_ms < 0 || pause < timeout_ms) ? pause : timeout_ms;
        int found = ftrma_engine_wait(a->engine, soon ? 1 : nap);
        a->scan_due |= pause >= 0;
        if (found & FTRMA_WIRE_RUNG)
            take_ring(a);
        else if (a->neighbours_until && ftrma_engine_ns() >= a->neighbours_until)
            ftrma_grant_all(a);
        int over = !found && !soon && (nap == timeout_ms || timeout_ms >= 0);
        if (over || found & FTRMA_WIRE_WATCHED)
            return found;
    }
}

int ftrma_agent_watch(struct ftrma_agent *a, int fd)
{
    return ftrma_engine_wake_by(a->engine, fd, FTRMA_WIRE_WATCHED);
}

int ftrma_agent_open(const char *path, const char *engine, struct ftrma_agent **agent)
{
    struct ftrma_agent *a = calloc(1, sizeof *a);
    int error = a ? ftrma_ledger_open(path, &a->ledger) : -ENOMEM;
    if (!error)
        error = ftrma_ledger_lock(a->ledger);
    if (!error)
        error = ftrma_engine_open(engine, FTRMA_WIRE_REQUESTS, &a->engine);
    if (!error)
        error = ftrma_engine_wake_by(a->engine, a->ledger->bell, FTRMA_WIRE_RUNG);
    if (!error && !(a->scratch = malloc(FTRMA_WIRE_PAYLOAD_BYTES)))
        error = -ENOMEM;
    if (error) {
        if (a)
            ftrma_agent_close(a);
        return error;
    }
    a->last_parked = &a->parked;
    ftrma_parts_undo_unfinished(a->ledger);
    ftrma_parts_finish_roles(a->ledger);
    STORE(&a->ledger->header->agent, (int32_t)getpid());
    __atomic_add_fetch(&a->ledger->header->agents, 1, __ATOMIC_SEQ_CST);
    *agent = a;
    return 0;
}

uint64_t ftrma_agent_damaged(const struct ftrma_agent *a)
{
    return a->damaged;
}

void ftrma_agent_close(struct ftrma_agent *a)
{
    while (a->peers)
        ftrma_peer_leave(a->peers);
    ftrma_spokes_close(a);
    if (a->engine)
        ftrma_engine_close(a->engine);
    if (a->ledger)
        ftrma_ledger_close(a->ledger);
    free(a->scratch);
    free(a);
}
