/* The roles of an origin and the places of its targets, which it also tells to agents; its alarm;
 * its opening and closing.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "await.h"
#include "message.h"
#include "origin_state.h"
#include "retransmit.h"

int ftrma_origin_reached(struct ftrma_origin *o, uint32_t target, uint64_t *number)
{
    struct ftrma_wire_head head = {.kind = FTRMA_WIRE_NUMBER, .target = target};
    if (target >= o->ntargets)
        return -EINVAL;
    int result = ftrma_await_query(o, o->targets[target].node, &head, NULL, NULL, 0);
    if (!result)
        *number = o->query.told;
    return result;
}

int ftrma_origin_number(struct ftrma_origin *o, uint32_t target, uint64_t *number)
{
    int result = ftrma_origin_reached(o, target, number);
    if (!result && !o->targets[target].number)
        o->targets[target].number = *number;
    return result;
}

uint64_t ftrma_origin_last_number(struct ftrma_origin *o, uint32_t target)
{
    return o->targets[target].number;
}

void ftrma_origin_continue(struct ftrma_origin *o, uint32_t target, uint64_t number)
{
    o->targets[target].number = number;
}

void ftrma_origin_set_acked(struct ftrma_origin *o, ftrma_wire_acked *acked)
{
    o->acked = acked;
}

void ftrma_origin_set_waits(struct ftrma_origin *o, ftrma_wire_waits *waits)
{
    o->waits = waits;
}

int ftrma_origin_hold(struct ftrma_origin *o, uint32_t target, int hold)
{
    struct ftrma_wire_head head = {.kind = hold ? FTRMA_WIRE_HOLD : FTRMA_WIRE_RELEASE,
                                   .target = target};
    return target < o->ntargets
               ? ftrma_await_query(o, o->targets[target].node, &head, NULL, NULL, 0)
               : -EINVAL;
}

int ftrma_origin_tell_roles(struct ftrma_origin *o, uint32_t node, uint32_t roles_number,
                            int forget)
{
    struct ftrma_wire_head head = {
        .kind = FTRMA_WIRE_ROLES, .roles_number = roles_number, .operand = forget != 0};
    return node < o->nnodes ? ftrma_await_query(o, node, &head, NULL, NULL, 0) : -EINVAL;
}

void ftrma_origin_take_roles(struct ftrma_origin *o, uint32_t roles_number, int forget)
{
    o->roles_number = roles_number;
    o->stale = 0;
    for (uint32_t i = 0; i < o->ntargets; i++) {
        struct ftrma_origin_target *t = &o->targets[i];
        if (forget) {
            ftrma_retransmit_clear(&t->kept);
            t->number = 0;
            t->asked = t->answered = 0;
        }
        ftrma_retransmit_target(o, i);
    }
}

int ftrma_origin_locate(struct ftrma_origin *o, uint32_t target, uint32_t node, uint32_t generation)
{
    if (target >= o->ntargets || node >= o->nnodes || !generation)
        return -EINVAL;
    o->targets[target].node = node;
    o->targets[target].generation = generation;
    ftrma_retransmit_target(o, target);
    return 0;
}

/* ---- the alarm, beginning and end ---- */

int ftrma_origin_alarm(struct ftrma_origin *o)
{
    return o->alarm;
}

void ftrma_origin_ring(struct ftrma_origin *o)
{
    uint64_t one = 1;
    while (write(o->alarm, &one, sizeof one) < 0 && errno == EINTR)
        ;
}

void ftrma_origin_clear_alarm(struct ftrma_origin *o)
{
    uint64_t count;
    while (read(o->alarm, &count, sizeof count) < 0 && errno == EINTR)
        ;
}

void ftrma_origin_set_timeout(struct ftrma_origin *o, int timeout_ms)
{
    o->timeout_ms = timeout_ms;
}

const char *ftrma_origin_reason(struct ftrma_origin *o)
{
    return o->reason;
}

void ftrma_origin_retry(struct ftrma_origin *o)
{
    *o->reason = 0;
}

int ftrma_origin_open(uint32_t targets, uint32_t nodes, const char *engine,
                      ftrma_wire_connect *connect, ftrma_wire_acked *acked, void *arg,
                      struct ftrma_origin **origin)
{
    struct ftrma_origin *o = calloc(1, sizeof *o);
    if (!o)
        return -ENOMEM;
    o->alarm = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    int error = !targets || !nodes ? -EINVAL : o->alarm < 0 ? -errno : 0;
    if (!error)
        error = ftrma_engine_open(engine, FTRMA_WIRE_REPLIES, &o->engine);
    if (!error)
        error = ftrma_engine_wake_by(o->engine, o->alarm, FTRMA_WIRE_RUNG);
    if (!error) {
        o->targets = calloc(targets, sizeof *o->targets);
        o->nodes = calloc(nodes, sizeof *o->nodes);
        error = o->targets && o->nodes ? 0 : -ENOMEM;
    }
    if (error) {
        ftrma_origin_close(o);
        return error;
    }
    o->ntargets = targets;
    o->nnodes = nodes;
    o->connect = connect;
    o->acked = acked;
    o->arg = arg;
    o->timeout_ms = -1;
    for (uint32_t i = 0; i < targets; i++)
        o->targets[i].generation = 1;
    *origin = o;
    return 0;
}

void ftrma_origin_close(struct ftrma_origin *o)
{
    if (o->engine)
        ftrma_engine_close(o->engine);
    if (o->alarm >= 0)
        close(o->alarm);
    for (uint32_t i = 0; o->targets && i < o->ntargets; i++)
        ftrma_retransmit_clear(&o->targets[i].kept);
    free(o->targets);
    free(o->nodes);
    free(o);
}
