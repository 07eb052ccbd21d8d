/* What requests do to a part.
 *
 * A put is copied, then its number stored: a successor of an agent that died between does it again.
 * An atomic cannot be done again, so: note how to take it back, apply it, store the answer, then the
 * number.  That store makes it done.  Answers outlive the agent, and the target's process: others may
 * have seen the effect, so the same request gets the same answer.
 */
#include "apply.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "combine.h"
#include "message.h"
#include "reply.h"
#include "strike.h"

#define TRIES 200 /* a neighbour is inside of a change for some 100 ns */

static struct ftrma_ledger_part *part_of(const struct ftrma_request *r)
{
    return &r->peer->agent->ledger->parts[r->part];
}

static uint64_t clock_of(const struct ftrma_peer *peer, uint32_t target)
{
    return LOAD(&peer->agent->ledger->targets[target].clock);
}

static uint64_t next_seq(struct ftrma_ledger_part *part)
{
    return __atomic_add_fetch(&part->seq, 1, __ATOMIC_SEQ_CST);
}

static struct ftrma_wire_run run_of(const struct ftrma_request *r, uint64_t i)
{
    struct ftrma_wire_run run;
    memcpy(&run, r->payload + i * sizeof run, sizeof run);
    return run;
}

/* How many runs it has, each of them with bytes of its own; 0: it is one stretch. */
static uint64_t runs_of(const struct ftrma_wire_head *head)
{
    if (head->kind == FTRMA_WIRE_PUTV)
        return head->operand;
    return head->kind == FTRMA_WIRE_GETV ? head->length / sizeof(struct ftrma_wire_run) : 0;
}

const char *ftrma_apply_fault(const struct ftrma_request *r)
{
    uint64_t size = part_of(r)->bytes, n = runs_of(r->head);
    uint64_t bytes = r->head->kind == FTRMA_WIRE_GET ? r->head->operand : r->head->length;
    int outside = !n && (r->head->offset > size || bytes > size - r->head->offset);
    for (uint64_t i = 0; i < n && !outside; i++) {
        struct ftrma_wire_run run = run_of(r, i);
        outside = run.offset > size || run.bytes > size - run.offset;
    }
    return outside ? "reaches outside of the part" : NULL;
}

int ftrma_apply_put(const struct ftrma_request *r)
{
    struct ftrma_agent *agent = r->peer->agent;
    const struct ftrma_wire_head *head = r->head;
    uint64_t n = runs_of(head), clock = clock_of(r->peer, head->target);
    uint64_t seq = next_seq(part_of(r));
    const unsigned char *from = r->payload + n * sizeof(struct ftrma_wire_run);
    for (uint64_t i = 0; i < n; i++) {
        struct ftrma_wire_run run = run_of(r, i);
        memcpy(r->base + run.offset, from, run.bytes);
        from += run.bytes;
        ftrma_strike(agent, FTRMA_WIRE_AT_HALF);
    }
    if (!n) {
        size_t half = agent->place == FTRMA_WIRE_AT_HALF ? head->length / 2 : 0;
        memcpy(r->base + head->offset, from, half);
        if (half)
            ftrma_strike(agent, FTRMA_WIRE_AT_HALF);
        memcpy(r->base + head->offset + half, from + half, head->length - half);
    }
    ftrma_strike(agent, FTRMA_WIRE_AT_PUT);
    STORE(&ftrma_ledger_pair(agent->ledger, r->peer->origin, head->target)->number, head->number);
    return ftrma_reply_owe(r->peer, head, clock, seq) ? FTRMA_APPLY_FAILED : FTRMA_APPLIED;
}

void ftrma_apply_get(const struct ftrma_request *r)
{
    uint64_t n = runs_of(r->head);
    unsigned char *data = r->peer->agent->scratch, *to = data;
    if (!n) {
        ftrma_reply(r->peer, r->head, FTRMA_WIRE_DATA, 0, r->base + r->head->offset,
                    r->head->operand);
        return;
    }
    for (uint64_t i = 0; i < n; i++) {
        struct ftrma_wire_run run = run_of(r, i);
        memcpy(to, r->base + run.offset, run.bytes);
        to += run.bytes;
    }
    ftrma_reply(r->peer, r->head, FTRMA_WIRE_DATA, 0, data, (size_t)(to - data));
}

/* ---- atomics ---- */

/* Be alone with the agent's changes: processes of the node take the same word (change.h). */
static int enter(struct ftrma_ledger_part *part)
{
    for (int i = 0; i < TRIES; i++) {
        int32_t nobody = 0;
        if (__atomic_compare_exchange_n(&part->owner, &nobody, -1, 0, __ATOMIC_SEQ_CST,
                                        __ATOMIC_ACQUIRE))
            return 1;
        sched_yield();
    }
    return 0;
}

static void combine(const struct ftrma_request *r, unsigned char *value, size_t bytes)
{
    int type = ftrma_message_type(r->head);
    if (r->head->kind != FTRMA_WIRE_CAS)
        ftrma_combine(ftrma_message_op(r->head), type, value, r->payload, bytes);
    else if (!memcmp(value, &r->head->operand, bytes)) /* the low bytes come first */
        memcpy(value, r->payload, bytes);
}

static void tell(struct ftrma_peer *peer, const struct ftrma_wire_head *head,
                 const struct ftrma_wire_answer *answer)
{
    size_t bytes = offsetof(struct ftrma_wire_answer, data) + 2 * answer->bytes
                   - offsetof(struct ftrma_wire_answer, clock);
    ftrma_reply_acks(peer, head->target, 0);
    ftrma_reply(peer, head, FTRMA_WIRE_ANSWER, 0, &answer->clock, bytes);
}

int ftrma_apply_atomic(const struct ftrma_request *r)
{
    struct ftrma_agent *agent = r->peer->agent;
    struct ftrma_ledger_part *part = part_of(r);
    const struct ftrma_wire_head *head = r->head;
    struct ftrma_ledger_pair *pair = ftrma_ledger_pair(agent->ledger, r->peer->origin, head->target);
    unsigned char *at = r->base + head->offset, value[FTRMA_WIRE_IMAGE];
    size_t bytes = head->length, half = bytes / 2;
    if (!enter(part))
        return FTRMA_APPLY_PARKED;
    uint64_t clock = clock_of(r->peer, head->target), seq = next_seq(part);
    struct ftrma_undo *undo = &part->undo;
    STORE(&undo->number, 0);
    undo->origin = r->peer->origin;
    undo->generation = part->generation;
    undo->offset = head->offset;
    undo->bytes = bytes;
    memcpy(undo->old, at, bytes);
    STORE(&undo->number, head->number);
    ftrma_strike(agent, FTRMA_WIRE_AT_UNDO);

    memcpy(value, at, bytes);
    combine(r, value, bytes);
    if (bytes == 8 && !((uintptr_t)at & 7)) { /* whoever loads the word sees it whole */
        uint64_t word;
        memcpy(&word, value, sizeof word);
        STORE((uint64_t *)(void *)at, word);
    } else if (bytes == 4 && !((uintptr_t)at & 3)) {
        uint32_t word;
        memcpy(&word, value, sizeof word);
        STORE((uint32_t *)(void *)at, word);
    } else {
        memcpy(at, value, half);
        ftrma_strike(agent, FTRMA_WIRE_AT_APPLY);
        memcpy(at + half, value + half, bytes - half);
    }
    ftrma_strike(agent, FTRMA_WIRE_AT_APPLY);

    struct ftrma_wire_answer *answer = &pair->answer;
    STORE(&answer->number, 0);
    answer->clock = clock;
    answer->seq = seq;
    answer->bytes = bytes;
    memcpy(answer->data, undo->old, bytes);
    memcpy(answer->data + bytes, value, bytes);
    STORE(&answer->number, head->number);
    ftrma_strike(agent, FTRMA_WIRE_AT_ANSWER);

    STORE(&pair->number, head->number);
    ftrma_strike(agent, FTRMA_WIRE_AT_NUMBER);
    STORE(&part->owner, 0);
    tell(r->peer, head, answer);
    return FTRMA_APPLIED;
}

void ftrma_apply_repeat(struct ftrma_peer *peer, const struct ftrma_wire_head *head, int part)
{
    struct ftrma_ledger *l = peer->agent->ledger;
    const struct ftrma_wire_answer *answer =
        &ftrma_ledger_pair(l, peer->origin, head->target)->answer;
    switch (head->kind) {
    case FTRMA_WIRE_PUT:
    case FTRMA_WIRE_PUTV: /* any moment between call and flush is as good as the first time */
        (void)ftrma_reply_owe(peer, head, clock_of(peer, head->target), next_seq(&l->parts[part]));
        break;
    case FTRMA_WIRE_LOCK:
    case FTRMA_WIRE_UNLOCK:
        ftrma_reply_acks(peer, head->target, 0);
        ftrma_reply(peer, head, FTRMA_WIRE_DONE, 0, NULL, 0);
        break;
    default: /* an older atomic's answer has been taken, else there were no newer one */
        if (LOAD(&answer->number) == head->number)
            tell(peer, head, answer);
    }
}
