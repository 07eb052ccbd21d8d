/* Requests that read or write a part.
 *
 * A put is copied, then its number is stored. If the agent dies between, the next agent gets the
 * put again and copies it again. A SET raises its word after its number is stored, and again
 * whenever the request comes again. An atomic cannot be repeated. So the agent stores its undo,
 * applies it, stores the answer, then the number, which makes the atomic done. The answer outlives
 * the agent and the target's process: others may have seen the effect, so a repeated request must
 * get the answer of the first time.
 */
#include "apply.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "combine.h"
#include "failpoint.h"
#include "message.h"
#include "reply.h"
#include "sum.h"

#define NO_MEMORY "the agent has no memory for it"
#define WORD sizeof(uint64_t)
#define TRIES 200 /* a process of the node is inside a change for some 100 ns */

const char *const ftrma_apply_parked = "parked";

static struct ftrma_ledger_part *part_of(const struct ftrma_request *r)
{
    return &r->peer->agent->ledger->parts[r->part];
}

static uint64_t clock_of(const struct ftrma_peer *peer, uint32_t target)
{
    return ftrma_ledger_clock(peer->agent->ledger, target);
}

static struct ftrma_wire_words *words_of(const struct ftrma_request *r)
{
    return ftrma_parts_words(r->peer->agent->ledger, (uint32_t)r->part);
}

static uint64_t next_seq(const struct ftrma_request *r)
{
    struct ftrma_wire_words *words = words_of(r);
    return words ? __atomic_add_fetch(&words->seq, 1, __ATOMIC_SEQ_CST) : 0;
}

static struct ftrma_wire_run run_of(const struct ftrma_request *r, uint64_t i)
{
    struct ftrma_wire_run run;
    memcpy(&run, r->payload + i * sizeof run, sizeof run);
    return run;
}

/* Returned in place of a fault: the bytes to read are in the memory of a process that has died. The
   request gets no reply: the repair rings the alarm of its origin, which sends it again later. */
static const char dead[] = "its process has died";

/* Copy to the part, or from it. Returns NULL, or why that is impossible. */
static const char *reach(const struct ftrma_request *r, uint64_t offset, void *bytes, size_t n,
                         int write)
{
    struct ftrma_ledger *l = r->peer->agent->ledger;
    uint32_t part = (uint32_t)r->part;
    int error = write ? ftrma_parts_write(l, part, offset, bytes, n)
                      : ftrma_parts_read(l, part, offset, bytes, n);
    if (!error)
        return NULL;
    if (error == -ESRCH) /* nobody needs the bytes that are written to it */
        return write ? NULL : dead;
    return error == -EPERM ? "the node does not let the agent reach the memory of a process: "
                             "windows from Allocate need no such permission"
                           : "the memory of the part cannot be reached";
}

/* The number of runs of a PUTV or GETV; 0 for another request, which has one stretch. */
static uint64_t runs_of(const struct ftrma_wire_head *head)
{
    if (head->kind == FTRMA_WIRE_PUTV)
        return head->operand;
    return head->kind == FTRMA_WIRE_GETV ? head->length / sizeof(struct ftrma_wire_run) : 0;
}

const char *ftrma_apply_fault(const struct ftrma_request *r)
{
    const struct ftrma_wire_part *place = &part_of(r)->place;
    uint64_t size = place->bytes, n = runs_of(r->head);
    uint64_t bytes = r->head->kind == FTRMA_WIRE_GET ? r->head->operand : r->head->length;
    if (place->words == FTRMA_WIRE_PLAIN && r->head->kind >= FTRMA_WIRE_ACC
        && r->head->kind <= FTRMA_WIRE_UNLOCK)
        return "the part is a plain file";
    if (r->head->kind == FTRMA_WIRE_SET) /* the offset may be any number, and must not wrap */
        return place->head < WORD || r->head->offset > place->head - WORD ? "no such word" : NULL;
    int outside = !n && (r->head->offset > size || bytes > size - r->head->offset);
    for (uint64_t i = 0; i < n && !outside; i++) {
        struct ftrma_wire_run run = run_of(r, i);
        outside = run.offset > size || run.bytes > size - run.offset;
    }
    return outside ? "reaches outside of the part" : NULL;
}

const char *ftrma_apply_put(const struct ftrma_request *r)
{
    struct ftrma_agent *agent = r->peer->agent;
    const struct ftrma_wire_head *head = r->head;
    uint64_t n = runs_of(head), clock = clock_of(r->peer, head->target), seq = next_seq(r);
    unsigned char *from = (unsigned char *)(uintptr_t)r->payload + n * sizeof(struct ftrma_wire_run);
    const char *fault = NULL;
    for (uint64_t i = 0; i < n && !fault; i++) {
        struct ftrma_wire_run run = run_of(r, i);
        fault = reach(r, run.offset, from, run.bytes, 1);
        from += run.bytes;
        ftrma_failpoint(agent, FTRMA_WIRE_AT_HALF);
    }
    if (!n) {
        size_t half = agent->failpoint == FTRMA_WIRE_AT_HALF ? head->length / 2 : 0;
        if (half) {
            fault = reach(r, head->offset, from, half, 1);
            ftrma_failpoint(agent, FTRMA_WIRE_AT_HALF);
        }
        fault = fault ? fault : reach(r, head->offset + half, from + half, head->length - half, 1);
    }
    if (fault)
        return fault;
    ftrma_failpoint(agent, FTRMA_WIRE_AT_PUT);
    STORE(&ftrma_ledger_pair(agent->ledger, r->peer->origin, head->target)->number, head->number);
    return ftrma_reply_note_put(r->peer, head, clock, seq) ? NO_MEMORY : NULL;
}

/* The number is stored first: a process that sees the raised word may release the part, and a
   request that came again would find no part. If the agent dies between the two stores, the
   repeated SET raises the word. */
const char *ftrma_apply_set(const struct ftrma_request *r)
{
    struct ftrma_ledger *l = r->peer->agent->ledger;
    const struct ftrma_wire_head *head = r->head;
    STORE(&ftrma_ledger_pair(l, r->peer->origin, head->target)->number, head->number);
    ftrma_failpoint(r->peer->agent, FTRMA_WIRE_AT_NUMBER);
    ftrma_parts_set(l, (uint32_t)r->part, head->offset, head->operand);
    return ftrma_reply_note_put(r->peer, head, 0, 0) ? NO_MEMORY : NULL;
}

const char *ftrma_apply_get(const struct ftrma_request *r)
{
    const struct ftrma_wire_part *place = &part_of(r)->place;
    uint64_t n = runs_of(r->head), sum = 0;
    unsigned char *data = r->peer->agent->scratch, *to = data;
    const char *fault = NULL;
    /* The bytes are copied in any case, since others may store there between the sum and the
       sending. */
    if (!n && !place->pid) {
        const char *map = r->peer->agent->ledger->mapped[r->part].map;
        sum = ftrma_sum_copy(to, map + place->at + r->head->offset, r->head->operand);
        to += r->head->operand;
    } else if (!n) {
        fault = reach(r, r->head->offset, to, r->head->operand, 0);
        to += r->head->operand;
    }
    for (uint64_t i = 0; i < n && !fault; i++) {
        struct ftrma_wire_run run = run_of(r, i);
        fault = reach(r, run.offset, to, run.bytes, 0);
        to += run.bytes;
    }
    if (!fault)
        ftrma_reply_data(r->peer, r->head, data, (size_t)(to - data), sum);
    return fault == dead ? NULL : fault;
}

/* ---- atomics ---- */

/* Keep changes by processes of the node out: they enter by the same word (change.h). Returns 0 if
   one of them is inside a change. */
static int enter(struct ftrma_wire_words *words)
{
    for (int i = 0; i < TRIES; i++) {
        int32_t nobody = 0;
        if (__atomic_compare_exchange_n(&words->owner, &nobody, -1, 0, __ATOMIC_SEQ_CST,
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

static void leave(const struct ftrma_request *r, struct ftrma_wire_words *words)
{
    struct ftrma_ledger *l = r->peer->agent->ledger;
    STORE(&words->owner, 0);
    if (ftrma_parts_sleepers(l, (uint32_t)r->part))
        ftrma_parts_wake(l, (uint32_t)r->part);
}

/* Store changed elements. An aligned element in the part's file changes by one store. */
static const char *write_back(const struct ftrma_request *r, unsigned char *value, size_t bytes)
{
    struct ftrma_agent *agent = r->peer->agent;
    const struct ftrma_wire_part *place = &part_of(r)->place;
    char *at = agent->ledger->mapped[r->part].map + place->at + r->head->offset;
    size_t half = bytes / 2;
    if (!place->pid && bytes == 8 && !((uintptr_t)at & 7)) {
        uint64_t word;
        memcpy(&word, value, sizeof word);
        STORE((uint64_t *)(void *)at, word);
    } else if (!place->pid && bytes == 4 && !((uintptr_t)at & 3)) {
        uint32_t word;
        memcpy(&word, value, sizeof word);
        STORE((uint32_t *)(void *)at, word);
    } else {
        const char *fault = reach(r, r->head->offset, value, half, 1);
        if (fault)
            return fault;
        ftrma_failpoint(agent, FTRMA_WIRE_AT_APPLY);
        return reach(r, r->head->offset + half, value + half, bytes - half, 1);
    }
    return NULL;
}

const char *ftrma_apply_atomic(const struct ftrma_request *r)
{
    struct ftrma_agent *agent = r->peer->agent;
    struct ftrma_ledger_part *part = part_of(r);
    const struct ftrma_wire_head *head = r->head;
    struct ftrma_ledger_pair *pair = ftrma_ledger_pair(agent->ledger, r->peer->origin, head->target);
    struct ftrma_wire_words *words = words_of(r);
    unsigned char value[FTRMA_WIRE_ATOMIC_BYTES];
    size_t bytes = head->length;
    if (!enter(words))
        return ftrma_apply_parked;
    uint64_t clock = clock_of(r->peer, head->target), seq = next_seq(r);
    struct ftrma_undo *undo = &part->undo;
    STORE(&undo->number, 0);
    const char *fault = reach(r, head->offset, undo->old, bytes, 0);
    undo->origin = r->peer->origin;
    undo->generation = part->place.generation;
    undo->offset = head->offset;
    undo->bytes = bytes;
    memcpy(value, undo->old, bytes);
    combine(r, value, bytes);
    int changes = memcmp(value, undo->old, bytes) != 0; /* otherwise nothing is written, since the
                                                           target may store there */
    if (!fault && changes)
        STORE(&undo->number, head->number);
    ftrma_failpoint(agent, FTRMA_WIRE_AT_UNDO);

    if (!fault && changes)
        fault = write_back(r, value, bytes);
    if (fault) {
        leave(r, words);
        return fault == dead ? NULL : fault;
    }
    ftrma_failpoint(agent, FTRMA_WIRE_AT_APPLY);

    struct ftrma_wire_answer *answer = &pair->answer;
    STORE(&answer->number, 0);
    answer->clock = clock;
    answer->seq = seq;
    answer->bytes = bytes;
    memcpy(answer->data, undo->old, bytes);
    memcpy(answer->data + bytes, value, bytes);
    STORE(&answer->number, head->number);
    ftrma_failpoint(agent, FTRMA_WIRE_AT_ANSWER);

    STORE(&pair->number, head->number);
    ftrma_failpoint(agent, FTRMA_WIRE_AT_NUMBER);
    leave(r, words);
    tell(r->peer, head, answer);
    return NULL;
}

void ftrma_apply_repeat(const struct ftrma_request *r)
{
    struct ftrma_peer *peer = r->peer;
    const struct ftrma_wire_head *head = r->head;
    struct ftrma_ledger *l = peer->agent->ledger;
    const struct ftrma_wire_answer *answer =
        &ftrma_ledger_pair(l, peer->origin, head->target)->answer;
    struct ftrma_wire_words *words;
    switch (head->kind) {
    case FTRMA_WIRE_PUT:
    case FTRMA_WIRE_PUTV: /* a put may take effect at any moment between call and flush */
        (void)ftrma_reply_note_put(peer, head, clock_of(peer, head->target),
                                   r->part < 0 ? 0 : next_seq(r));
        break;
    case FTRMA_WIRE_SET:
        if (r->part >= 0 && !ftrma_apply_fault(r))
            ftrma_parts_set(l, (uint32_t)r->part, head->offset, head->operand);
        (void)ftrma_reply_note_put(peer, head, 0, 0);
        break;
    case FTRMA_WIRE_LOCK:
    case FTRMA_WIRE_UNLOCK:
        words = words_of(r); /* NULL: the part is gone, or plain */
        ftrma_reply_acks(peer, head->target, 0);
        ftrma_reply(peer, head, FTRMA_WIRE_DONE, words ? LOAD(&words->lock) >> 32 : 0, NULL, 0);
        break;
    default: /* the origin has taken the answer of an older atomic, since otherwise it would not
                have sent a newer one */
        if (LOAD(&answer->number) == head->number)
            tell(peer, head, answer);
    }
}
