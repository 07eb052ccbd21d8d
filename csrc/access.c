/* Data calls on protected windows: put, get, accumulate and the atomics.
 *
 * Accumulates and atomics on a part are serialized by a word that names its owner; the arithmetic
 * is the library's (MPI_Reduce_local), so all its operations and types work.  A process that dies
 * inside leaves its name, waiters unwind, and re-creation of the window clears it.
 *
 * Contiguous predefined types take the fast path.  Everything else goes through a packed copy made
 * by the library's own datatype engine (a message to oneself).
 */
#include <stdlib.h>
#include <string.h>

#include "log.h"
#include "mover.h"
#include "types.h"

/* ---- before an access ----------------------------------------------------------------------- */

static int begin(struct window *w, const char *call, int place, int target)
{
    ftrma_place(place);
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
    size_t size = ftrma_basic_size(type), target_size = ftrma_basic_size(target_type);
    size_t bytes, target_bytes;
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
    return unlikely(rc) ? rc : ftrma_reach(w, call, target, disp, target_count, target_type, r);
}

/* ---- events and records --------------------------------------------------------------------- */

/* A few words of what is put, so that a program that puts something else in its second life is
   found out. */
static uint64_t sample(const char *bytes, size_t n)
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

static void trace_access(const struct reach *r)
{
    struct window *w = r->w;
    struct ftrma_trace_record *t = &ftrma_trace;
    t->target = w->members[r->target].slot;
    t->at = (uint64_t)((int64_t)r->at + r->low);
    t->bytes = r->span;
    t->ec = w->ec[r->target];
    t->gc = w->gc;
    t->sc = w->sc[r->target];
    t->gnc = w->gnc;
}

/* An atomic's old or new value, where it fits. */
static inline void trace_value(const struct reach *r, int which, const char *memory)
{
    if (unlikely(ftrma_tracing) && r->span <= sizeof ftrma_trace.value[which])
        memcpy(&ftrma_trace.value[which], memory + r->low, r->span);
}

/* 0: do it; 1: it has been done; else an MPI code. */
static inline int enter(const struct reach *r, int what, uint64_t data)
{
    struct window *w = r->w;
    if (unlikely(LOAD(&ftrma_ctl->replays)) && r->target != w->me && !ftrma_tape.mode) {
        int rc = ftrma_await_live(w->members[r->target].slot);
        if (rc)
            return rc;
    }
    if (unlikely(ftrma_tape.on && !ftrma_logs()))
        ftrma_tape.dropped += r->span + sizeof(struct ftrma_record);
    int rc = ftrma_access_begin(what, w->ordinal, r->target, r->at + (uint64_t)r->low, r->span,
                                data);
    if (unlikely(ftrma_tracing))
        trace_access(r);
    return rc;
}

static inline struct ftrma_record record_of(const struct reach *r, int kind, int what)
{
    struct window *w = r->w;
    return (struct ftrma_record){
        .kind = (uint16_t)kind, .what = (uint16_t)what, .target = w->members[r->target].slot,
        .window = w->name_number, .at = (uint64_t)((int64_t)r->at + r->low),
        .event = ftrma_tape.events + 1, .ec = (uint32_t)w->ec[r->target], .gc = (uint32_t)w->gc,
        .sc = (uint32_t)w->sc[r->target], .gnc = (uint32_t)w->gnc};
}

/* Take down the target's clock, then take a number: the order that event.h and replay.c rest on. */
static inline void number(const struct reach *r, struct ftrma_record *record)
{
    struct ftrma_member *m = &r->w->members[r->target];
    record->clock = LOAD(&ftrma_ctl->slots[m->slot].clock);
    record->seq = __atomic_add_fetch(&m->seq, 1, __ATOMIC_SEQ_CST);
    if (unlikely(ftrma_tracing)) {
        ftrma_trace.clock = record->clock;
        ftrma_trace.seq = record->seq;
    }
}

/* Log the touched bytes of an image of the target's part, one record for each run without a hole.
   memory corresponds to the displacement. */
static int log_runs(int log, const struct reach *r, struct ftrma_record *record, const char *memory,
                    int count, MPI_Datatype type)
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

/* ---- put and get ---------------------------------------------------------------------------- */

/* The own part is memory that died with the process: a put to it is made again in a replay. */
static inline int again(const struct reach *r, int skip)
{
    return skip == 1 && r->target == r->w->me && ftrma_tape.mode == FTRMA_REPLAY;
}

/* What is put to a part as large as this has left the caches before it is read. */
#define LARGE_PART ((size_t)16 << 20)

static int move_in(const struct reach *r, const void *origin, int count, MPI_Datatype type,
                   int target_count, MPI_Datatype target_type, int plain, int log)
{
    struct ftrma_record record;
    char *to, *owned;
    int rc;
    log = log && ftrma_logs();
    if (log || unlikely(ftrma_tracing)) {
        record = record_of(r, FTRMA_RECORD_PUT, FTRMA_WHAT_PUT);
        number(r, &record);
    }
    if (likely(plain)) {
        to = ftrma_direct(r);
        if (log && to && r->span > 64) {
            ftrma_log_append(FTRMA_PUTS, &record, origin, r->span, to,
                             r->w->members[r->target].size_bytes >= LARGE_PART);
            return MPI_SUCCESS;
        }
        if (log)
            ftrma_log_small(FTRMA_PUTS, &record, origin, r->span);
        if (unlikely(!to))
            return ftrma_remote(r, (void *)(uintptr_t)origin, 1);
        memcpy(to, origin, r->span);
        return MPI_SUCCESS;
    }
    rc = ftrma_image(r, &to, &owned);
    if (!rc)
        rc = ftrma_convert(origin, count, type, to, target_count, target_type);
    if (!rc && log)
        rc = log_runs(FTRMA_PUTS, r, &record, to, target_count, target_type);
    return ftrma_put_back(r, owned, target_count, target_type, rc);
}

static int put(struct window *w, const void *origin, int count, MPI_Datatype type, int target,
               MPI_Aint disp, int target_count, MPI_Datatype target_type)
{
    struct reach r;
    int plain, rc = prepare(w, "Put", FTRMA_PLACE_PUT, count, type, target, disp, target_count,
                            target_type, &r, &plain);
    if (unlikely(rc))
        return rc;
    int skip = enter(&r, FTRMA_WHAT_PUT, plain && r.span ? sample(origin, r.span) : 0);
    if (unlikely(skip > 1))
        return skip;
    if (likely(!skip) || again(&r, skip))
        rc = move_in(&r, origin, count, type, target_count, target_type, plain, target != w->me);
    if (likely(!rc))
        ftrma_event_end();
    return rc;
}

static int move_out(const struct reach *r, void *origin, int count, MPI_Datatype type,
                    int target_count, MPI_Datatype target_type, int plain)
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
        rc = ftrma_convert(from, target_count, target_type, origin, count, type);
    free(owned);
    return rc;
}

/* What was learned into a layout, packed; or that from the log. */
static int learn(const struct reach *r, void *origin, int count, MPI_Datatype type, int what,
                 int answered)
{
    size_t bytes;
    char *packed = origin, *owned = NULL;
    int rc = MPI_SUCCESS;
    if (likely(ftrma_basic_size(type)))
        bytes = ftrma_basic_size(type) * (size_t)count;
    else
        rc = ftrma_packed_bytes(count, type, &bytes);
    if (rc || !bytes || (!answered && !ftrma_logs()))
        return rc;
    if (!answered && ftrma_tape.logging != FTRMA_LOG_ALL) {
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
            rc = ftrma_convert(packed, (int)bytes, MPI_BYTE, origin, count, type);
    } else {
        struct ftrma_record record = record_of(r, FTRMA_RECORD_RESULT, what);
        if (owned)
            rc = ftrma_convert(origin, count, type, packed, (int)bytes, MPI_BYTE);
        if (!rc)
            ftrma_log_small(FTRMA_RESULTS, &record, packed, bytes);
    }
    free(owned);
    return rc;
}

static int get(struct window *w, void *origin, int count, MPI_Datatype type, int target,
               MPI_Aint disp, int target_count, MPI_Datatype target_type)
{
    struct reach r;
    int plain, rc = prepare(w, "Get", FTRMA_PLACE_GET, count, type, target, disp, target_count,
                            target_type, &r, &plain);
    if (unlikely(rc))
        return rc;
    int skip = enter(&r, FTRMA_WHAT_GET, 0);
    if (unlikely(skip > 1))
        return skip;
    if (likely(!skip))
        rc = move_out(&r, origin, count, type, target_count, target_type, plain);
    if (likely(!rc) && ftrma_counts()) {
        rc = learn(&r, origin, count, type, FTRMA_WHAT_GET, skip);
        if (likely(!rc))
            ftrma_event_end();
    }
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
               : log_runs(FTRMA_RESULTS, r, &c->record, memory, count, type);
}

static int change_log(const struct reach *r, struct change *c, const char *memory, int count,
                      MPI_Datatype type)
{
    trace_value(r, 1, memory);
    if (!c->log)
        return MPI_SUCCESS;
    int self = r->target == r->w->me;
    c->record.kind = self ? FTRMA_RECORD_SELF : FTRMA_RECORD_PUT;
    return log_runs(self ? FTRMA_RESULTS : FTRMA_PUTS, r, &c->record, memory, count, type);
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
        rc = learn(r, result, result_count, result_type, FTRMA_WHAT_GET_ACCUMULATE, 0);
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
    if (rc)
        return rc;
    int data = plain && op != MPI_NO_OP && r.span;
    int skip = enter(&r, what, data ? sample(origin, r.span) : 0);
    if (!skip)
        return change(&r, what, origin, count, type, fetch, result, result_count, result_type,
                      target_count, target_type, op);
    if (skip == 1 && fetch)
        rc = learn(&r, result, result_count, result_type, what, 1);
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
        rc = skip == 1 ? learn(r, result, 1, type, what, 1) : skip;
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
            rc = learn(r, result, 1, type, what, 0);
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
    int answered, rc = begin(w, "Fetch_and_op", FTRMA_PLACE_ATOMIC, target);
    if (!rc)
        rc = ftrma_reach(w, "Fetch_and_op", target, disp, 1, type, &r);
    if (!rc)
        rc = element_begin(&r, FTRMA_WHAT_FETCH_AND_OP,
                           op == MPI_NO_OP ? 0 : sample(origin, size), result, type, &to, &owned,
                           &answered);
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
    int answered, rc = begin(w, "Compare_and_swap", FTRMA_PLACE_ATOMIC, target);
    if (!rc)
        rc = ftrma_reach(w, "Compare_and_swap", target, disp, 1, type, &r);
    if (!rc)
        rc = element_begin(&r, FTRMA_WHAT_COMPARE_AND_SWAP,
                           ftrma_mix(sample(origin, size), sample(compare, size)), result, type,
                           &to, &owned, &answered);
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
