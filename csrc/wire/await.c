/* Replies, and waits for them. A wait ends by its reply, the alarm, its deadline, or a refusal. The
 * failure of a connection does not end a wait: the origin makes the next connection.
 */
#include "await.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "message.h"
#include "retransmit.h"
#include "sum.h"

#define MOST_MS 20 /* between two tries to connect; a dead agent is replaced within 200 ms */

static void refuse(struct ftrma_origin *o, const void *why, size_t length)
{
    if (!*o->reason)
        snprintf(o->reason, sizeof o->reason, "%.*s", (int)length, (const char *)why);
}

static void refuse_text(struct ftrma_origin *o, const char *why)
{
    refuse(o, why, strlen(why));
}

/* ---- replies ---- */

static void take_ack(struct ftrma_origin *o, uint32_t target, struct ftrma_wire_ack ack)
{
    struct ftrma_retransmit *s = &o->targets[target].kept;
    struct ftrma_wire_head *first = ftrma_retransmit_first(s);
    if (!first || first->number >= ack.number + ack.count)
        return; /* it was acknowledged before */
    if (first->number < ack.number || ack.number + ack.count > o->targets[target].number + 1) {
        refuse_text(o, "the agent acknowledges what was not sent");
        return;
    }
    uint64_t before = first->number - ack.number;
    ack = (struct ftrma_wire_ack){first->number, ack.count - before, ack.clock, ack.seq + before};
    for (uint64_t i = 0; i < ack.count; i++)
        ftrma_retransmit_pop(s);
    if (o->acked)
        o->acked(o->arg, (int)target, &ack, 1);
}

/* Take the reply to the request under way to a target, an atomic or a lock. */
static void take_answer(struct ftrma_origin *o, const struct ftrma_wire_head *head,
                        const void *payload)
{
    struct ftrma_origin_target *t = &o->targets[head->target];
    const struct ftrma_wire_head *first = ftrma_retransmit_first(&t->kept);
    if (!t->asked || !first || first->number != head->number)
        return; /* this is the reply to a repeated request */
    int atomic = first->kind == FTRMA_WIRE_ACC || first->kind == FTRMA_WIRE_FOP
                 || first->kind == FTRMA_WIRE_CAS;
    uint64_t bytes = 0; /* the third word of the payload, see struct ftrma_wire_answer */
    if (head->kind == FTRMA_WIRE_ANSWER)
        memcpy(&bytes, (const char *)payload + 16, sizeof bytes);
    if (atomic != (head->kind == FTRMA_WIRE_ANSWER)
        || (atomic && (head->length != 24 + 2 * first->length || bytes != first->length))) {
        refuse_text(o, "the agent answers something else than was asked");
        return;
    }
    t->answer.number = head->number;
    t->answer.clock = t->answer.bytes = 0;
    t->answer.seq = head->operand;
    if (atomic)
        memcpy(&t->answer.clock, payload, head->length);
    t->asked = 0;
    t->answered = 1;
    ftrma_retransmit_pop(&t->kept);
}

static void take_rejection(struct ftrma_origin *o, const struct ftrma_wire_head *head)
{
    struct ftrma_origin_target *t = &o->targets[head->target];
    const struct ftrma_wire_head *first = ftrma_retransmit_first(&t->kept);
    if (head->number != t->resends)
        return; /* it rejects a request that was sent again since, after the last RESEND */
    if (head->operand != FTRMA_WIRE_GAP) {
        t->refused = 1;
        return;
    }
    if (first && first->number > head->offset + 1)
        refuse_text(o, "the agent has lost numbers that it had acknowledged");
    else
        ftrma_retransmit_target(o, head->target);
}

/* 1 if a reply has the bytes for which the request with a token waits. */
static int is_awaited_data(const struct ftrma_origin *o, const struct ftrma_wire_head *head)
{
    const struct ftrma_origin_query *query = &o->query;
    return query->active && query->head.number == head->number && head->kind == FTRMA_WIRE_DATA
           && (query->head.kind == FTRMA_WIRE_GET || query->head.kind == FTRMA_WIRE_GETV)
           && head->length == query->bytes;
}

/* Say if a payload was changed on its way, as ftrma_message_payload_fault() does. Awaited bytes are
   put in their final place at once: if they were changed, they are overwritten when they come
   again. */
static const char *payload_fault(struct ftrma_origin *o, const struct ftrma_wire_head *head,
                                 const void *payload)
{
    if (!is_awaited_data(o, head))
        return ftrma_message_payload_fault(head, payload);
    uint64_t sum = ftrma_sum_copy(o->query.data, payload, head->length);
    return sum != head->payload_sum ? ftrma_message_damaged : NULL;
}

/* Take the reply to the request with a token; its bytes are in their place. */
static void take_query_reply(struct ftrma_origin *o, const struct ftrma_wire_head *head)
{
    struct ftrma_origin_query *query = &o->query;
    if (!query->active || query->head.number != head->number)
        return;
    int wants = query->head.kind == FTRMA_WIRE_GET || query->head.kind == FTRMA_WIRE_GETV;
    if (wants != (head->kind == FTRMA_WIRE_DATA) || (wants && head->length != query->bytes)) {
        refuse_text(o, "the agent answers something else than was asked");
        return;
    }
    query->told = head->operand;
    query->done = 1;
}

/* Take acknowledgements of puts to a target. */
static void take_acks(struct ftrma_origin *o, const struct ftrma_wire_head *head,
                      const void *payload)
{
    struct ftrma_wire_ack ack;
    for (size_t at = 0; at < head->length; at += sizeof ack) {
        memcpy(&ack, (const char *)payload + at, sizeof ack);
        take_ack(o, head->target, ack);
    }
}

static void take_reply(struct ftrma_origin *o, uint32_t node, const struct ftrma_wire_head *head,
                       const void *payload)
{
    int early = head->kind == FTRMA_WIRE_REJECTED && head->operand == FTRMA_WIRE_EARLY;
    if (head->kind == FTRMA_WIRE_BROKEN)
        refuse(o, payload, head->length);
    if (head->kind == FTRMA_WIRE_OLD_ROLES)
        o->stale |= head->roles_number > o->roles_number;
    if (head->target >= o->ntargets || (head->roles_number < o->roles_number && !early))
        return; /* sent under old roles */
    int here = o->targets[head->target].node == node; /* 0: the target has moved */
    switch (head->kind) {
    case FTRMA_WIRE_ACK:
        if (here)
            take_acks(o, head, payload);
        take_query_reply(o, head);
        break;
    case FTRMA_WIRE_ANSWER:
    case FTRMA_WIRE_DONE:
    case FTRMA_WIRE_DATA:
        if (o->query.active && o->query.head.number == head->number)
            take_query_reply(o, head);
        else if (here && head->kind != FTRMA_WIRE_DATA)
            take_answer(o, head, payload);
        break;
    case FTRMA_WIRE_REJECTED:
        if (here)
            take_rejection(o, head);
        break;
    case FTRMA_WIRE_RELEASE:
        if (here)
            ftrma_retransmit_target(o, head->target);
        else
            ftrma_retransmit_query_again(o, node, head->target);
        break;
    default:;
    }
}

static void take_all(struct ftrma_origin *o)
{
    struct ftrma_wire_head head;
    const void *payload;
    void *node;
    for (int got; (got = ftrma_engine_next(o->engine, &node, &head, &payload));) {
        struct ftrma_origin_node *n = node;
        const char *fault = got > 0 ? payload_fault(o, &head, payload)
                                    : ftrma_connection_failure(n->connection);
        if (got > 0 && !fault) {
            take_reply(o, (uint32_t)(n - o->nodes), &head, payload);
            continue;
        }
        o->damaged += fault == ftrma_message_damaged;
        ftrma_connection_close(n->connection);
        *n = (struct ftrma_origin_node){0};
    }
}

/* ---- waits ---- */

uint64_t ftrma_await_deadline(const struct ftrma_origin *o)
{
    return o->timeout_ms < 0 ? 0 : ftrma_engine_ns() + 1000000u * (uint64_t)o->timeout_ms + 1;
}

void ftrma_await_connect(struct ftrma_origin *o, uint32_t node, uint64_t deadline)
{
    struct ftrma_origin_node *n = &o->nodes[node];
    uint64_t now = ftrma_engine_ns();
    if (n->connection || *o->reason || now < n->next_ns)
        return;
    int left = !deadline ? -1 : deadline > now ? (int)((deadline - now) / 1000000u) : 0;
    int fd = o->connect(o->arg, (int)node, left);
    if (fd >= 0 && !ftrma_engine_adopt(o->engine, (struct ftrma_stream){fd}, n, &n->connection)) {
        n->tries = 0;
        ftrma_retransmit_node(o, node);
        return;
    }
    if (fd == -EPROTO)
        refuse_text(o, "the connection was refused");
    unsigned ms = 1u << (n->tries < 5 ? n->tries : 5);
    n->tries++;
    n->next_ns = ftrma_engine_ns() + 1000000u * (uint64_t)(ms < MOST_MS ? ms : MOST_MS);
}

/* Milliseconds until the deadline or the next try to connect, whichever comes first. */
static int sleep_ms(const struct ftrma_origin_node *n, uint64_t deadline, uint64_t now)
{
    uint64_t until = !n->connection && (!deadline || n->next_ns < deadline) ? n->next_ns : deadline;
    if (!until)
        return -1;
    return until <= now ? 0 : (int)((until - now + 999999u) / 1000000u);
}

/* Kind of the atomic or lock that is under way to a target; 0 if neither is. */
static int kind_asked(const struct ftrma_origin *o, uint32_t target)
{
    const struct ftrma_origin_target *t = &o->targets[target];
    const struct ftrma_wire_head *first = t->asked ? ftrma_retransmit_first(&t->kept) : NULL;
    return first ? (int)first->kind : 0;
}

static int wait_for(struct ftrma_origin *o, uint32_t node,
                    int (*done)(const struct ftrma_origin *origin, uint32_t target), uint32_t target)
{
    uint64_t deadline = ftrma_await_deadline(o);
    for (;;) {
        take_all(o);
        if (done(o, target))
            return FTRMA_OK;
        if (*o->reason)
            return FTRMA_WIRE_REFUSED;
        if (o->stale)
            return FTRMA_WIRE_STALE;
        ftrma_await_connect(o, node, deadline);
        int found =
            ftrma_engine_wait(o->engine, sleep_ms(&o->nodes[node], deadline, ftrma_engine_ns()));
        if (!found && deadline && ftrma_engine_ns() >= deadline)
            return FTRMA_TIMEOUT;
        if (found & FTRMA_WIRE_RUNG)
            return FTRMA_ALARM;
    }
}

int ftrma_await(struct ftrma_origin *o, uint32_t node,
                int (*done)(const struct ftrma_origin *origin, uint32_t target), uint32_t target)
{
    take_all(o);
    if (done(o, target))
        return FTRMA_OK;
    uint64_t began = o->waits ? o->waits(target, kind_asked(o, target), 0) : 0;
    int result = wait_for(o, node, done, target);
    if (o->waits)
        o->waits(target, 0, began);
    return result;
}

static int is_done(const struct ftrma_origin *o, uint32_t target)
{
    (void)target;
    return o->query.done;
}

int ftrma_await_query(struct ftrma_origin *o, uint32_t node, const struct ftrma_wire_head *head,
                      const void *payload, void *data, size_t bytes)
{
    o->query = (struct ftrma_origin_query){
        .active = 1, .node = node, .head = *head, .payload = payload, .data = data, .bytes = bytes};
    o->query.head.format = FTRMA_WIRE_FORMAT;
    o->query.head.number = FTRMA_TOKEN | ++o->token;
    ftrma_retransmit_query(o);
    int result = ftrma_await(o, node, is_done, head->target);
    o->query.active = 0;
    return result;
}
