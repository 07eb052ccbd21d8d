/* One change of a part: the common piece of accumulate.c and atomic.c.
 *
 * Changes of a part are serialized by a word that names their owner. A process that dies inside
 * leaves its name, waiters unwind, and the repair clears the word (settle.c).
 */
#ifndef FTRMA_CHANGE_H
#define FTRMA_CHANGE_H

#include "access.h"
#include "far.h"

/* Begin an exclusive change of a part. FTRMA_OK, or the unwind code if a failure was noticed. After
   a repair in this call the target may be in a replay, as after one in `enter`. */
static inline int atomic_begin(struct window *w, int target)
{
    int32_t *owner = &w->members[target].atomic_owner, mine = w->me + 1;
    uint32_t seen = LOAD(&w->header->bell.word);
    if (is_far(w, target)) {
        /* It takes several requests, only some of which may be done at a death. */
        ftrma_foreign("an accumulate that a node's agent cannot do");
        return ftrma_far_begin_change(w, target);
    }
    for (unsigned step = 0;; seen = LOAD(&w->header->bell.word)) {
        int32_t nobody = 0;
        if (__atomic_compare_exchange_n(owner, &nobody, mine, 0, __ATOMIC_ACQUIRE,
                                        __ATOMIC_RELAXED))
            return FTRMA_OK;
        int rc = ftrma_unwinding() ? ftrma_code_unwind : await_target(w, target);
        if (rc)
            return rc;
        /* If the owner is on another node, the word names the agent instead. */
        int known = nobody > 0 && nobody <= w->n;
        ftrma_wait_step(&step, &w->header->bell, seen,
                        ftrma_awaits(FTRMA_WHAT_ACCUMULATE, known ? w->members[nobody - 1].slot : -1));
    }
}

static inline void atomic_end(struct window *w, int target)
{
    if (is_far(w, target)) {
        ftrma_far_end_change(w, target);
        return;
    }
    __atomic_store_n(&w->members[target].atomic_owner, 0, __ATOMIC_SEQ_CST);
    if (unlikely(__atomic_load_n(&w->header->bell.sleepers, __ATOMIC_SEQ_CST)))
        ftrma_wake(&w->header->bell);
}

/* 1 for words that are added here, since the library's dispatch would cost more than the rest. */
static inline int is_word(MPI_Datatype type)
{
    return type == MPI_INT64_T || type == MPI_LONG || type == MPI_UINT64_T || type == MPI_LONG_LONG;
}

static inline void add_word(char *to, const void *origin)
{
    uint64_t sum, add;
    memcpy(&sum, to, sizeof sum);
    memcpy(&add, origin, sizeof add);
    sum += add;
    memcpy(to, &sum, sizeof sum);
}

/* Trace an atomic's old or new value, if it fits. */
static inline void trace_value(const struct reach *r, int which, const char *memory)
{
    if (unlikely(ftrma_tracing) && r->span <= sizeof ftrma_trace.value[which])
        memcpy(&ftrma_trace.value[which], memory + r->low, r->span);
}

/* The records of one change under the lock: the old bytes, in case this process dies before the
   change is done, and the new bytes. The repair looks at `atomic_done` (event.h, replay.c). */
struct change {
    struct ftrma_record record;
    struct ftrma_pen before; /* the end of the result log without the old bytes */
    int log;
};

/* Log one record of the bytes at this place; words take a shortcut. */
static inline int log_part(int log, const struct reach *r, struct ftrma_record *record,
                           const char *memory, int count, MPI_Datatype type)
{
    if (unlikely(!ftrma_basic_size(type) || r->span != 8))
        return ftrma_access_log(log, r, record, memory, count, type);
    ftrma_log_small(log, record, memory, 8);
    return MPI_SUCCESS;
}

static inline int change_begin(const struct reach *r, struct change *c, int what,
                               const char *memory, int count, MPI_Datatype type)
{
    c->log = ftrma_logs();
    if (!c->log)
        count_dropped(r->span);
    if (!c->log && !ftrma_tracing)
        return MPI_SUCCESS;
    trace_value(r, 0, memory);
    c->before = ftrma_pens[FTRMA_RESULTS];
    c->record = record_of(r, FTRMA_RECORD_UNDO, what);
    take_number(r, &c->record);
    if (!c->log || r->target == r->w->me)
        return MPI_SUCCESS;
    return log_part(FTRMA_RESULTS, r, &c->record, memory, count, type);
}

static inline int change_log(const struct reach *r, struct change *c, const char *memory,
                             int count, MPI_Datatype type)
{
    trace_value(r, 1, memory);
    if (!c->log)
        return MPI_SUCCESS;
    int self = r->target == r->w->me;
    c->record.kind = self ? FTRMA_RECORD_SELF : FTRMA_RECORD_PUT;
    return log_part(self ? FTRMA_RESULTS : FTRMA_PUTS, r, &c->record, memory, count, type);
}

static inline void change_end(const struct reach *r, struct change *c)
{
    struct ftrma_event_clock *t = &ftrma_event_clock;
    t->slot->hash[(t->events + 1) & 1] = ftrma_mix(t->hash, t->signature);
    __atomic_store_n(&t->slot->atomic_done, t->events + 1, __ATOMIC_RELEASE);
    atomic_end(r->w, r->target);
    ftrma_event_end();
    if (c->log && r->target != r->w->me)
        ftrma_log_pop(FTRMA_RESULTS, &c->before);
}

#endif
