/* Data calls on protected windows: put, get, accumulate and the atomics.
 *
 * This file is the mover, the one part that knows how bytes travel.  On one node a part from
 * Allocate is mapped by every member, so a put is a copy; a part from Create lies in its owner's
 * private memory and is reached through process_vm_readv and process_vm_writev, which fail at once
 * when the owner is dead.  Either way an access is complete in memory when its call returns, and
 * no call can wait for a dead process.
 *
 * Accumulates and atomics on a part are serialized by a word that names its owner; the arithmetic
 * is the library's (MPI_Reduce_local), so all its operations and types work.  A process that dies
 * inside leaves its name, waiters unwind, and re-creation of the window clears it.
 *
 * Contiguous predefined types take the fast path.  Everything else goes through a packed copy made
 * by the library's own datatype engine (a message to oneself).
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "log.h"
#include "types.h"
#include "window.h"

/* ---- reaching a part ------------------------------------------------------------------------ */

/* A stretch of the target's part: where it is, and what of it an access touches. */
struct reach {
    struct window *w;
    int target;
    uint64_t at;      /* byte offset of the displacement in the part */
    MPI_Aint low;     /* touched bytes, relative to `at` */
    size_t span;
};

static int reach(struct window *w, const char *call, int target, MPI_Aint disp, int count,
                 MPI_Datatype type, struct reach *r)
{
    struct ftrma_member *m = &w->members[target];
    size_t size = ftrma_basic_size(type);
    r->w = w;
    r->target = target;
    r->low = 0;
    r->span = size * (size_t)count;
    if (unlikely(!size) && count > 0) {
        MPI_Aint lb, extent, tlb, textent;
        int rc = PMPI_Type_get_extent(type, &lb, &extent);
        if (!rc)
            rc = PMPI_Type_get_true_extent(type, &tlb, &textent);
        if (rc)
            return rc;
        MPI_Aint shift = (count - 1) * extent;
        r->low = shift < 0 ? tlb + shift : tlb;
        r->span = (size_t)(textent + (shift < 0 ? -shift : shift));
    }
    int64_t first = (int64_t)disp * m->disp_unit + r->low;
    r->at = (uint64_t)((int64_t)disp * m->disp_unit);
    if (unlikely(r->span && (disp < 0 || first < 0 || (uint64_t)first > m->size_bytes
                             || r->span > m->size_bytes - (uint64_t)first)))
        return ftrma_window_fail(w, MPI_ERR_RMA_RANGE, "%s of %zu bytes at displacement %lld "
                                 "(%lld bytes) to rank %d leaves its window of %llu bytes", call,
                                 r->span, (long long)disp, (long long)first, target,
                                 (unsigned long long)m->size_bytes);
    return MPI_SUCCESS;
}

/* Address of the part's memory if this process can touch it directly, else NULL. */
static inline char *direct(const struct reach *r)
{
    struct window *w = r->w;
    if (likely(w->allocated))
        return part(w, r->target) + r->at;
    if (r->target == w->me)
        return (char *)(uintptr_t)w->members[r->target].base + r->at;
    return NULL;
}

static int remote_failure(struct window *w, int target)
{
    if (errno == ESRCH) {
        int slot = w->members[target].slot;
        ftrma_note_death(ftrma_roles(ftrma_ctl)->slot_proc[slot]);
        return ftrma_code_unwind;
    }
    return ftrma_window_fail(w, MPI_ERR_OTHER, "cannot reach the memory of rank %d in a window "
                             "from Create (%s): use Allocate, or allow process_vm_readv between "
                             "processes of one user", target, strerror(errno));
}

static pid_t owner_pid(const struct reach *r)
{
    const struct ftrma_member *m = &r->w->members[r->target];
    return ftrma_ctl->proc[ftrma_roles(ftrma_ctl)->slot_proc[m->slot]].pid;
}

/* Move bytes between `local` and the touched stretch of a part from Create. */
static int remote(const struct reach *r, void *local, int write)
{
    const struct ftrma_member *m = &r->w->members[r->target];
    size_t done = 0;
    while (done < r->span) {
        uint64_t address = m->base + r->at + (uint64_t)r->low + done;
        struct iovec here = {(char *)local + done, r->span - done};
        struct iovec there = {(void *)(uintptr_t)address, r->span - done};
        ssize_t moved = write ? process_vm_writev(owner_pid(r), &here, 1, &there, 1, 0)
                              : process_vm_readv(owner_pid(r), &here, 1, &there, 1, 0);
        if (moved <= 0)
            return remote_failure(r->w, r->target);
        done += (size_t)moved;
    }
    return MPI_SUCCESS;
}

/* Write those bytes of `local` back that `mask` marks: the holes of a layout belong to others. */
static int remote_runs(const struct reach *r, const char *local, const char *mask)
{
    enum { RUNS = 512 }; /* below the kernel's limit of 1024 */
    struct iovec here[RUNS], there[RUNS];
    uint64_t base = r->w->members[r->target].base + r->at + (uint64_t)r->low;
    size_t at = 0, n = 0, bytes = 0;
    while (at < r->span || n) {
        while (at < r->span && !mask[at])
            at++;
        size_t first = at;
        while (at < r->span && mask[at])
            at++;
        if (at > first) {
            here[n] = (struct iovec){(void *)(uintptr_t)(local + first), at - first};
            there[n++] = (struct iovec){(void *)(uintptr_t)(base + first), at - first};
            bytes += at - first;
        }
        if (n == RUNS || (at == r->span && n)) {
            if (process_vm_writev(owner_pid(r), here, n, there, n, 0) != (ssize_t)bytes)
                return remote_failure(r->w, r->target);
            n = bytes = 0;
        }
    }
    return MPI_SUCCESS;
}

/* Memory with the layout of the touched stretch: the part itself, or a private image of it that
   put_back returns.  `address` corresponds to the displacement. */
static int image(const struct reach *r, char **address, char **owned)
{
    *owned = NULL;
    *address = direct(r);
    if (*address || !r->span)
        return MPI_SUCCESS;
    *owned = malloc(r->span);
    if (!*owned)
        return MPI_ERR_NO_MEM;
    *address = *owned - r->low;
    return remote(r, *owned, 0);
}

static int put_back(const struct reach *r, char *owned, int count, MPI_Datatype type, int rc)
{
    if (owned && !rc && ftrma_basic_size(type)) {
        rc = remote(r, owned, 1);
    } else if (owned && !rc) {
        size_t bytes;
        rc = ftrma_packed_bytes(count, type, &bytes);
        char *ones = malloc(bytes + 1), *mask = calloc(r->span, 1);
        if (!rc && ones && mask) {
            memset(ones, 1, bytes);
            rc = ftrma_convert(ones, (int)bytes, MPI_BYTE, mask - r->low, count, type);
            if (!rc)
                rc = remote_runs(r, owned, mask);
        } else if (!rc) {
            rc = MPI_ERR_NO_MEM;
        }
        free(ones);
        free(mask);
    }
    free(owned);
    return rc;
}

/* ---- before an access ----------------------------------------------------------------------- */

static int begin(struct window *w, const char *call, int place, int target)
{
    ftrma_place(place);
    if (ftrma_pending())
        return ftrma_code_unwind;
    if (unlikely(target < 0 || target >= w->n))
        return ftrma_window_fail(w, MPI_ERR_RANK, "%s: rank %d is not in this window's group of "
                                 "%d", call, target, w->n);
    if (unlikely(!w->fence_open && !w->all_locked && !w->locked[target] && !w->started[target]))
        return ftrma_window_fail(w, MPI_ERR_RMA_SYNC, "%s to rank %d outside of an epoch: Fence, "
                                 "Lock or Start first", call, target);
    ftrma_log_access(w, place, target);
    return MPI_SUCCESS;
}

static int check_counts(struct window *w, const char *call, int count, size_t bytes,
                        size_t target_bytes)
{
    if (likely(count >= 0 && bytes == target_bytes))
        return MPI_SUCCESS;
    if (count < 0)
        return ftrma_window_fail(w, MPI_ERR_COUNT, "%s: count %d is negative", call, count);
    return ftrma_window_fail(w, MPI_ERR_TRUNCATE, "%s: origin has %zu bytes, target %zu: they "
                             "must be equal", call, bytes, target_bytes);
}

/* Checks shared by all transfers; [out] r, and plain = both sides are contiguous. */
static int prepare(struct window *w, const char *call, int place, int count, MPI_Datatype type,
                   int target, MPI_Aint disp, int target_count, MPI_Datatype target_type,
                   struct reach *r, int *plain)
{
    int rc = begin(w, call, place, target);
    if (unlikely(rc))
        return rc;
    size_t size = ftrma_basic_size(type), target_size = ftrma_basic_size(target_type), bytes, target_bytes;
    *plain = size && target_size;
    if (likely(*plain)) {
        bytes = size * (size_t)count;
        target_bytes = target_size * (size_t)target_count;
    } else {
        rc = ftrma_packed_bytes(count, type, &bytes);
        if (!rc)
            rc = ftrma_packed_bytes(target_count, target_type, &target_bytes);
        if (rc)
            return rc;
    }
    rc = check_counts(w, call, count < target_count ? count : target_count, bytes, target_bytes);
    return unlikely(rc) ? rc : reach(w, call, target, disp, target_count, target_type, r);
}

/* ---- put and get ---------------------------------------------------------------------------- */

static int put(struct window *w, const void *origin, int count, MPI_Datatype type, int target,
               MPI_Aint disp, int target_count, MPI_Datatype target_type)
{
    struct reach r;
    int plain, rc = prepare(w, "Put", FTRMA_PLACE_PUT, count, type, target, disp, target_count,
                            target_type, &r, &plain);
    if (unlikely(rc))
        return rc;
    if (likely(plain)) {
        char *to = direct(&r);
        if (likely(to != NULL)) {
            memcpy(to, origin, r.span);
            return MPI_SUCCESS;
        }
        return remote(&r, (void *)(uintptr_t)origin, 1);
    }
    char *to, *owned;
    rc = image(&r, &to, &owned);
    if (!rc)
        rc = ftrma_convert(origin, count, type, to, target_count, target_type);
    return put_back(&r, owned, target_count, target_type, rc);
}

static int get(struct window *w, void *origin, int count, MPI_Datatype type, int target,
               MPI_Aint disp, int target_count, MPI_Datatype target_type)
{
    struct reach r;
    int plain, rc = prepare(w, "Get", FTRMA_PLACE_GET, count, type, target, disp, target_count,
                            target_type, &r, &plain);
    if (unlikely(rc))
        return rc;
    if (likely(plain)) {
        char *from = direct(&r);
        if (likely(from != NULL)) {
            memcpy(origin, from, r.span);
            return MPI_SUCCESS;
        }
        return remote(&r, origin, 0);
    }
    char *from, *owned;
    rc = image(&r, &from, &owned);
    if (!rc)
        rc = ftrma_convert(from, target_count, target_type, origin, count, type);
    free(owned);
    return rc;
}

/* ---- accumulate and atomics ----------------------------------------------------------------- */

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
        if (ftrma_pending())
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

/* fetch: the old value goes to `result` first. */
static int accumulate(struct window *w, const char *call, const void *origin, int count,
                      MPI_Datatype type, int fetch, void *result, int result_count,
                      MPI_Datatype result_type, int target, MPI_Aint disp, int target_count, MPI_Datatype target_type,
                      MPI_Op op)
{
    struct reach r;
    int plain, rc;
    if (op == MPI_NO_OP) { /* the origin is not significant */
        count = target_count;
        type = target_type;
    }
    rc = prepare(w, call, FTRMA_PLACE_ATOMIC, count, type, target, disp, target_count, target_type,
                 &r, &plain);
    size_t bytes, result_bytes;
    if (!rc && fetch) {
        rc = ftrma_packed_bytes(target_count, target_type, &bytes);
        if (!rc)
            rc = ftrma_packed_bytes(result_count, result_type, &result_bytes);
        if (!rc && result_bytes < bytes)
            rc = ftrma_window_fail(w, MPI_ERR_TRUNCATE, "%s: the result has room for %zu bytes, the "
                                   "target has %zu", call, result_bytes, bytes);
    }
    if (!rc)
        rc = atomic_begin(w, target);
    if (unlikely(rc))
        return rc;
    char *to, *owned;
    rc = image(&r, &to, &owned);
    if (!rc && fetch)
        rc = ftrma_convert(to, target_count, target_type, result, result_count, result_type);
    if (!rc && r.span)
        rc = combine(origin, count, type, to, target_count, target_type, op);
    rc = put_back(&r, owned, target_count, target_type, rc);
    atomic_end(w, target);
    return rc;
}

/* The two single-element atomics, on contiguous predefined types. */
static int fetch_and_op(struct window *w, const void *origin, void *result, MPI_Datatype type,
                        int target, MPI_Aint disp, MPI_Op op)
{
    size_t size = ftrma_basic_size(type);
    if (!size)
        return accumulate(w, "Fetch_and_op", origin, 1, type, 1, result, 1, type, target, disp, 1,
                          type, op);
    struct reach r;
    int rc = begin(w, "Fetch_and_op", FTRMA_PLACE_ATOMIC, target);
    if (!rc)
        rc = reach(w, "Fetch_and_op", target, disp, 1, type, &r);
    if (!rc)
        rc = atomic_begin(w, target);
    if (rc)
        return rc;
    char *to, *owned;
    rc = image(&r, &to, &owned);
    if (!rc) {
        memcpy(result, to, size);
        if (op == MPI_REPLACE)
            memcpy(to, origin, size);
        else if (op == MPI_SUM && (type == MPI_INT64_T || type == MPI_LONG || type == MPI_UINT64_T
                                   || type == MPI_LONG_LONG)) {
            uint64_t old, add; /* the library's dispatch alone would cost more than the rest */
            memcpy(&old, to, sizeof old);
            memcpy(&add, origin, sizeof add);
            old += add;
            memcpy(to, &old, sizeof old);
        } else if (op != MPI_NO_OP)
            rc = PMPI_Reduce_local(origin, to, 1, type, op);
    }
    rc = put_back(&r, owned, 1, type, rc);
    atomic_end(w, target);
    return rc;
}

static int compare_and_swap(struct window *w, const void *origin, const void *compare,
                            void *result, MPI_Datatype type, int target, MPI_Aint disp)
{
    size_t size = ftrma_basic_size(type);
    struct reach r;
    if (!size)
        return ftrma_window_fail(w, MPI_ERR_TYPE, "Compare_and_swap needs a predefined integer, "
                                 "logical or byte type");
    int rc = begin(w, "Compare_and_swap", FTRMA_PLACE_ATOMIC, target);
    if (!rc)
        rc = reach(w, "Compare_and_swap", target, disp, 1, type, &r);
    if (!rc)
        rc = atomic_begin(w, target);
    if (rc)
        return rc;
    char *to, *owned;
    rc = image(&r, &to, &owned);
    if (!rc) {
        memcpy(result, to, size);
        if (!memcmp(to, compare, size))
            memcpy(to, origin, size);
    }
    rc = put_back(&r, owned, 1, type, rc);
    atomic_end(w, target);
    return rc;
}

/* ---- the MPI calls -------------------------------------------------------------------------- */

/* A request that is complete already: what it stands for is done. */
static int complete_request(int rc, MPI_Request *request)
{
    return rc ? rc : PMPI_Isend(NULL, 0, MPI_BYTE, MPI_PROC_NULL, 0, MPI_COMM_SELF, request);
}

#define OURS(place, win, target, pass)                                                            \
    struct window *w = ftrma_window(win);                                                         \
    if (unlikely(!w)) {                                                                           \
        ftrma_native_place(FTRMA_PLACE_##place);                                                  \
        return pass;                                                                              \
    }                                                                                             \
    if (unlikely((target) == MPI_PROC_NULL))                                                      \
        return MPI_SUCCESS

int MPI_Put(const void *origin, int count, MPI_Datatype type, int target, MPI_Aint disp,
            int target_count, MPI_Datatype target_type, MPI_Win win)
{
    OURS(PUT, win, target, PMPI_Put(origin, count, type, target, disp, target_count, target_type,
         win));
    return put(w, origin, count, type, target, disp, target_count, target_type);
}

int MPI_Get(void *origin, int count, MPI_Datatype type, int target, MPI_Aint disp,
            int target_count, MPI_Datatype target_type, MPI_Win win)
{
    OURS(GET, win, target, PMPI_Get(origin, count, type, target, disp, target_count, target_type,
         win));
    return get(w, origin, count, type, target, disp, target_count, target_type);
}

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

#define OURS_REQUEST(place, win, target, pass)                                                    \
    struct window *w = ftrma_window(win);                                                         \
    if (!w) {                                                                                     \
        ftrma_native_place(FTRMA_PLACE_##place);                                                  \
        return pass;                                                                              \
    }                                                                                             \
    if ((target) == MPI_PROC_NULL)                                                                \
        return complete_request(MPI_SUCCESS, request)

int MPI_Rput(const void *origin, int count, MPI_Datatype type, int target, MPI_Aint disp,
             int target_count, MPI_Datatype target_type, MPI_Win win, MPI_Request *request)
{
    OURS_REQUEST(PUT, win, target, PMPI_Rput(origin, count, type, target, disp, target_count,
                 target_type, win, request));
    return complete_request(put(w, origin, count, type, target, disp, target_count, target_type),
                            request);
}

int MPI_Rget(void *origin, int count, MPI_Datatype type, int target, MPI_Aint disp,
             int target_count, MPI_Datatype target_type, MPI_Win win, MPI_Request *request)
{
    OURS_REQUEST(GET, win, target, PMPI_Rget(origin, count, type, target, disp, target_count,
                 target_type, win, request));
    return complete_request(get(w, origin, count, type, target, disp, target_count, target_type),
                            request);
}

int MPI_Raccumulate(const void *origin, int count, MPI_Datatype type, int target, MPI_Aint disp,
                    int target_count, MPI_Datatype target_type, MPI_Op op, MPI_Win win,
                    MPI_Request *request)
{
    OURS_REQUEST(ATOMIC, win, target, PMPI_Raccumulate(origin, count, type, target, disp,
                 target_count, target_type, op, win, request));
    return complete_request(accumulate(w, "Raccumulate", origin, count, type, 0, NULL, 0, MPI_BYTE,
                                       target, disp, target_count, target_type, op), request);
}

int MPI_Rget_accumulate(const void *origin, int count, MPI_Datatype type, void *result,
                        int result_count, MPI_Datatype result_type, int target, MPI_Aint disp,
                        int target_count, MPI_Datatype target_type, MPI_Op op, MPI_Win win,
                        MPI_Request *request)
{
    OURS_REQUEST(ATOMIC, win, target, PMPI_Rget_accumulate(origin, count, type, result,
                 result_count, result_type, target, disp, target_count, target_type, op, win,
                 request));
    return complete_request(accumulate(w, "Rget_accumulate", origin, count, type, 1, result,
                                       result_count, result_type, target, disp, target_count,
                                       target_type, op), request);
}
