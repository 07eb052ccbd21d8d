/* Common parts of puts, gets, accumulates and atomics on protected windows (access.c). */
#ifndef FTRMA_ACCESS_H
#define FTRMA_ACCESS_H

#include <string.h>

#include "errors.h"
#include "event.h"
#include "interrupt.h"
#include "log.h"
#include "meet.h"
#include "mover.h"
#include "pending.h"
#include "results.h"
#include "types.h"

/* The layouts of a transfer on both sides. ftrma_access_prepare cuts the larger side, so that
   both have the same number of bytes. */
struct ftrma_sides {
    int count, target_count;
    MPI_Datatype type, target_type;
    MPI_Datatype made; /* the cut layout, which ftrma_access_done frees; or MPI_DATATYPE_NULL */
};
#define SIDES(count, type, target_count, target_type)                                             \
    {count, target_count, type, target_type, MPI_DATATYPE_NULL}

static inline int ftrma_access_done(struct ftrma_sides *s, int rc)
{
    if (unlikely(s->made != MPI_DATATYPE_NULL))
        PMPI_Type_free(&s->made);
    return rc;
}

/* Visit the failpoint, unwind if a failure is pending, refuse a wrong rank or epoch. An MPI
   code. */
int ftrma_access_check(struct window *w, const char *call, int place, int target);

/* Do what ftrma_access_sizes does, for layouts and for sides of different sizes. */
int ftrma_access_layouts(struct window *w, const char *call, struct ftrma_sides *s, int from_target,
                         int target, MPI_Aint disp, struct reach *r, int *plain);

/* Find the touched stretch of a transfer from the target, or to it; [out] r, and plain: 1 if
   both sides are contiguous. */
static inline int ftrma_access_sizes(struct window *w, const char *call, struct ftrma_sides *s,
                                     int from_target, int target, MPI_Aint disp, struct reach *r,
                                     int *plain)
{
    size_t size = ftrma_basic_size(s->type), target_size = ftrma_basic_size(s->target_type);
    *plain = size && target_size && s->count >= 0 && s->target_count >= 0;
    if (unlikely(!*plain || size * (size_t)s->count != target_size * (size_t)s->target_count))
        return ftrma_access_layouts(w, call, s, from_target, target, disp, r, plain);
    return ftrma_reach(w, call, target, disp, s->target_count, s->target_type, r);
}

/* Check a transfer, and find the stretch that it touches. */
static inline int ftrma_access_prepare(struct window *w, const char *call, int place,
                                       struct ftrma_sides *s, int from_target, int target,
                                       MPI_Aint disp, struct reach *r, int *plain)
{
    int rc = ftrma_access_check(w, call, place, target);
    return unlikely(rc) ? rc : ftrma_access_sizes(w, call, s, from_target, target, disp, r, plain);
}

/* Hash a few words of the bytes that are put, to detect a program that puts other bytes in its
   replay. */
uint64_t ftrma_access_sample(const char *bytes, size_t n);

/* Log the touched bytes of an image of the target's part, with one record for each run without a
   hole. `memory` corresponds to the displacement. */
int ftrma_access_log(int log, const struct reach *r, struct ftrma_record *record,
                     const char *memory, int count, MPI_Datatype type);

/* Log the bytes that the slot has learned, packed from their layout; or (answered) unpack them from
   the log. An MPI code. */
int ftrma_access_learn(const struct reach *r, void *origin, int count, MPI_Datatype type, int what,
                       int answered);

/* Make a request that is already complete, since its access is done. An MPI code. */
int ftrma_request_done(int rc, MPI_Request *request);

/* ---- events and records --------------------------------------------------------------------- */

static inline void trace_access(const struct reach *r)
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

/* Wait for a target that is being replayed: its replacement looked through the others' logs when it
   began, and its memory is not restored yet. An MPI code. From here to the access nothing may
   wait. */
static inline int await_target(const struct window *w, int target)
{
    if (likely(!LOAD(&ftrma_ctl->replays)) || target == w->me || ftrma_event_clock.mode)
        return MPI_SUCCESS;
    return ftrma_await_live(w->members[target].slot);
}

/* Begin the event. 0: do it; 1: it was done before, and is replayed; else an MPI code. */
static inline int enter(const struct reach *r, int what, uint64_t data)
{
    struct window *w = r->w;
    int rc = await_target(w, r->target);
    if (unlikely(rc))
        return rc;
    rc = ftrma_access_begin(what, w->ordinal, r->target, r->at + (uint64_t)r->low, r->span,
                                data);
    if (unlikely(ftrma_tracing))
        trace_access(r);
    return rc;
}

static inline struct ftrma_record record_of(const struct reach *r, int kind, int what)
{
    struct window *w = r->w;
    return (struct ftrma_record){
        .kind = (uint8_t)kind, .what = (uint8_t)what, .target = w->members[r->target].slot,
        .window = w->name_number, .at = (uint64_t)((int64_t)r->at + r->low),
        .event = ftrma_event_clock.events + 1, .ec = (uint32_t)w->ec[r->target],
        .gc = (uint32_t)w->gc,
        .sc = (uint32_t)w->sc[r->target], .gnc = (uint32_t)w->gnc};
}

/* Count bytes that would be logged if the budget were not spent. */
static inline void count_dropped(size_t bytes)
{
    ftrma_event_clock.dropped += bytes + sizeof(struct ftrma_record);
}

/* Read the target's clock, then take the next number of its part: event.h and replay.c rely on
   this order. */
static inline void take_number(const struct reach *r, struct ftrma_record *record)
{
    struct ftrma_member *m = &r->w->members[r->target];
    if (is_far(r->w, r->target)) { /* the agent reads the clock and counts */
        record->clock = record->seq = FTRMA_UNKNOWN;
        return;
    }
    record->clock = LOAD(&ftrma_ctl->slots[m->slot].clock);
    record->seq = __atomic_add_fetch(&m->seq, 1, __ATOMIC_SEQ_CST);
    if (unlikely(ftrma_tracing)) {
        ftrma_trace.clock = record->clock;
        ftrma_trace.seq = record->seq;
    }
}

/* ---- the MPI calls -------------------------------------------------------------------------- */

#define OURS(win, target, pass)                                                                   \
    struct window *w = ftrma_window(win);                                                         \
    if (unlikely(!w)) {                                                                           \
        if (ftrma_unwinding())                                                                    \
            return ftrma_code_unwind;                                                             \
        return ftrma_window_is_stale(win) ? MPI_ERR_WIN : (pass);                                 \
    }                                                                                             \
    if (unlikely((target) == MPI_PROC_NULL))                                                      \
        return MPI_SUCCESS

#define OURS_REQUEST(win, target, pass)                                                           \
    struct window *w = ftrma_window(win);                                                         \
    if (!w) {                                                                                     \
        if (ftrma_unwinding())                                                                    \
            return ftrma_code_unwind;                                                             \
        return ftrma_window_is_stale(win) ? MPI_ERR_WIN : (pass);                                 \
    }                                                                                             \
    if ((target) == MPI_PROC_NULL)                                                                \
        return ftrma_request_done(MPI_SUCCESS, request)

#endif
