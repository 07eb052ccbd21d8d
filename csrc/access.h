/* Data calls on protected windows: what access.c (put, get) and atomic.c have in common. */
#ifndef FTRMA_ACCESS_H
#define FTRMA_ACCESS_H

#include <string.h>

#include "log.h"
#include "mover.h"
#include "types.h"

/* May `call` access the target now?  FTRMA_OK, or an MPI code. */
int ftrma_access_check(struct window *w, const char *call, int place, int target);

/* Checks shared by all transfers; [out] r, and plain = both sides are contiguous. */
int ftrma_access_prepare(struct window *w, const char *call, int place, int count,
                         MPI_Datatype type, int target, MPI_Aint disp, int target_count,
                         MPI_Datatype target_type, struct reach *r, int *plain);

/* A few words of what is put, so that a program that puts something else in its second life is
   found out. */
uint64_t ftrma_access_sample(const char *bytes, size_t n);

/* Log the touched bytes of an image of the target's part, one record for each run without a hole.
   memory corresponds to the displacement. */
int ftrma_access_log(int log, const struct reach *r, struct ftrma_record *record,
                     const char *memory, int count, MPI_Datatype type);

/* What was learned into a layout, packed; or that from the log. */
int ftrma_access_learn(const struct reach *r, void *origin, int count, MPI_Datatype type, int what,
                       int answered);

/* A request that is complete already: what it stands for is done. */
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

/* ---- the MPI calls -------------------------------------------------------------------------- */

#define OURS(place, win, target, pass)                                                            \
    struct window *w = ftrma_window(win);                                                         \
    if (unlikely(!w)) {                                                                           \
        ftrma_native_place(FTRMA_PLACE_##place);                                                  \
        return pass;                                                                              \
    }                                                                                             \
    if (unlikely((target) == MPI_PROC_NULL))                                                      \
        return MPI_SUCCESS

#define OURS_REQUEST(place, win, target, pass)                                                    \
    struct window *w = ftrma_window(win);                                                         \
    if (!w) {                                                                                     \
        ftrma_native_place(FTRMA_PLACE_##place);                                                  \
        return pass;                                                                              \
    }                                                                                             \
    if ((target) == MPI_PROC_NULL)                                                                \
        return ftrma_request_done(MPI_SUCCESS, request)

#endif
