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

/* target = target op origin, element by element of the predefined type `element`. */
static int combine(const void *origin, int count, MPI_Datatype type, char *to, int target_count,
                   MPI_Datatype target_type, MPI_Op op)
{
    MPI_Datatype element = ftrma_element_type(target_type);
    if (op == MPI_NO_OP)
        return MPI_SUCCESS;
    if (op == MPI_REPLACE)
        return ftrma_convert(origin, count, type, to, target_count, target_type);
    if (element == MPI_DATATYPE_NULL)
        return MPI_ERR_TYPE;
    if (type == element && target_type == element)
        return PMPI_Reduce_local(origin, to, count, element, op);
    size_t bytes;
    MPI_Aint lb, extent;
    int size, rc = ftrma_packed_bytes(target_count, target_type, &bytes);
    if (!rc)
        rc = PMPI_Type_size(element, &size);
    if (!rc)
        rc = PMPI_Type_get_extent(element, &lb, &extent);
    if (rc)
        return rc;
    int n = (int)(bytes / (size_t)size);
    char *given = malloc((size_t)n * (size_t)extent + 1), *old = malloc((size_t)n * (size_t)extent + 1);
    rc = given && old ? ftrma_convert(origin, count, type, given, n, element) : MPI_ERR_NO_MEM;
    if (!rc)
        rc = ftrma_convert(to, target_count, target_type, old, n, element);
    if (!rc)
        rc = PMPI_Reduce_local(given, old, n, element, op);
    if (!rc)
        rc = ftrma_convert(old, n, element, to, target_count, target_type);
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

static int change_begin(const struct reach *r, struct change *c, int what, const char *memory,
                        int count, MPI_Datatype type)
{
    c->log = ftrma_logs();
    if (!c->log && !ftrma_tracing)
        return MPI_SUCCESS;
    trace_value(r, 0, memory);
    c->before = ftrma_pens[FTRMA_RESULTS];
    c->record = record_of(r, FTRMA_RECORD_UNDO, what);
    number(r, &c->record);
    return r->target == r->w->me
               ? MPI_SUCCESS
               : ftrma_access_log(FTRMA_RESULTS, r, &c->record, memory, count, type);
}

static int change_log(const struct reach *r, struct change *c, const char *memory, int count,
                      MPI_Datatype type)
{
    trace_value(r, 1, memory);
    if (!c->log)
        return MPI_SUCCESS;
    int self = r->target == r->w->me;
    c->record.kind = self ? FTRMA_RECORD_SELF : FTRMA_RECORD_PUT;
    return ftrma_access_log(self ? FTRMA_RESULTS : FTRMA_PUTS, r, &c->record, memory, count, type);
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

/* fetch: the old value goes to `result` first. */
static int change(const struct reach *r, int what, const void *origin, int count, MPI_Datatype type,
                  int fetch, void *result, int result_count, MPI_Datatype result_type,
                  int target_count, MPI_Datatype target_type, MPI_Op op)
{
    int rc = atomic_begin(r->w, r->target);
    if (unlikely(rc))
        return rc;
    char *to, *owned;
    struct change c = {0};
    rc = ftrma_image(r, &to, &owned);
    if (!rc && fetch)
        rc = ftrma_convert(to, target_count, target_type, result, result_count, result_type);
    if (!rc && fetch && ftrma_counts())
        rc = ftrma_access_learn(r, result, result_count, result_type, FTRMA_WHAT_GET_ACCUMULATE, 0);
    if (!rc && r->span && op != MPI_NO_OP) {
        rc = change_begin(r, &c, what, to, target_count, target_type);
        if (!rc)
            rc = combine(origin, count, type, to, target_count, target_type, op);
        if (!rc)
            rc = change_log(r, &c, to, target_count, target_type);
    }
    rc = ftrma_put_back(r, owned, target_count, target_type, rc);
    if (!rc && ftrma_counts())
        change_end(r, &c);
    else
        atomic_end(r->w, r->target);
    return rc;
}

/* ---- the accesses --------------------------------------------------------------------------- */

static int accumulate(struct window *w, const char *call, const void *origin, int count,
                      MPI_Datatype type, int fetch, void *result, int result_count,
                      MPI_Datatype result_type, int target, MPI_Aint disp, int target_count,
                      MPI_Datatype target_type, MPI_Op op)
{
    struct reach r;
    int plain, rc, what = fetch ? FTRMA_WHAT_GET_ACCUMULATE : FTRMA_WHAT_ACCUMULATE;
    if (op == MPI_NO_OP) { /* the origin is not significant */
        count = target_count;
        type = target_type;
    }
    rc = ftrma_access_prepare(w, call, FTRMA_PLACE_ATOMIC, count, type, target, disp, target_count,
                              target_type, &r, &plain);
    size_t bytes, result_bytes;
    if (!rc && fetch) {
        rc = ftrma_packed_bytes(target_count, target_type, &bytes);
        if (!rc)
            rc = ftrma_packed_bytes(result_count, result_type, &result_bytes);
        if (!rc && result_bytes < bytes)
            rc = ftrma_window_fail(w, MPI_ERR_TRUNCATE, "%s: the result has room for %zu bytes, the "
                                   "target has %zu", call, result_bytes, bytes);
    }
    if (rc)
        return rc;
    int data = plain && op != MPI_NO_OP && r.span;
    int skip = enter(&r, what, data ? ftrma_access_sample(origin, r.span) : 0);
    if (!skip)
        return change(&r, what, origin, count, type, fetch, result, result_count, result_type,
                      target_count, target_type, op);
    if (skip == 1 && fetch)
        rc = ftrma_access_learn(&r, result, result_count, result_type, what, 1);
    if (skip == 1 && !rc)
        ftrma_event_end();
    return skip == 1 ? rc : skip;
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
    if (!rc)
        rc = ftrma_reach(w, "Fetch_and_op", target, disp, 1, type, &r);
    if (!rc)
        rc = element_begin(&r, FTRMA_WHAT_FETCH_AND_OP,
                           op == MPI_NO_OP ? 0 : ftrma_access_sample(origin, size), result, type,
                           &to, &owned, &answered);
    if (rc || answered)
        return rc;
    if (op != MPI_NO_OP) {
        rc = change_begin(&r, &c, FTRMA_WHAT_FETCH_AND_OP, to, 1, type);
        if (op == MPI_REPLACE)
            memcpy(to, origin, size);
        else if (op == MPI_SUM && (type == MPI_INT64_T || type == MPI_LONG || type == MPI_UINT64_T
                                   || type == MPI_LONG_LONG)) {
            uint64_t old, add; /* the library's dispatch alone would cost more than the rest */
            memcpy(&old, to, sizeof old);
            memcpy(&add, origin, sizeof add);
            old += add;
            memcpy(to, &old, sizeof old);
        } else if (!rc) {
            rc = PMPI_Reduce_local(origin, to, 1, type, op);
        }
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
