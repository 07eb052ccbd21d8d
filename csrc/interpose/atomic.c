/* Atomics of one element on protected windows: Fetch_and_op and Compare_and_swap. Each is answered
 * from the log, or it is done under the part's lock, and its old value, in `result`, is logged. */
#include <stdlib.h>

#include "accumulate.h"
#include "change.h"
#include "faratomic.h"

/* Begin an atomic on a contiguous predefined type: answer it from the log, or take the lock, and
   put the old value into `result`. */
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

/* Drop the copy of an unchanged element, so that it is not written back: its owner may have stored
   there meanwhile. */
static void forget(char **owned)
{
    free(*owned);
    *owned = NULL;
}

/* 1 if the operation will change anything. A program that waits by swapping in the value that is
   there, or by adding nothing, only reads: no change is logged. */
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

/* Do an atomic on another node, if the agent can. */
static int far_element(const struct reach *r, int what, uint64_t data, int kind, MPI_Op op,
                       MPI_Datatype type, const void *origin, const void *compare, void *result)
{
    int skip = enter(r, what, data), rc = skip > 1 ? skip : MPI_SUCCESS;
    if (!skip)
        rc = ftrma_far_atomic(r, what, kind, op, type, origin, compare, result);
    else if (!rc)
        ftrma_far_pass(r->w, r->target);
    if (!rc && ftrma_counts())
        rc = ftrma_access_learn(r, result, 1, type, what, skip);
    if (!rc)
        ftrma_event_end();
    return rc;
}

static int fetch_and_op(struct window *w, const void *origin, void *result, MPI_Datatype type,
                        int target, MPI_Aint disp, MPI_Op op)
{
    size_t size = ftrma_basic_size(type);
    if (!size)
        return ftrma_accumulate(w, "Fetch_and_op", origin, 1, type, 1, result, 1, type, target,
                                disp, 1, type, op);
    struct reach r;
    struct change c = {0};
    char *to, *owned;
    int answered, rc = ftrma_access_check(w, "Fetch_and_op", FTRMA_FAILPOINT_ATOMIC, target);
    if (!rc && op != MPI_SUM)
        rc = ftrma_check_op(w, "Fetch_and_op", op, type, 1);
    if (!rc)
        rc = ftrma_reach(w, "Fetch_and_op", target, disp, 1, type, &r);
    uint64_t data = op == MPI_NO_OP ? 0 : ftrma_access_sample(origin, size);
    if (!rc && is_far(w, target) && ftrma_far_can(&r, FTRMA_WIRE_FOP, op, type))
        return far_element(&r, FTRMA_WHAT_FETCH_AND_OP, data, FTRMA_WIRE_FOP, op, type, origin, NULL,
                           result);
    if (!rc)
        rc = element_begin(&r, FTRMA_WHAT_FETCH_AND_OP, data, result, type, &to, &owned, &answered);
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
    } else {
        forget(&owned);
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
    int answered, rc = ftrma_access_check(w, "Compare_and_swap", FTRMA_FAILPOINT_ATOMIC, target);
    if (!rc)
        rc = ftrma_reach(w, "Compare_and_swap", target, disp, 1, type, &r);
    uint64_t data = ftrma_mix(ftrma_access_sample(origin, size), ftrma_access_sample(compare, size));
    if (!rc && is_far(w, target) && ftrma_far_can(&r, FTRMA_WIRE_CAS, MPI_OP_NULL, type))
        return far_element(&r, FTRMA_WHAT_COMPARE_AND_SWAP, data, FTRMA_WIRE_CAS, MPI_OP_NULL, type,
                           origin, compare, result);
    if (!rc)
        rc = element_begin(&r, FTRMA_WHAT_COMPARE_AND_SWAP, data, result, type, &to, &owned,
                           &answered);
    if (rc || answered)
        return rc;
    if (!memcmp(to, compare, size)) {
        rc = change_begin(&r, &c, FTRMA_WHAT_COMPARE_AND_SWAP, to, 1, type);
        memcpy(to, origin, size);
        if (!rc)
            rc = change_log(&r, &c, to, 1, type);
    } else {
        forget(&owned);
    }
    return element_end(&r, &c, owned, type, rc);
}

/* ---- the MPI calls -------------------------------------------------------------------------- */

int MPI_Fetch_and_op(const void *origin, void *result, MPI_Datatype type, int target,
                     MPI_Aint disp, MPI_Op op, MPI_Win win)
{
    OURS(win, target, PMPI_Fetch_and_op(origin, result, type, target, disp, op, win));
    return fetch_and_op(w, origin, result, type, target, disp, op);
}

int MPI_Compare_and_swap(const void *origin, const void *compare, void *result, MPI_Datatype type,
                         int target, MPI_Aint disp, MPI_Win win)
{
    OURS(win, target, PMPI_Compare_and_swap(origin, compare, result, type, target, disp,
         win));
    return compare_and_swap(w, origin, compare, result, type, target, disp);
}
