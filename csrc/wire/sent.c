/* Whatever is not acknowledged is kept, and sent again in the order of its numbers: to the next agent,
 * to a target that is live again or somewhere else.  What has been done before is not done again.
 */
#include "sent.h"

#include <stdlib.h>
#include <string.h>

#define LEAST_ROOM 4096
#define MUCH (1u << 20) /* room that is given back when nothing is left in it */

struct ftrma_wire_head *ftrma_sent_add(struct ftrma_origin *o, uint32_t target,
                                       const struct ftrma_wire_head *head, char **payload)
{
    struct ftrma_toward *t = &o->targets[target];
    struct ftrma_sent *s = &t->sent;
    size_t size = ftrma_sent_size(head);
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

void ftrma_sent_pop(struct ftrma_sent *s)
{
    s->from += ftrma_sent_size(ftrma_sent_first(s));
    if (s->from != s->to)
        return;
    s->from = s->to = 0;
    if (s->room > MUCH)
        ftrma_sent_clear(s);
}

void ftrma_sent_clear(struct ftrma_sent *s)
{
    free(s->data);
    *s = (struct ftrma_sent){0};
}

void ftrma_sent_out(struct ftrma_origin *o, uint32_t target, struct ftrma_wire_head *head,
                    const void *payload)
{
    struct ftrma_toward *t = &o->targets[target];
    struct ftrma_way *way = o->nodes[t->node].way;
    head->epoch = o->epoch;
    head->generation = t->generation;
    if (way && !t->refused)
        ftrma_engine_send(way, head, payload);
}

void ftrma_sent_ask(struct ftrma_origin *o)
{
    struct ftrma_wire_head *head = &o->ask.head;
    struct ftrma_way *way = o->nodes[o->ask.node].way;
    const struct ftrma_toward *t = &o->targets[head->target];
    int waits = head->kind == FTRMA_WIRE_GET || head->kind == FTRMA_WIRE_GETV;
    if (head->kind != FTRMA_WIRE_ROLES)
        head->epoch = o->epoch;
    head->generation = waits ? t->generation : 0;
    if (way && !(waits && t->refused))
        ftrma_engine_send(way, head, o->ask.payload);
}

void ftrma_sent_flush(struct ftrma_origin *o, uint32_t target)
{
    struct ftrma_wire_head head = {.kind = FTRMA_WIRE_FLUSH, .format = FTRMA_WIRE_FORMAT,
                                   .number = FTRMA_TOKEN | ++o->token, .target = target};
    ftrma_sent_out(o, target, &head, NULL);
}

static void send_kept(struct ftrma_origin *o, uint32_t target)
{
    struct ftrma_sent *s = &o->targets[target].sent;
    for (size_t at = s->from; at != s->to;) {
        struct ftrma_wire_head *head = (struct ftrma_wire_head *)(void *)(s->data + at);
        ftrma_sent_out(o, target, head, head + 1);
        at += ftrma_sent_size(head);
    }
    if (o->targets[target].flushing)
        ftrma_sent_flush(o, target);
}

static void send_again_mark(struct ftrma_origin *o, struct ftrma_way *way, uint32_t target)
{
    struct ftrma_wire_head again = {.kind = FTRMA_WIRE_AGAIN, .format = FTRMA_WIRE_FORMAT,
                                    .number = o->targets[target].again, .epoch = o->epoch,
                                    .target = target};
    ftrma_engine_send(way, &again, NULL);
}

void ftrma_sent_ask_again(struct ftrma_origin *o, uint32_t node, uint32_t target)
{
    if (!o->nodes[node].way)
        return;
    send_again_mark(o, o->nodes[node].way, target);
    if (o->ask.active && o->ask.node == node && o->ask.head.target == target)
        ftrma_sent_ask(o);
}

void ftrma_sent_again(struct ftrma_origin *o, uint32_t target)
{
    struct ftrma_toward *t = &o->targets[target];
    struct ftrma_way *way = o->nodes[t->node].way;
    t->refused = 0;
    if (!way)
        return; /* the next connection gets all */
    t->again++;
    send_again_mark(o, way, target);
    send_kept(o, target);
    if (o->ask.active && o->ask.node == t->node && o->ask.head.target == target)
        ftrma_sent_ask(o);
}

void ftrma_sent_anew(struct ftrma_origin *o, uint32_t node)
{
    for (uint32_t i = 0; i < o->ntargets; i++)
        if (o->targets[i].node == node) {
            o->targets[i].refused = 0;
            o->targets[i].again = 0; /* as that agent's */
            send_kept(o, i);
        }
    if (o->ask.active && o->ask.node == node)
        ftrma_sent_ask(o);
}
