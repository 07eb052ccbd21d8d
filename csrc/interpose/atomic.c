/* Accumulates and atomics on protected windows.
 *
 * On a part they are serialized by a word that names its owner; the arithmetic is the library's
 * (MPI_Reduce_local), so all its operations and types work.  A process that dies inside leaves its
 * name, waiters unwind, and re-creation of the window clears it.
 */
#include <stdlib.h>

#include "access.h"

/* ---- one change ----------------------------------------------------------------------------- */

/* One at a time on a part.  FTRMA_OK, or the unwind code when a failure was noticed. */
static int atomic_begin(struct window *w, int target)
{
    int32_t *owner = &w->members[target].atomic_owner, mine = w->me + 1;
    uint32_t seen = LOAD(&w->header->bell.word);
    for (unsigned step = 0;; seen = LOAD(&w->header->bell.word)) {
        int32_t nobody = 0;
        if (__atomic_compare_exchange_n(owner, &nobody, mine, 0, __ATOMIC_ACQUIRE,
                                        __ATOMIC_RELAXED))
            return FTRMA_OK;
        if (ftrma_unwinding())
            return ftrma_code_unwind;
        ftrma_wait_step(&step, &w->header->bell, seen);
    }
}

static void atomic_end(struct window *w, int target)
{
    __atomic_store_n(&w->members[target].atomic_owner, 0, __ATOMIC_SEQ_CST);
    if (unlikely(__atomic_load_n(&w->header->bell.sleepers, __ATOMIC_SEQ_CST)))
        ftrma_wake(&w->header->bell);
}

/* Words that are added here: the library's dispatch alone would cost more than the rest. */
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

/* target = target op origin, element by element of the predefined type `element`. */
static int combine(const void *origin, const struct ftrma_sides *s, char *to, MPI_Datatype element,
                   MPI_Op op)
{
    if (op == MPI_REPLACE)
        return ftrma_convert(origin, s->count, s->type, to, s->target_count, s->target_type);
    if (s->type == element && s->target_type == element && s->count == 1 && op == MPI_SUM
        && is_word(element)) {
        add_word(to, origin);
        return MPI_SUCCESS;
    }
    if (s->type == element && s->target_type == element)
        return PMPI_Reduce_local(origin, to, s->count, element, op);
    size_t bytes;
    MPI_Aint lb, extent;
    int size, rc = ftrma_packed_bytes(s->target_count, s->target_type, &bytes);
    if (!rc)
        rc = PMPI_Type_size(element, &size);
    if (!rc)
        rc = PMPI_Type_get_extent(element, &lb, &extent);
    if (rc)
        return rc;
    int n = (int)(bytes / (size_t)size);
    char *given = malloc((size_t)n * (size_t)extent + 1), *old = malloc((size_t)n * (size_t)extent + 1);
    rc = given && old ? ftrma_convert(origin, s->count, s->type, given, n, element)
                      : MPI_ERR_NO_MEM;
    if (!rc)
        rc = ftrma_convert(to, s->target_count, s->target_type, old, n, element);
    if (!rc)
        rc = PMPI_Reduce_local(given, old, n, element, op);
    if (!rc)
        rc = ftrma_convert(old, n, element, to, s->target_count, s->target_type);
    free(given);
    free(old);
    return rc;
}

/* An atomic's old or new value, where it fits. */
static inline void trace_value(const struct reach *r, int which, const char *memory)
{
    if (unlikely(ftrma_tracing) && r->span <= sizeof ftrma_trace.value[which])
        memcpy(&ftrma_trace.value[which], memory + r->low, r->span);
}

/* The records of one change under the lock: what was there, for the case that this process dies before
   it is done, and what is there then.  Repair looks at `atomic_done` (event.h, replay.c). */
struct change {
    struct ftrma_record record;
    struct ftrma_pen before; /* the result log without the old bytes */
    int log;
};

/* One record of what lies there; words go by the short way. */
static inline int log_part(int log, const struct reach *r, struct ftrma_record *record,
                           const char *memory, int count, MPI_Datatype type)
{
    if (unlikely(!ftrma_basic_size(type) || r->span != 8))
        return ftrma_access_log(log, r, record, memory, count, type);
    ftrma_log_small(log, record, memory, 8);
    return MPI_SUCCESS;
}

static int change_begin(const struct reach *r, struct change *c, int what, const char *memory,
                        int count, MPI_Datatype type)
{
    c->log = ftrma_logs();
    if (!c->log)
        drop(r->span);
    if (!c->log && !ftrma_tracing)
        return MPI_SUCCESS;
    trace_value(r, 0, memory);
    c->before = ftrma_pens[FTRMA_RESULTS];
    c->record = record_of(r, FTRMA_RECORD_UNDO, what);
    number(r, &c->record);
    if (!c->log || r->target == r->w->me)
        return MPI_SUCCESS;
    return log_part(FTRMA_RESULTS, r, &c->record, memory, count, type);
}

static int change_log(const struct reach *r, struct change *c, const char *memory, int count,
                      MPI_Datatype type)
{
    trace_value(r, 1, memory);
    if (!c->log)
        return MPI_SUCCESS;
    int self = r->target == r->w->me;
    c->record.kind = self ? FTRMA_RECORD_SELF : FTRMA_RECORD_PUT;
    return log_part(self ? FTRMA_RESULTS : FTRMA_PUTS, r, &c->record, memory, count, type);
}

static void change_end(const struct reach *r, struct change *c)
{
    struct ftrma_tape *t = &ftrma_tape;
    t->slot->hash[(t->events + 1) & 1] = ftrma_mix(t->hash, t->signature);
    __atomic_store_n(&t->slot->atomic_done, t->events + 1, __ATOMIC_RELEASE);
    atomic_end(r->w, r->target);
    ftrma_event_end();
    if (c->log && r->target != r->w->me)
        ftrma_log_pop(FTRMA_RESULTS, &c->before);
}

/* One access: what it changes, and where the old value goes. */
struct accumulation {
    int what;
    const void *origin;
    struct ftrma_sides change;
    struct reach changed;
    MPI_Op op;
    MPI_Datatype element;
    int fetch;
    void *result;
    struct ftrma_sides old; /* from the target to the result */
    struct reach fetched;
};

static int fetch_old(const struct accumulation *a)
{
    const struct ftrma_sides *s = &a->old;
    char *from, *owned;
    int rc = ftrma_image(&a->fetched, &from, &owned);
    if (!rc)
        rc = ftrma_convert(from, s->target_count, s->target_type, a->result, s->count, s->type);
    free(owned);
    if (!rc && ftrma_counts())
        rc = ftrma_access_learn(&a->fetched, a->result, s->count, s->type,
                                FTRMA_WHAT_GET_ACCUMULATE, 0);
    return rc;
}

static int change(const struct accumulation *a)
{
    const struct ftrma_sides *s = &a->change;
    const struct reach *r = &a->changed;
    struct change c = {0};
    int rc = atomic_begin(r->w, r->target);
    if (unlikely(rc))
        return rc;
    if (a->fetch)
        rc = fetch_old(a);
    if (!rc && r->span && a->op != MPI_NO_OP) {
        char *to, *owned;
        rc = ftrma_image(r, &to, &owned);
        if (!rc)
            rc = change_begin(r, &c, a->what, to, s->target_count, s->target_type);
        if (!rc)
            rc = combine(a->origin, s, to, a->element, a->op);
        if (!rc)
            rc = change_log(r, &c, to, s->target_count, s->target_type);
        rc = ftrma_put_back(r, owned, s->target_count, s->target_type, rc);
    }
    if (!rc && ftrma_counts())
        change_end(r, &c);
    else
        atomic_end(r->w, r->target);
    return rc;
}

/* ---- the accesses --------------------------------------------------------------------------- */

/* The library judges operations by itself, without an element. */
static int check_op(struct window *w, const char *call, MPI_Op op, MPI_Datatype element, int fetch)
{
    /* What was right the last time; both are predefined, so nobody frees them. */
    static _Thread_local MPI_Op last_op __attribute__((tls_model("initial-exec")));
    static _Thread_local MPI_Datatype last __attribute__((tls_model("initial-exec")));
    if (op == MPI_REPLACE || (op == MPI_NO_OP && fetch) || likely(op == last_op && element == last))
        return MPI_SUCCESS;
    if (element == MPI_DATATYPE_NULL)
        return ftrma_window_fail(w, MPI_ERR_ARG, "%s: the target's datatype is not made of one "
                                 "predefined datatype", call);
    if (ftrma_predefined(op) && !PMPI_Reduce_local(NULL, NULL, 0, element, op)) {
        last_op = op;
        last = element;
        return MPI_SUCCESS;
    }
    return ftrma_window_fail(w, MPI_ERR_OP, "%s: not a predefined operation for this datatype",
                             call);
}

static int perform(const struct accumulation *a, int plain)
{
    const struct ftrma_sides *s = &a->old;
    const struct reach *r = a->fetch ? &a->fetched : &a->changed;
    int data = plain && a->op != MPI_NO_OP && a->changed.span, rc;
    int skip = enter(r, a->what, data ? ftrma_access_sample(a->origin, a->changed.span) : 0);
    if (skip != 1)
        return skip ? skip : change(a);
    rc = a->fetch ? ftrma_access_learn(r, a->result, s->count, s->type, a->what, 1) : MPI_SUCCESS;
    if (!rc)
        ftrma_event_end();
    return rc;
}

static int accumulate(struct window *w, const char *call, const void *origin, int count,
                      MPI_Datatype type, int fetch, void *result, int result_count,
                      MPI_Datatype result_type, int target, MPI_Aint disp, int target_count,
                      MPI_Datatype target_type, MPI_Op op)
{
    if (op == MPI_NO_OP) { /* the origin is not significant */
        count = target_count;
        type = target_type;
    }
    struct accumulation a; /* the reaches follow; clearing them first would cost a twentieth of all */
    a.what = fetch ? FTRMA_WHAT_GET_ACCUMULATE : FTRMA_WHAT_ACCUMULATE;
    a.origin = origin;
    a.change = (struct ftrma_sides)SIDES(count, type, target_count, target_type);
    a.op = op;
    a.fetch = fetch;
    a.result = result;
    a.old = (struct ftrma_sides)SIDES(result_count, result_type, target_count, target_type);
    int plain, plain_result, rc;
    rc = ftrma_access_prepare(w, call, FTRMA_PLACE_ATOMIC, &a.change, 0, target, disp, &a.changed,
                              &plain);
    if (!rc && fetch)
        rc = ftrma_access_sizes(w, call, &a.old, 1, target, disp, &a.fetched, &plain_result);
    if (!rc) {
        a.element = ftrma_element_type(target_type);
        rc = check_op(w, call, op, a.element, fetch);
    }
    if (!rc)
        rc = perform(&a, plain);
    ftrma_access_done(&a.old, rc);
    return ftrma_access_done(&a.change, rc);
}

/* The two single-element atomics, on contiguous predefined types; answered from the log, or with the
   lock held and the old value in `result`, logged. */
static int element_begin(const struct reach *r, int what, uint64_t data, void *result,
                         MPI_Datatype type, char **to, char **owned, int *answered)
{
    int rc, skip = enter(r, what, data);
    *answered = skip == 1;
    if (skip) {
        rc = skip == 1 ? ftrma_access_learn(r, result, 1, type, what, 1) : skip;
        if (!rc)
            ftrma_event_end();
        return rc;
    }
    rc = atomic_begin(r->w, r->target);
    if (rc)
        return rc;
    rc = ftrma_image(r, to, owned);
    if (!rc) {
        memcpy(result, *to, r->span);
        if (ftrma_counts())
            rc = ftrma_access_learn(r, result, 1, type, what, 0);
    }
    if (rc) {
        free(*owned);
        atomic_end(r->w, r->target);
    }
    return rc;
}

static int element_end(const struct reach *r, struct change *c, char *owned, MPI_Datatype type,
                       int rc)
{
    rc = ftrma_put_back(r, owned, 1, type, rc);
    if (!rc && ftrma_counts())
        change_end(r, c);
    else
        atomic_end(r->w, r->target);
    return rc;
}

/* Whether anything will change.  Who waits by swapping in what is there, or by adding nothing, only
   reads: nothing is logged of it. */
static inline int changes(MPI_Op op, MPI_Datatype type, const void *origin, const char *to,
                          size_t size)
{
    static const uint64_t nothing;
    if (op == MPI_REPLACE)
        return memcmp(to, origin, size) != 0;
    if (op == MPI_SUM && is_word(type))
        return memcmp(origin, &nothing, sizeof nothing) != 0;
    return op != MPI_NO_OP;
}

static int fetch_and_op(struct window *w, const void *origin, void *result, MPI_Datatype type,
                        int target, MPI_Aint disp, MPI_Op op)
{
    size_t size = ftrma_basic_size(type);
    if (!size)
        return accumulate(w, "Fetch_and_op", origin, 1, type, 1, result, 1, type, target, disp, 1,
                          type, op);
    struct reach r;
    struct change c = {0};
    char *to, *owned;
    int answered, rc = ftrma_access_check(w, "Fetch_and_op", FTRMA_PLACE_ATOMIC, target);
    if (!rc && op != MPI_SUM)
        rc = check_op(w, "Fetch_and_op", op, type, 1);
    if (!rc)
        rc = ftrma_reach(w, "Fetch_and_op", target, disp, 1, type, &r);
    if (!rc)
        rc = element_begin(&r, FTRMA_WHAT_FETCH_AND_OP,
                           op == MPI_NO_OP ? 0 : ftrma_access_sample(origin, size), result, type,
                           &to, &owned, &answered);
    if (rc || answered)
        return rc;
    if (changes(op, type, origin, to, size)) {
        rc = change_begin(&r, &c, FTRMA_WHAT_FETCH_AND_OP, to, 1, type);
        if (op == MPI_REPLACE)
            memcpy(to, origin, size);
        else if (op == MPI_SUM && is_word(type))
            add_word(to, origin);
        else if (!rc)
            rc = PMPI_Reduce_local(origin, to, 1, type, op);
        if (!rc)
            rc = change_log(&r, &c, to, 1, type);
    }
    return element_end(&r, &c, owned, type, rc);
}

static int compare_and_swap(struct window *w, const void *origin, const void *compare,
                            void *result, MPI_Datatype type, int target, MPI_Aint disp)
{
    size_t size = ftrma_basic_size(type);
    struct reach r;
    struct change c = {0};
    char *to, *owned;
    if (!size)
        return ftrma_window_fail(w, MPI_ERR_TYPE, "Compare_and_swap needs a predefined integer, "
                                 "logical or byte type");
    int answered, rc = ftrma_access_check(w, "Compare_and_swap", FTRMA_PLACE_ATOMIC, target);
    if (!rc)
        rc = ftrma_reach(w, "Compare_and_swap", target, disp, 1, type, &r);
    if (!rc)
        rc = element_begin(&r, FTRMA_WHAT_COMPARE_AND_SWAP,
                           ftrma_mix(ftrma_access_sample(origin, size),
                                     ftrma_access_sample(compare, size)),
                           result, type, &to, &owned, &answered);
    if (rc || answered)
        return rc;
    if (!memcmp(to, compare, size)) {
        rc = change_begin(&r, &c, FTRMA_WHAT_COMPARE_AND_SWAP, to, 1, type);
        memcpy(to, origin, size);
        if (!rc)
            rc = change_log(&r, &c, to, 1, type);
    }
    return element_end(&r, &c, owned, type, rc);
}

/* ---- the MPI calls -------------------------------------------------------------------------- */

int MPI_Accumulate(const void *origin, int count, MPI_Datatype type, int target, MPI_Aint disp,
                   int target_count, MPI_Datatype target_type, MPI_Op op, MPI_Win win)
{
    OURS(ATOMIC, win, target, PMPI_Accumulate(origin, count, type, target, disp, target_count,
         target_type, op, win));
    return accumulate(w, "Accumulate", origin, count, type, 0, NULL, 0, MPI_BYTE, target, disp,
                      target_count, target_type, op);
}

int MPI_Get_accumulate(const void *origin, int count, MPI_Datatype type, void *result,
                       int result_count, MPI_Datatype result_type, int target, MPI_Aint disp,
                       int target_count, MPI_Datatype target_type, MPI_Op op, MPI_Win win)
{
    OURS(ATOMIC, win, target, PMPI_Get_accumulate(origin, count, type, result, result_count,
         result_type, target, disp, target_count, target_type, op, win));
    return accumulate(w, "Get_accumulate", origin, count, type, 1, result, result_count, result_type,
                      target, disp, target_count, target_type, op);
}

int MPI_Fetch_and_op(const void *origin, void *result, MPI_Datatype type, int target,
                     MPI_Aint disp, MPI_Op op, MPI_Win win)
{
    OURS(ATOMIC, win, target, PMPI_Fetch_and_op(origin, result, type, target, disp, op, win));
    return fetch_and_op(w, origin, result, type, target, disp, op);
}

int MPI_Compare_and_swap(const void *origin, const void *compare, void *result, MPI_Datatype type,
                         int target, MPI_Aint disp, MPI_Win win)
{
    OURS(ATOMIC, win, target, PMPI_Compare_and_swap(origin, compare, result, type, target, disp,
         win));
    return compare_and_swap(w, origin, compare, result, type, target, disp);
}

int MPI_Raccumulate(const void *origin, int count, MPI_Datatype type, int target, MPI_Aint disp,
                    int target_count, MPI_Datatype target_type, MPI_Op op, MPI_Win win,
                    MPI_Request *request)
{
    OURS_REQUEST(ATOMIC, win, target, PMPI_Raccumulate(origin, count, type, target, disp,
                 target_count, target_type, op, win, request));
    return ftrma_request_done(accumulate(w, "Raccumulate", origin, count, type, 0, NULL, 0,
                                         MPI_BYTE, target, disp, target_count, target_type, op),
                              request);
}

int MPI_Rget_accumulate(const void *origin, int count, MPI_Datatype type, void *result,
                        int result_count, MPI_Datatype result_type, int target, MPI_Aint disp,
                        int target_count, MPI_Datatype target_type, MPI_Op op, MPI_Win win,
                        MPI_Request *request)
{
    OURS_REQUEST(ATOMIC, win, target, PMPI_Rget_accumulate(origin, count, type, result,
                 result_count, result_type, target, disp, target_count, target_type, op, win,
                 request));
    return ftrma_request_done(accumulate(w, "Rget_accumulate", origin, count, type, 1, result,
                                         result_count, result_type, target, disp, target_count,
                                         target_type, op), request);
}
