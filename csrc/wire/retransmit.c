/* Requests are kept until they are acknowledged. They are sent again in the order of their numbers:
 * to the next agent of a node, or to a target that is released or has moved. An agent repeats no
 * request that has taken effect.
 */
#include "retransmit.h"

#include <stdlib.h>
#include <string.h>

#define LEAST_ROOM 4096
#define MUCH (1u << 20) /* room that is freed when it is empty */

struct ftrma_wire_head *ftrma_retransmit_add(struct ftrma_origin *o, uint32_t target,
                                             const struct ftrma_wire_head *head, char **payload)
{
    struct ftrma_origin_target *t = &o->targets[target];
    struct ftrma_retransmit *s = &t->kept;
    size_t size = ftrma_retransmit_size(head);
    if (s->room - s->to < size && s->from) {
        memmove(s->data, s->data + s->from, s->to - s->from);
        s->to -= s->from;
        s->from = 0;
    }
    if (s->room - s->to < size) {
        size_t room = 2 * s->room > LEAST_ROOM ? 2 * s->room : LEAST_ROOM;
        while (room - s->to < size)
            room *= 2;
        char *data = realloc(s->data, room);
        if (!data)
            return NULL;
        s->data = data;
        s->room = room;
    }
    struct ftrma_wire_head *kept = (struct ftrma_wire_head *)(void *)(s->data + s->to);
    s->to += size;
    *kept = *head;
    kept->format = FTRMA_WIRE_FORMAT;
    kept->target = target;
    kept->number = ++t->number;
    *payload = (char *)(kept + 1);
    return kept;
}

void ftrma_retransmit_pop(struct ftrma_retransmit *s)
{
    s->from += ftrma_retransmit_size(ftrma_retransmit_first(s));
    if (s->from != s->to)
        return;
    s->from = s->to = 0;
    if (s->room > MUCH)
        ftrma_retransmit_clear(s);
}

void ftrma_retransmit_clear(struct ftrma_retransmit *s)
{
    free(s->data);
    *s = (struct ftrma_retransmit){0};
}

void ftrma_retransmit_send(struct ftrma_origin *o, uint32_t target, struct ftrma_wire_head *head,
                           const void *payload)
{
    struct ftrma_origin_target *t = &o->targets[target];
    struct ftrma_connection *connection = o->nodes[t->node].connection;
    head->roles_number = o->roles_number;
    head->generation = t->generation;
    if (connection && !t->refused)
        ftrma_connection_send(connection, head, payload);
}

void ftrma_retransmit_query(struct ftrma_origin *o)
{
    struct ftrma_wire_head *head = &o->query.head;
    struct ftrma_connection *connection = o->nodes[o->query.node].connection;
    const struct ftrma_origin_target *t = &o->targets[head->target];
    int waits = head->kind == FTRMA_WIRE_GET || head->kind == FTRMA_WIRE_GETV;
    if (head->kind != FTRMA_WIRE_ROLES)
        head->roles_number = o->roles_number;
    head->generation = waits || head->kind == FTRMA_WIRE_FILE ? t->generation : 0;
    if (connection && !(waits && t->refused))
        ftrma_connection_send(connection, head, o->query.payload);
}

void ftrma_retransmit_flush(struct ftrma_origin *o, uint32_t target)
{
    struct ftrma_wire_head head = {.kind = FTRMA_WIRE_FLUSH,
                                   .format = FTRMA_WIRE_FORMAT,
                                   .number = FTRMA_TOKEN | ++o->token,
                                   .target = target};
    ftrma_retransmit_send(o, target, &head, NULL);
}

static void send_kept(struct ftrma_origin *o, uint32_t target)
{
    struct ftrma_retransmit *s = &o->targets[target].kept;
    for (size_t at = s->from; at != s->to;) {
        struct ftrma_wire_head *head = (struct ftrma_wire_head *)(void *)(s->data + at);
        ftrma_retransmit_send(o, target, head, head + 1);
        at += ftrma_retransmit_size(head);
    }
    if (o->targets[target].flushing)
        ftrma_retransmit_flush(o, target);
}

static void send_resend_mark(struct ftrma_origin *o, struct ftrma_connection *connection,
                             uint32_t target)
{
    struct ftrma_wire_head mark = {.kind = FTRMA_WIRE_RESEND,
                                   .format = FTRMA_WIRE_FORMAT,
                                   .number = o->targets[target].resends,
                                   .roles_number = o->roles_number,
                                   .target = target};
    ftrma_connection_send(connection, &mark, NULL);
}

void ftrma_retransmit_query_again(struct ftrma_origin *o, uint32_t node, uint32_t target)
{
    if (!o->nodes[node].connection)
        return;
    send_resend_mark(o, o->nodes[node].connection, target);
    if (o->query.active && o->query.node == node && o->query.head.target == target)
        ftrma_retransmit_query(o);
}

void ftrma_retransmit_target(struct ftrma_origin *o, uint32_t target)
{
    struct ftrma_origin_target *t = &o->targets[target];
    struct ftrma_connection *connection = o->nodes[t->node].connection;
    t->refused = 0;
    if (!connection)
        return; /* the next connection gets all requests */
    t->resends++;
    send_resend_mark(o, connection, target);
    send_kept(o, target);
    if (o->query.active && o->query.node == t->node && o->query.head.target == target)
        ftrma_retransmit_query(o);
}

void ftrma_retransmit_node(struct ftrma_origin *o, uint32_t node)
{
    for (uint32_t i = 0; i < o->ntargets; i++)
        if (o->targets[i].node == node) {
            o->targets[i].refused = 0;
            o->targets[i].resends = 0; /* the agent counts anew for each connection, too */
            send_kept(o, i);
        }
    if (o->query.active && o->query.node == node)
        ftrma_retransmit_query(o);
}
