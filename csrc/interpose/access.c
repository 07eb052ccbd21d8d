/* Puts and gets on protected windows.
 *
 * Contiguous predefined types take the fast path. Everything else goes through a packed copy, which
 * the library's own datatype engine makes (by a message of the process to itself).
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>

#include "access.h"
#include "farbytes.h"
#include "killrules.h"
#include "putnote.h"

/* ---- before an access ----------------------------------------------------------------------- */

int ftrma_access_check(struct window *w, const char *call, int place, int target)
{
    ftrma_failpoint(place);
    if (ftrma_unwinding())
        return ftrma_code_unwind;
    if (unlikely(target < 0 || target >= w->n))
        return ftrma_window_fail(w, MPI_ERR_RANK, "%s: rank %d is not in this window's group of "
                                 "%d", call, target, w->n);
    if (unlikely(!w->fence_open && !w->all_locked && !w->locked[target] && !w->started[target]))
        return ftrma_window_fail(w, MPI_ERR_RMA_SYNC, "%s to rank %d outside of an epoch: Fence, "
                                 "Lock or Start first", call, target);
    return MPI_SUCCESS;
}

/* Count the packed bytes of a layout: [out] *bytes. Returns an MPI code. */
static int count_bytes(struct window *w, const char *call, int count, MPI_Datatype type,
                       size_t *bytes)
{
    if (count < 0)
        return ftrma_window_fail(w, MPI_ERR_COUNT, "%s: count %d is negative", call, count);
    if (!ftrma_usable(type))
        return ftrma_window_fail(w, MPI_ERR_TYPE, "%s: a datatype is null or not committed", call);
    return ftrma_packed_bytes(count, type, bytes);
}

/* Cut the side that receives, which may have more room than the bytes that come. Returns an MPI
   code. */
static int make_equal(struct window *w, const char *call, struct ftrma_sides *s, int from_target,
                      size_t bytes, size_t target_bytes)
{
    if (from_target ? target_bytes > bytes : bytes > target_bytes)
        return ftrma_window_fail(w, MPI_ERR_TRUNCATE, "%s: origin has %zu bytes, target %zu: the "
                                 "data must fit where it goes", call, bytes, target_bytes);
    if (from_target)
        return ftrma_cut(&s->count, &s->type, target_bytes, &s->made);
    return ftrma_cut(&s->target_count, &s->target_type, bytes, &s->made);
}

int ftrma_access_layouts(struct window *w, const char *call, struct ftrma_sides *s, int from_target,
                         int target, MPI_Aint disp, struct reach *r, int *plain)
{
    size_t bytes, target_bytes;
    int rc = count_bytes(w, call, s->count, s->type, &bytes);
    if (!rc)
        rc = count_bytes(w, call, s->target_count, s->target_type, &target_bytes);
    if (!rc && bytes != target_bytes)
        rc = make_equal(w, call, s, from_target, bytes, target_bytes);
    *plain = *plain && s->made == MPI_DATATYPE_NULL;
    return rc ? rc : ftrma_reach(w, call, target, disp, s->target_count, s->target_type, r);
}

/* ---- records -------------------------------------------------------------------------------- */

uint64_t ftrma_access_sample(const char *bytes, size_t n)
{
    uint64_t words[4] = {0};
    if (!ftrma_counts())
        return 0;
    if (n <= 8) {
        memcpy(words, bytes, n);
        return words[0];
    }
    memcpy(&words[0], bytes, 8);
    memcpy(&words[1], bytes + n / 3, n / 3 + 8 <= n ? 8 : 0);
    memcpy(&words[2], bytes + n / 2, n / 2 + 8 <= n ? 8 : 0);
    memcpy(&words[3], bytes + n - 8, 8);
    return ftrma_mix(ftrma_mix(ftrma_mix(words[0], words[1]), words[2]), words[3]);
}

int ftrma_access_log(int log, const struct reach *r, struct ftrma_record *record,
                     const char *memory, int count, MPI_Datatype type)
{
    if (!ftrma_logs() || !r->span)
        return MPI_SUCCESS;
    if (ftrma_basic_size(type)) {
        ftrma_log_small(log, record, memory, r->span);
        return MPI_SUCCESS;
    }
    char *mask;
    int rc = ftrma_make_mask(r, count, type, &mask);
    uint64_t first = record->at;
    for (size_t at = 0, end; !rc && at < r->span; at = end) {
        const char *run = memchr(mask + at, 1, r->span - at);
        at = run ? (size_t)(run - mask) : r->span;
        const char *hole = at < r->span ? memchr(mask + at, 0, r->span - at) : NULL;
        end = hole ? (size_t)(hole - mask) : r->span;
        record->at = first + at;
        if (end > at)
            ftrma_log_append(log, record, memory + r->low + at, end - at, NULL, 0);
    }
    record->at = first;
    free(mask);
    return rc;
}

int ftrma_access_learn(const struct reach *r, void *origin, int count, MPI_Datatype type, int what,
                       int answered)
{
    size_t bytes;
    char *packed = origin, *owned = NULL;
    int rc = MPI_SUCCESS;
    if (likely(ftrma_basic_size(type)))
        bytes = ftrma_basic_size(type) * (size_t)count;
    else
        rc = ftrma_packed_bytes(count, type, &bytes);
    if (rc || !bytes)
        return rc;
    if (!answered && !ftrma_logs()) {
        ftrma_result_drop(ftrma_basic_size(type) ? origin : NULL, bytes);
        return MPI_SUCCESS;
    }
    if (!answered && ftrma_event_clock.logging != FTRMA_LOG_ALL) {
        ftrma_break(FTRMA_BROKEN_GETS);
        return MPI_SUCCESS;
    }
    if (!ftrma_basic_size(type)) {
        packed = owned = malloc(bytes);
        if (!owned)
            return MPI_ERR_NO_MEM;
    }
    if (answered) {
        rc = ftrma_result_read(packed, bytes);
        if (!rc && owned)
            rc = ftrma_from_bytes(packed, bytes, origin, count, type);
    } else {
        struct ftrma_record record = record_of(r, FTRMA_RECORD_RESULT, what);
        if (owned)
            rc = ftrma_to_bytes(origin, count, type, packed, bytes);
        if (!rc)
            ftrma_result_append(&record, packed, bytes);
    }
    free(owned);
    return rc;
}

/* ---- put and get ---------------------------------------------------------------------------- */

/* 1 if a put that was done is made again in a replay: to the slot's own part, whose memory was lost
   with the process; or to another node, since it may have been lost in the send buffer (farbytes.c
   decides). */
static inline int must_repeat(const struct reach *r, int skip)
{
    return skip == 1 && ftrma_event_clock.mode == FTRMA_REPLAY
           && (r->target == r->w->me || is_far(r->w, r->target));
}

/* Large pieces of a large part have left the caches before they are read, unlike, for instance, the
   edges of a grid, so they are copied past the caches. Measured: this gains from 64 KiB on. */
#define LARGE_PART ((size_t)16 << 20)
#define LARGE_PUT ((size_t)64 << 10)

static inline int leaves_caches(const struct reach *r)
{
    return r->span >= LARGE_PUT && r->w->members[r->target].size_bytes >= LARGE_PART;
}

/* Put to a part that this process cannot reach directly. */
static int move_away(const struct reach *r, const void *origin, const struct ftrma_record *record)
{
    int far = record && is_far(r->w, r->target), rc = far ? ftrma_far_log_open(r) : MPI_SUCCESS;
    if (rc)
        return rc;
    if (record)
        ftrma_log_small(FTRMA_PUTS, record, origin, r->span);
    if (record && !far)
        ftrma_note_put(record, r->span, r->span <= FTRMA_PUT_SMALL);
    rc = ftrma_remote(r, (void *)(uintptr_t)origin, 1);
    if (far)
        ftrma_far_log_close(r);
    return rc;
}

/* Put by a layout. */
static int move_image(const struct reach *r, const void *origin, const struct ftrma_sides *s,
                      struct ftrma_record *record)
{
    char *to, *owned;
    int far = record && is_far(r->w, r->target), rc = ftrma_image(r, &to, &owned);
    if (record && !far)
        ftrma_note_put(record, r->span, 0);
    if (!rc)
        rc = ftrma_convert(origin, s->count, s->type, to, s->target_count, s->target_type);
    if (!rc && far)
        rc = ftrma_far_log_open(r);
    far = far && !rc;
    if (!rc && record)
        rc = ftrma_access_log(FTRMA_PUTS, r, record, to, s->target_count, s->target_type);
    rc = ftrma_put_back(r, owned, s->target_count, s->target_type, rc);
    if (far)
        ftrma_far_log_close(r);
    return rc;
}

static int move_in(const struct reach *r, const void *origin, const struct ftrma_sides *s,
                   int plain, int log)
{
    struct ftrma_record record;
    if (log && !ftrma_logs()) {
        count_dropped(r->span);
        log = 0;
    }
    if (log || unlikely(ftrma_tracing)) {
        record = record_of(r, FTRMA_RECORD_PUT, FTRMA_WHAT_PUT);
        take_number(r, &record);
    }
    if (likely(plain)) {
        char *to = ftrma_direct(r);
        if (unlikely(!to))
            return move_away(r, origin, log ? &record : NULL);
        if (log && r->span > FTRMA_PUT_SMALL) {
            ftrma_note_put(&record, r->span, 0);
            ftrma_log_append(FTRMA_PUTS, &record, origin, r->span, to, leaves_caches(r));
            return MPI_SUCCESS;
        }
        if (log) {
            ftrma_log_small(FTRMA_PUTS, &record, origin, r->span);
            ftrma_note_put(&record, r->span, 1);
        }
        memcpy(to, origin, r->span);
        return MPI_SUCCESS;
    }
    return move_image(r, origin, s, log ? &record : NULL);
}

static int put(struct window *w, const void *origin, int count, MPI_Datatype type, int target,
               MPI_Aint disp, int target_count, MPI_Datatype target_type)
{
    struct reach r;
    struct ftrma_sides s = SIDES(count, type, target_count, target_type);
    int plain, rc = ftrma_access_prepare(w, "Put", FTRMA_FAILPOINT_PUT, &s, 0, target, disp, &r,
                                         &plain);
    if (unlikely(rc))
        return ftrma_access_done(&s, rc);
    int skip = enter(&r, FTRMA_WHAT_PUT, plain && r.span ? ftrma_access_sample(origin, r.span) : 0);
    if (unlikely(skip > 1))
        return ftrma_access_done(&s, skip);
    if (likely(!skip) || must_repeat(&r, skip))
        rc = move_in(&r, origin, &s, plain, !skip && target != w->me);
    ftrma_failpoint(FTRMA_FAILPOINT_PUT_LANDED);
    if (likely(!rc))
        ftrma_event_end();
    return ftrma_access_done(&s, rc);
}

static int move_out(const struct reach *r, void *origin, const struct ftrma_sides *s, int plain)
{
    char *from, *owned;
    if (likely(plain)) {
        from = ftrma_direct(r);
        if (unlikely(!from))
            return ftrma_remote(r, origin, 0);
        memcpy(origin, from, r->span);
        return MPI_SUCCESS;
    }
    int rc = ftrma_image(r, &from, &owned);
    if (!rc)
        rc = ftrma_convert(from, s->target_count, s->target_type, origin, s->count, s->type);
    free(owned);
    return rc;
}

static int get(struct window *w, void *origin, int count, MPI_Datatype type, int target,
               MPI_Aint disp, int target_count, MPI_Datatype target_type)
{
    struct reach r;
    struct ftrma_sides s = SIDES(count, type, target_count, target_type);
    int plain, rc = ftrma_access_prepare(w, "Get", FTRMA_FAILPOINT_GET, &s, 1, target, disp, &r,
                                         &plain);
    if (unlikely(rc))
        return ftrma_access_done(&s, rc);
    int skip = enter(&r, FTRMA_WHAT_GET, 0);
    if (unlikely(skip > 1))
        return ftrma_access_done(&s, skip);
    if (likely(!skip))
        rc = move_out(&r, origin, &s, plain);
    if (likely(!rc) && ftrma_counts()) {
        rc = ftrma_access_learn(&r, origin, s.count, s.type, FTRMA_WHAT_GET, skip);
        if (likely(!rc))
            ftrma_event_end();
    }
    return ftrma_access_done(&s, rc);
}

int ftrma_interposed(void)
{
    /* mpi4py binds to the first MPI_Put of the global scope: this is 1 if that is ftrma's. */
    return dlsym(RTLD_DEFAULT, "MPI_Put") == (void *)(uintptr_t)MPI_Put;
}

/* ---- the MPI calls -------------------------------------------------------------------------- */

int ftrma_request_done(int rc, MPI_Request *request)
{
    if (!rc)
        ftrma_trace_beside(FTRMA_WHAT_REQUEST, ftrma_trace.target, ftrma_event_clock.events);
    return rc ? rc : PMPI_Isend(NULL, 0, MPI_BYTE, MPI_PROC_NULL, 0, MPI_COMM_SELF, request);
}

int MPI_Put(const void *origin, int count, MPI_Datatype type, int target, MPI_Aint disp,
            int target_count, MPI_Datatype target_type, MPI_Win win)
{
    OURS(win, target, PMPI_Put(origin, count, type, target, disp, target_count, target_type,
         win));
    return put(w, origin, count, type, target, disp, target_count, target_type);
}

int MPI_Get(void *origin, int count, MPI_Datatype type, int target, MPI_Aint disp,
            int target_count, MPI_Datatype target_type, MPI_Win win)
{
    OURS(win, target, PMPI_Get(origin, count, type, target, disp, target_count, target_type,
         win));
    return get(w, origin, count, type, target, disp, target_count, target_type);
}

int MPI_Rput(const void *origin, int count, MPI_Datatype type, int target, MPI_Aint disp,
             int target_count, MPI_Datatype target_type, MPI_Win win, MPI_Request *request)
{
    OURS_REQUEST(win, target, PMPI_Rput(origin, count, type, target, disp, target_count,
                 target_type, win, request));
    return ftrma_request_done(put(w, origin, count, type, target, disp, target_count, target_type),
                              request);
}

int MPI_Rget(void *origin, int count, MPI_Datatype type, int target, MPI_Aint disp,
             int target_count, MPI_Datatype target_type, MPI_Win win, MPI_Request *request)
{
    OURS_REQUEST(win, target, PMPI_Rget(origin, count, type, target, disp, target_count,
                 target_type, win, request));
    return ftrma_request_done(get(w, origin, count, type, target, disp, target_count, target_type),
                              request);
}
