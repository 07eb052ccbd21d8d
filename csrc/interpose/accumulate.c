/* Accumulates on protected windows: of any layout, with and without the old value.
 *
 * The arithmetic is the library's (MPI_Reduce_local), so all its operations and types work.
 */
#include "accumulate.h"

#include <stdlib.h>

#include "change.h"
#include "faratomic.h"

/* Set target = target op origin, element by element of the predefined type `element`. */
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

/* One access: the bytes that it changes, and the place for the old value. */
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

/* 1 if the target is on another node, and the elements are contiguous on both sides: then the agent
   can do the access. */
static int is_plain(const struct accumulation *a)
{
    const struct ftrma_sides *s = &a->change;
    return s->type == a->element && s->target_type == a->element
           && (!a->fetch || (a->old.type == a->element && a->old.target_type == a->element
                             && a->fetched.span == a->changed.span));
}

static int by_agent(const struct accumulation *a)
{
    const struct reach *r = &a->changed;
    return is_far(r->w, r->target) && is_plain(a)
           && ftrma_far_can(r, FTRMA_WIRE_ACC, a->op, a->element);
}

static int change(const struct accumulation *a)
{
    const struct ftrma_sides *s = &a->change;
    const struct reach *r = &a->changed;
    struct change c = {0};
    if (by_agent(a)) {
        int done = ftrma_far_atomic(r, a->what, FTRMA_WIRE_ACC, a->op, a->element, a->origin, NULL,
                                    a->fetch ? a->result : NULL);
        if (!done && a->fetch && ftrma_counts())
            done = ftrma_access_learn(&a->fetched, a->result, a->old.count, a->old.type, a->what, 0);
        if (!done)
            ftrma_event_end();
        return done;
    }
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

/* The library checks the operation, in a call without an element. */
int ftrma_check_op(struct window *w, const char *call, MPI_Op op, MPI_Datatype element, int fetch)
{
    /* The operation and type that were accepted the last time. Both are predefined, so nobody frees
       them. */
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
    if (by_agent(a))
        ftrma_far_pass(r->w, r->target);
    rc = a->fetch ? ftrma_access_learn(r, a->result, s->count, s->type, a->what, 1) : MPI_SUCCESS;
    if (!rc)
        ftrma_event_end();
    return rc;
}

int ftrma_accumulate(struct window *w, const char *call, const void *origin, int count,
                     MPI_Datatype type, int fetch, void *result, int result_count,
                     MPI_Datatype result_type, int target, MPI_Aint disp, int target_count,
                     MPI_Datatype target_type, MPI_Op op)
{
    if (op == MPI_NO_OP) { /* the origin's bytes are ignored */
        count = target_count;
        type = target_type;
    }
    struct accumulation a; /* the reaches are filled in later; clearing them first would cost a
                              twentieth of the call */
    a.what = fetch ? FTRMA_WHAT_GET_ACCUMULATE : FTRMA_WHAT_ACCUMULATE;
    a.origin = origin;
    a.change = (struct ftrma_sides)SIDES(count, type, target_count, target_type);
    a.op = op;
    a.fetch = fetch;
    a.result = result;
    a.old = (struct ftrma_sides)SIDES(result_count, result_type, target_count, target_type);
    int plain, plain_result, rc;
    rc = ftrma_access_prepare(w, call, FTRMA_FAILPOINT_ATOMIC, &a.change, 0, target, disp,
                              &a.changed, &plain);
    if (!rc && fetch)
        rc = ftrma_access_sizes(w, call, &a.old, 1, target, disp, &a.fetched, &plain_result);
    if (!rc) {
        a.element = ftrma_element_type(target_type);
        rc = ftrma_check_op(w, call, op, a.element, fetch);
    }
    if (!rc)
        rc = perform(&a, plain);
    ftrma_access_done(&a.old, rc);
    return ftrma_access_done(&a.change, rc);
}

/* ---- the MPI calls -------------------------------------------------------------------------- */

int MPI_Accumulate(const void *origin, int count, MPI_Datatype type, int target, MPI_Aint disp,
                   int target_count, MPI_Datatype target_type, MPI_Op op, MPI_Win win)
{
    OURS(win, target, PMPI_Accumulate(origin, count, type, target, disp, target_count,
         target_type, op, win));
    return ftrma_accumulate(w, "Accumulate", origin, count, type, 0, NULL, 0, MPI_BYTE, target,
                            disp, target_count, target_type, op);
}

int MPI_Get_accumulate(const void *origin, int count, MPI_Datatype type, void *result,
                       int result_count, MPI_Datatype result_type, int target, MPI_Aint disp,
                       int target_count, MPI_Datatype target_type, MPI_Op op, MPI_Win win)
{
    OURS(win, target, PMPI_Get_accumulate(origin, count, type, result, result_count,
         result_type, target, disp, target_count, target_type, op, win));
    return ftrma_accumulate(w, "Get_accumulate", origin, count, type, 1, result, result_count,
                            result_type, target, disp, target_count, target_type, op);
}

int MPI_Raccumulate(const void *origin, int count, MPI_Datatype type, int target, MPI_Aint disp,
                    int target_count, MPI_Datatype target_type, MPI_Op op, MPI_Win win,
                    MPI_Request *request)
{
    OURS_REQUEST(win, target, PMPI_Raccumulate(origin, count, type, target, disp,
                 target_count, target_type, op, win, request));
    return ftrma_request_done(ftrma_accumulate(w, "Raccumulate", origin, count, type, 0, NULL, 0,
                                               MPI_BYTE, target, disp, target_count, target_type,
                                               op), request);
}

int MPI_Rget_accumulate(const void *origin, int count, MPI_Datatype type, void *result,
                        int result_count, MPI_Datatype result_type, int target, MPI_Aint disp,
                        int target_count, MPI_Datatype target_type, MPI_Op op, MPI_Win win,
                        MPI_Request *request)
{
    OURS_REQUEST(win, target, PMPI_Rget_accumulate(origin, count, type, result,
                 result_count, result_type, target, disp, target_count, target_type, op, win,
                 request));
    return ftrma_request_done(ftrma_accumulate(w, "Rget_accumulate", origin, count, type, 1, result,
                                               result_count, result_type, target, disp,
                                               target_count, target_type, op), request);
}
