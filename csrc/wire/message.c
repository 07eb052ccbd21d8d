/* The rules for heads and payloads, which are checked before anything is done. A peer whose message
 * breaks them is told the rule, and loses its connection. Before these rules, sums are checked,
 * which show if it is still the message that was sent.
 */
#include "message.h"

#include <stddef.h>
#include <string.h>

#include "sum.h"

#define RUN ((uint32_t)sizeof(struct ftrma_wire_run))
#define WORD ((uint32_t)sizeof(struct ftrma_wire_word))

const char *const ftrma_message_damaged = "it was changed on its way";

static uint64_t sum_of_head(const struct ftrma_wire_head *head)
{
    return ftrma_sum(head, offsetof(struct ftrma_wire_head, head_sum));
}

static uint64_t sum_of_payload(const struct ftrma_wire_head *head, const void *payload)
{
    return head->length ? ftrma_sum(payload, head->length) : 0;
}

void ftrma_message_seal(struct ftrma_wire_head *head, const void *payload)
{
    if (!head->payload_sum)
        head->payload_sum = sum_of_payload(head, payload);
    head->head_sum = sum_of_head(head);
}

size_t ftrma_message_element(int type)
{
    if (type < FTRMA_WIRE_I32 || type >= FTRMA_WIRE_TYPES)
        return 0;
    return type < FTRMA_WIRE_I64 ? 4 : 8;
}

/* Say why the operation, type, size or place of an atomic breaks the rules. */
static const char *atomic_fault(const struct ftrma_wire_head *head)
{
    int op = ftrma_message_op(head), type = ftrma_message_type(head);
    size_t size = ftrma_message_element(type);
    if (!size)
        return "unknown type of elements";
    if (head->kind == FTRMA_WIRE_CAS ? op != 0 : op < FTRMA_WIRE_SUM || op >= FTRMA_WIRE_OPS)
        return "unknown operation";
    if ((type == FTRMA_WIRE_F32 || type == FTRMA_WIRE_F64) && op >= FTRMA_WIRE_BAND
        && op <= FTRMA_WIRE_BXOR)
        return "no such operation on floating-point numbers";
    if (head->kind == FTRMA_WIRE_ACC ? head->length % size : head->length != size)
        return "length does not fit the type of elements";
    return head->offset % size ? "offset does not fit the type of elements" : NULL;
}

static const char *get_fault(const struct ftrma_wire_head *head)
{
    return !head->operand || head->operand > FTRMA_WIRE_PAYLOAD_BYTES
               ? "asks for too many bytes, or none"
               : NULL;
}

static const char *getv_fault(const struct ftrma_wire_head *head)
{
    return head->length % RUN ? "half a run" : NULL;
}

static const char *lock_fault(const struct ftrma_wire_head *head)
{
    return head->operand >= FTRMA_WIRE_LOCKS ? "no such lock" : NULL;
}

static const char *set_fault(const struct ftrma_wire_head *head)
{
    return head->offset % sizeof(uint64_t) ? "offset does not fit a word" : NULL;
}

static const char *file_fault(const struct ftrma_wire_head *head)
{
    return head->offset >= FTRMA_WIRE_FILES ? "neither look nor make nor remove" : NULL;
}

static const char *roles_fault(const struct ftrma_wire_head *head)
{
    return head->operand > 1 ? "neither yes nor no" : NULL;
}

static const char *ack_fault(const struct ftrma_wire_head *head)
{
    return head->length % sizeof(struct ftrma_wire_ack) ? "half a record" : NULL;
}

static const char *answer_fault(const struct ftrma_wire_head *head)
{
    return (head->length - 24) % 8 ? "length does not fit the type of elements" : NULL;
}

static const char *mirror_fault(const struct ftrma_wire_head *head)
{
    return head->length % WORD ? "half a word" : NULL;
}

/* The rules for the heads of one kind. */
struct form {
    int side;
    int numbered;
    uint32_t least, most; /* bytes after the head */
    int about;            /* whether it names a window */
    const char *(*fault)(const struct ftrma_wire_head *head); /* its further rules, or NULL */
};

static const struct form forms[FTRMA_WIRE_KINDS] = {
    [FTRMA_WIRE_PUT] = {FTRMA_WIRE_REQUESTS, 1, 1, FTRMA_WIRE_PAYLOAD_BYTES, 1, NULL},
    [FTRMA_WIRE_PUTV] = {FTRMA_WIRE_REQUESTS, 1, RUN + 1, FTRMA_WIRE_PAYLOAD_BYTES, 1, NULL},
    [FTRMA_WIRE_ACC] = {FTRMA_WIRE_REQUESTS, 1, 4, FTRMA_WIRE_ATOMIC_BYTES, 1, atomic_fault},
    [FTRMA_WIRE_FOP] = {FTRMA_WIRE_REQUESTS, 1, 4, 8, 1, atomic_fault},
    [FTRMA_WIRE_CAS] = {FTRMA_WIRE_REQUESTS, 1, 4, 8, 1, atomic_fault},
    [FTRMA_WIRE_LOCK] = {FTRMA_WIRE_REQUESTS, 1, 0, 0, 1, lock_fault},
    [FTRMA_WIRE_UNLOCK] = {FTRMA_WIRE_REQUESTS, 1, 0, 0, 1, lock_fault},
    [FTRMA_WIRE_SET] = {FTRMA_WIRE_REQUESTS, 1, 0, 0, 1, set_fault},
    [FTRMA_WIRE_GET] = {FTRMA_WIRE_REQUESTS, 0, 0, 0, 1, get_fault},
    [FTRMA_WIRE_GETV] = {FTRMA_WIRE_REQUESTS, 0, RUN, RUN * FTRMA_WIRE_RUNS, 1, getv_fault},
    [FTRMA_WIRE_FLUSH] = {FTRMA_WIRE_REQUESTS, 0, 0, 0, 0, NULL},
    [FTRMA_WIRE_NUMBER] = {FTRMA_WIRE_REQUESTS, 0, 0, 0, 0, NULL},
    [FTRMA_WIRE_HOLD] = {FTRMA_WIRE_REQUESTS, 0, 0, 0, 0, NULL},
    [FTRMA_WIRE_RELEASE] = {FTRMA_WIRE_REQUESTS | FTRMA_WIRE_REPLIES, 0, 0, 0, 0, NULL},
    [FTRMA_WIRE_ROLES] = {FTRMA_WIRE_REQUESTS, 0, 0, 0, 0, roles_fault},
    [FTRMA_WIRE_RESEND] = {FTRMA_WIRE_REQUESTS, 0, 0, 0, 0, NULL},
    [FTRMA_WIRE_FILE] = {FTRMA_WIRE_REQUESTS, 0, 1, FTRMA_WIRE_NAME_BYTES - 1, 1, file_fault},
    [FTRMA_WIRE_DONE] = {FTRMA_WIRE_REPLIES, 0, 0, 0, 0, NULL},
    [FTRMA_WIRE_DATA] = {FTRMA_WIRE_REPLIES, 0, 1, FTRMA_WIRE_PAYLOAD_BYTES, 0, NULL},
    [FTRMA_WIRE_ACK] = {FTRMA_WIRE_REPLIES, 0, 0, FTRMA_WIRE_PAYLOAD_BYTES, 0, ack_fault},
    [FTRMA_WIRE_ANSWER] = {FTRMA_WIRE_REPLIES, 0, 24 + 8, 24 + 2 * FTRMA_WIRE_ATOMIC_BYTES, 0,
                           answer_fault},
    [FTRMA_WIRE_REJECTED] = {FTRMA_WIRE_REPLIES, 0, 0, 0, 0, NULL},
    [FTRMA_WIRE_OLD_ROLES] = {FTRMA_WIRE_REPLIES, 0, 0, 0, 0, NULL},
    [FTRMA_WIRE_BROKEN] = {FTRMA_WIRE_REQUESTS | FTRMA_WIRE_REPLIES, 0, 1, 256, 0, NULL},
    [FTRMA_WIRE_MIRROR] = {FTRMA_WIRE_REQUESTS, 0, 0, FTRMA_WIRE_PAYLOAD_BYTES, 0, mirror_fault},
    [FTRMA_WIRE_MIRRORED] = {FTRMA_WIRE_REQUESTS, 0, 0, 0, 0, NULL},
};

int ftrma_message_numbered(const struct ftrma_wire_head *head)
{
    return forms[head->kind].numbered;
}

int ftrma_message_among_agents(const struct ftrma_wire_head *head)
{
    return head->kind == FTRMA_WIRE_MIRROR || head->kind == FTRMA_WIRE_MIRRORED
           || head->kind == FTRMA_WIRE_BROKEN;
}

const char *ftrma_message_fault(const struct ftrma_wire_head *head, int side)
{
    return head->head_sum != sum_of_head(head) ? ftrma_message_damaged
                                               : ftrma_message_broken_rule(head, side);
}

const char *ftrma_message_broken_rule(const struct ftrma_wire_head *head, int side)
{
    if (head->format != FTRMA_WIRE_FORMAT)
        return "another format of messages";
    if (!head->kind || head->kind >= FTRMA_WIRE_KINDS)
        return "unknown kind";
    const struct form *form = &forms[head->kind];
    if (!(form->side & side))
        return side == FTRMA_WIRE_REQUESTS ? "not a request" : "not a reply";
    if (head->length < form->least || head->length > form->most)
        return head->length > form->most ? "too long" : "too short";
    if (!form->about && head->window)
        return "a window where there is none";
    if (form->numbered && !head->number)
        return "a number is missing";
    if (head->operation && form->fault != atomic_fault)
        return "an operation where there is none";
    return form->fault ? form->fault(head) : NULL;
}

/* Say if a run is empty, or all runs have more than so many bytes together. */
static const char *runs_fault(const void *payload, uint64_t n, uint64_t bytes)
{
    uint64_t sum = 0;
    for (uint64_t i = 0; i < n; i++) {
        struct ftrma_wire_run run;
        memcpy(&run, (const char *)payload + i * sizeof run, sizeof run);
        if (!run.bytes || run.bytes > bytes - sum)
            return "runs do not fit the length";
        sum += run.bytes;
    }
    return NULL;
}

const char *ftrma_message_payload_fault(const struct ftrma_wire_head *head, const void *payload)
{
    uint64_t n = head->operand, length = head->length, size = sizeof(struct ftrma_wire_run);
    if (head->payload_sum != sum_of_payload(head, payload))
        return ftrma_message_damaged;
    if (head->kind == FTRMA_WIRE_GETV)
        return runs_fault(payload, length / size, FTRMA_WIRE_PAYLOAD_BYTES);
    if (head->kind != FTRMA_WIRE_PUTV)
        return NULL;
    if (!n || n > FTRMA_WIRE_RUNS || n * size >= length)
        return "runs do not fit the length";
    const char *fault = runs_fault(payload, n, length - n * size);
    uint64_t sum = 0;
    for (uint64_t i = 0; i < n && !fault; i++) {
        struct ftrma_wire_run run;
        memcpy(&run, (const char *)payload + i * size, sizeof run);
        sum += run.bytes;
    }
    return fault ? fault : sum != length - n * size ? "bytes that belong to no run" : NULL;
}
