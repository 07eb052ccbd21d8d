/* Replies.  Clock and seq of each put that is applied are collected, and sent with the next one. */
#include "reply.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SOON (64u << 10) /* bytes of puts after which the agent acknowledges them without being
                            asked */

static void reply(struct ftrma_peer *peer, const struct ftrma_wire_head *to, int kind,
                  uint64_t operand, const void *payload, size_t bytes, uint64_t sum)
{
    struct ftrma_wire_head head = {
        .kind = (uint16_t)kind,
        .format = FTRMA_WIRE_FORMAT,
        .length = (uint32_t)bytes,
        .number = to->number,
        .roles_number = (uint32_t)peer->agent->ledger->header->roles_number,
        .target = to->target,
        .generation = to->generation,
        .operand = operand,
        .payload_sum = sum};
    ftrma_connection_send(peer->connection, &head, payload);
}

void ftrma_reply(struct ftrma_peer *peer, const struct ftrma_wire_head *to, int kind,
                 uint64_t operand, const void *payload, size_t bytes)
{
    reply(peer, to, kind, operand, payload, bytes, 0);
}

void ftrma_reply_data(struct ftrma_peer *peer, const struct ftrma_wire_head *to,
                      const void *payload, size_t bytes, uint64_t sum)
{
    reply(peer, to, FTRMA_WIRE_DATA, 0, payload, bytes, sum);
}

void ftrma_reply_reject(struct ftrma_peer *peer, const struct ftrma_wire_head *to, int why,
                        uint64_t reached)
{
    struct ftrma_wire_head head = {
        .kind = FTRMA_WIRE_REJECTED,
        .format = FTRMA_WIRE_FORMAT,
        .number = peer->resends[to->target],
        .roles_number = (uint32_t)peer->agent->ledger->header->roles_number,
        .target = to->target,
        .generation = to->generation,
        .offset = reached,
        .operand = (uint64_t)why};
    ftrma_connection_send(peer->connection, &head, NULL);
    peer->refused[to->target] = 1;
}

void ftrma_reply_broken(struct ftrma_peer *peer, const char *why)
{
    struct ftrma_wire_head none = {0};
    ftrma_reply(peer, &none, FTRMA_WIRE_BROKEN, 0, why, strlen(why));
}

int ftrma_reply_note_put(struct ftrma_peer *peer, const struct ftrma_wire_head *put, uint64_t clock,
                         uint64_t seq)
{
    struct ftrma_unacknowledged *o = peer->unacknowledged[put->target];
    if (!o && !(o = peer->unacknowledged[put->target] = calloc(1, sizeof *o)))
        return -ENOMEM;
    struct ftrma_wire_ack *last = o->n ? &o->acks[o->n - 1] : NULL;
    if (last && last->number + last->count == put->number && last->clock == clock
        && last->seq + last->count == seq)
        last->count++;
    else
        o->acks[o->n++] = (struct ftrma_wire_ack){put->number, 1, clock, seq};
    o->bytes += sizeof *put + put->length;
    if (o->n == FTRMA_AGENT_ACKS || o->bytes >= SOON)
        ftrma_reply_acks(peer, put->target, 0);
    return 0;
}

void ftrma_reply_acks(struct ftrma_peer *peer, uint32_t target, uint64_t token)
{
    struct ftrma_unacknowledged *o = peer->unacknowledged[target];
    struct ftrma_wire_head to = {.number = token, .target = target};
    size_t n = o ? o->n : 0;
    if (!n && !token)
        return;
    ftrma_reply(peer, &to, FTRMA_WIRE_ACK, 0, n ? o->acks : NULL, n * sizeof *o->acks);
    if (o)
        o->n = o->bytes = 0;
}

void ftrma_reply_forget_puts(struct ftrma_peer *peer)
{
    for (uint32_t t = 0; t < peer->agent->ledger->header->targets; t++)
        if (peer->unacknowledged[t])
            peer->unacknowledged[t]->n = peer->unacknowledged[t]->bytes = 0;
}
