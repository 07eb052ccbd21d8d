/* Replay: a dead slot's replacement executes the program again up to the horizon.
 *
 * Modes. A replay from the beginning of an attempt is in REPLAY mode until the first event above
 * the horizon. A replay from a checkpoint has three phases. First it passes through the prefix, the
 * calls up to the last protect(), which every attempt makes: the retained beginning of the result
 * log has their answers. Then it goes to the checkpoint's place in PROLOGUE mode: it passes over
 * synchronization, and fails at a call that needs an answer. At that place it is anchored, and is
 * in REPLAY mode from then on.
 *
 * Incoming accesses are those that the other slots have logged since the mark, and the slot's own
 * atomics on its own part, in the order of (clock, seq). This order keeps every order between them:
 * an access that happens before another one read the clock no later and took its number before it;
 * atomics do both under the lock that serializes them. The slot's own atomic is applied when its
 * event is replayed, and holds back all accesses after it. This is right, since accesses that must
 * be visible to a local access before that event have smaller numbers.
 *
 * Exact or not at all. Nothing leaves this process before it goes live, and it goes live only if
 * the hash over all its events agrees with the one of the dead process, and all answers have been
 * used. Otherwise all slots go back to the checkpoint.
 */
#define _GNU_SOURCE
#include "replay.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "alarm.h"
#include "control.h"
#include "demand.h"
#include "errors.h"
#include "event_clock.h"
#include "event_kinds.h"
#include "interrupt.h"
#include "killrules.h"
#include "log.h"
#include "marks.h"
#include "record_sum.h"
#include "restore.h"
#include "results.h"
#include "trace.h"

struct incoming {
    const struct ftrma_record *record;
    uint32_t order; /* pieces of one access have one number */
    int slot;       /* the slot that logged it */
};

static struct {
    struct ftrma_mark mark;
    uint64_t version, demand; /* the version or demand checkpoint of the mark */
    uint64_t horizon, limit; /* the last event to replay, and the last one of this phase */
    int in_prefix;           /* 1 in the phase before the last protect() */
    int synchronized;        /* in PROLOGUE: synchronization was passed over */
    struct ftrma_answers answers; /* the results that are still to be used */
    struct incoming *list;
    size_t n, room, next;
    int passive; /* 1: during this event the slot may read its part while others may put there */
    int looked;  /* 1: another slot's access was applied after such an event */
    int outside; /* 1: the place of a record is outside of the slot's part */
    struct ftrma_log **views;
    uint8_t *image;
    uint64_t image_bytes;
} replay;

/* Set once by ftrma_set_live, before the program runs. */
static ftrma_live_function live;

void ftrma_set_live(ftrma_live_function function)
{
    live = function;
}

int ftrma_mode(void)
{
    return ftrma_event_clock.mode;
}

int ftrma_in_prefix(void)
{
    return ftrma_event_clock.mode == FTRMA_REPLAY && replay.in_prefix;
}

static int refuse(const char *reason)
{
    ftrma_refuse(reason);
    return ftrma_code_unwind;
}

/* Refuse a replay that differs from the first execution. If the slot read its part while others put
   there, that may be the reason: no log tells which of its reads found the new bytes. */
static int different(void)
{
    char why[300];
    unsigned long long event = ftrma_event_clock.events + 1;
    if (replay.looked)
        snprintf(why, sizeof why, "when it was executed again, its events up to %llu were not what "
                 "they had been: it waits by looking at its own memory (Sync, Flush, locks) and found "
                 "a put at another look than before, or its program is not deterministic", event);
    else
        snprintf(why, sizeof why, "its program is not deterministic: when it was executed again, its "
                 "event %llu was not what it had been", event);
    return refuse(why);
}

/* ---- collecting ----------------------------------------------------------------------------- */

static int by_order(const void *a, const void *b)
{
    const struct incoming *x = a, *y = b;
    if (x->record->clock != y->record->clock)
        return x->record->clock < y->record->clock ? -1 : 1;
    if (x->record->seq != y->record->seq)
        return x->record->seq < y->record->seq ? -1 : 1;
    return x->order < y->order ? -1 : x->order > y->order;
}

/* The cut of the demand checkpoint from which the replay starts, if there is one. */
struct cut {
    const uint64_t *words;
    uint64_t n;
};

/* Collect the records of slot `source` with events after..until whose accesses the checkpoint does
   not hold. */
static int collect(struct ftrma_reader from, int source, int slot, int kind, uint64_t after,
                   uint64_t until, struct cut cut)
{
    const struct ftrma_record *record;
    while ((record = ftrma_log_next_whole(&from))) {
        if (record->kind != kind || record->target != slot || record->event <= after
            || record->event > until)
            continue;
        if (record->order != ftrma_record_order(record))
            return -EBADMSG;
        if (ftrma_cut_holds(cut.words, cut.n, record, source)) /* it compares `seq` */
            continue;
        if (replay.n == replay.room) {
            size_t more = replay.room ? 2 * replay.room : 1024;
            struct incoming *grown = realloc(replay.list, more * sizeof *grown);
            if (!grown)
                return -ENOMEM;
            replay.list = grown;
            replay.room = more;
        }
        replay.list[replay.n] = (struct incoming){record, (uint32_t)replay.n, source};
        replay.n++;
    }
    return from.damaged ? -EBADMSG : 0;
}

static struct ftrma_reader reader_at(const struct ftrma_log *log, int which, struct ftrma_spot spot)
{
    return (struct ftrma_reader){.log = log, .at = spot, .head = log->head[which]};
}

int ftrma_replay_view(int slot, int wanted)
{
    if (!replay.views && !(replay.views = calloc(ftrma_ctl->nslots, sizeof *replay.views)))
        return -ENOMEM;
    struct ftrma_log **view = &replay.views[slot];
    if (*view)
        ftrma_log_close(*view);
    *view = NULL;
    return wanted ? ftrma_log_view(slot, view) : 0;
}

/* Free all memory of the replay but the views of logs, which the repair has opened. */
static void forget(void)
{
    struct ftrma_log **views = replay.views;
    free(replay.list);
    free(replay.image);
    memset(&replay, 0, sizeof replay);
    replay.views = views;
}

/* Find the horizon, including an atomic that took effect although its call did not return. */
static void find_horizon(struct ftrma_slot *slot)
{
    if (slot->atomic_done == slot->events + 1)
        slot->events++;
    if (slot->events < replay.mark.events) { /* the process died in the safepoint of the mark */
        slot->events = replay.mark.events;
        slot->hash[slot->events & 1] = replay.mark.hash;
    }
    replay.horizon = slot->events;
}

/* Trace the beginning and the end of the replay: a reader judges its events by these records, even
   if it fails. */
static void trace_replay(void)
{
    struct ftrma_trace_record record = {
        .what = FTRMA_WHAT_REPLAY, .mode = FTRMA_REPLAY, .window = -1, .target = -1,
        .event = replay.mark.events, .clock = replay.mark.clock, .at = replay.demand,
        .value = {replay.version, replay.horizon}};
    if (ftrma_tracing)
        ftrma_trace_write(&record);
}

int ftrma_replay_prepare(int slot, uint64_t version, const uint8_t *image, uint64_t size,
                         uint64_t demand, const uint64_t *cut, uint64_t cut_words)
{
    forget();
    int error = ftrma_log_open(slot, 0, 0);
    if (error)
        return error;
    struct ftrma_event_clock *t = &ftrma_event_clock;
    replay.demand = demand;
    replay.mark = demand ? t->slot->demand_marks[demand & 1] : t->slot->marks[version & 1];
    replay.version = version;
    replay.image = malloc(size + 1);
    if (!replay.image || (!demand && replay.mark.version != version))
        return -ENOMEM;
    if (size)
        memcpy(replay.image, image, size);
    replay.image_bytes = size;
    find_horizon(t->slot);
    for (uint32_t s = 0; s < ftrma_ctl->nslots && !error; s++) {
        const struct ftrma_log *view = replay.views ? replay.views[s] : NULL;
        const struct ftrma_mark *mark = &ftrma_ctl->slots[s].marks[version & 1];
        if (view)
            error = collect(reader_at(view, FTRMA_PUTS, mark->spot[FTRMA_PUTS]), (int)s, slot,
                            FTRMA_RECORD_PUT, mark->events, UINT64_MAX,
                            (struct cut){cut, cut_words});
    }
    struct ftrma_reader results = reader_at(ftrma_log, FTRMA_RESULTS,
                                            replay.mark.spot[FTRMA_RESULTS]);
    struct ftrma_reader all = reader_at(ftrma_log, FTRMA_RESULTS, (struct ftrma_spot){0});
    if (!error)
        error = collect(all, slot, slot, FTRMA_RECORD_SELF, replay.mark.events, replay.horizon,
                        (struct cut){0});
    if (error)
        return error;
    if (replay.n)
        qsort(replay.list, replay.n, sizeof *replay.list, by_order);
    t->on = 1;
    t->mode = FTRMA_REPLAY;
    t->clock = t->events = t->hash = 0;
    replay.in_prefix = !replay.mark.start;
    replay.limit = replay.in_prefix ? t->slot->prefix_events : replay.horizon;
    ftrma_answers_begin(&replay.answers,
                        replay.in_prefix ? all : results);
    trace_replay();
    return 0;
}

/* ---- incoming accesses ---------------------------------------------------------------------- */

static void trace_apply(const struct incoming *in)
{
    const struct ftrma_record *record = in->record;
    struct ftrma_trace_record trace = {
        .what = FTRMA_WHAT_APPLY, .mode = FTRMA_REPLAY, .event = ftrma_event_clock.events,
        .window = ftrma_trace_window(record->window), .target = record->target, .at = record->at,
        .bytes = record->bytes, .seq = record->seq, .clock = record->clock, .ec = record->ec,
        .gc = record->gc, .sc = record->sc, .gnc = record->gnc,
        .value = {(uint64_t)in->slot, record->event}};
    ftrma_trace_write(&trace);
}

static void apply_until(uint64_t clock, uint64_t events)
{
    for (; replay.next < replay.n; replay.next++) {
        const struct ftrma_record *record = replay.list[replay.next].record;
        if (record->clock > clock
            || (record->kind == FTRMA_RECORD_SELF && record->event > events))
            return;
        replay.outside |= !ftrma_window_apply(record);
        replay.looked |= replay.passive && record->kind == FTRMA_RECORD_PUT;
        if (unlikely(ftrma_tracing))
            trace_apply(&replay.list[replay.next]);
    }
}

/* ---- events --------------------------------------------------------------------------------- */

static int go_live(void)
{
    struct ftrma_event_clock *t = &ftrma_event_clock;
    struct ftrma_spot end;
    if (t->hash != t->slot->hash[t->events & 1] && t->events > replay.mark.events)
        return different();
    if (!ftrma_answers_end(&replay.answers, replay.horizon, &end))
        return different();
    apply_until(UINT64_MAX, UINT64_MAX);
    if (replay.outside)
        return refuse("a log from which it would be replayed is damaged");
    ftrma_locks_load();
    ftrma_trace_note(FTRMA_WHAT_RECOVERY, 0, 0);
    ftrma_log_resume(end);
    t->slot->hash[t->events & 1] = t->hash;
    STORE(&t->slot->put, 0); /* the record of the put is gone */
    t->ended = t->clock;
    t->mode = FTRMA_LIVE;
    t->logging = ftrma_log_wanted();
    t->first = replay.mark.events + 1; /* unless the slot is after that event */
    ftrma_break(FTRMA_BROKEN_RECOVERED);
    forget();
    for (uint32_t s = 0; s < ftrma_ctl->nslots && replay.views; s++)
        ftrma_replay_view((int)s, 0);
    STORE(&ftrma_ctl->wanted, 1);
    if (live)
        live(0);
    STORE(&t->slot->replaying, 0); /* not before its agent takes requests of others */
    STORE(&ftrma_ctl->replays, 0);
    ftrma_wake(&ftrma_ctl->live);
    if (live)
        live(1);
    ftrma_failpoint(FTRMA_FAILPOINT_LIVE);
    return 0;
}

static int anchor(void)
{
    struct ftrma_event_clock *t = &ftrma_event_clock;
    if (ftrma_counters_load(replay.image, replay.image_bytes))
        return refuse("its program has made other windows or communicators than before");
    t->mode = FTRMA_REPLAY;
    t->events = replay.mark.events;
    t->clock = replay.mark.clock;
    t->hash = replay.mark.hash;
    replay.limit = replay.horizon;
    ftrma_answers_begin(&replay.answers, reader_at(ftrma_log, FTRMA_RESULTS,
                                                   replay.mark.spot[FTRMA_RESULTS]));
    apply_until(t->clock, t->events);
    return 0;
}

int ftrma_replay_anchor(void)
{
    if (ftrma_in_prefix()) { /* no event since protect() */
        if (ftrma_event_clock.events != replay.limit)
            return different();
        replay.in_prefix = 0;
        ftrma_event_clock.mode = FTRMA_PROLOGUE;
    }
    return ftrma_event_clock.mode == FTRMA_PROLOGUE ? anchor() : 0;
}

/* Anchor the replay at a data access before the first safepoint: if this is the first event of the
   step after the checkpoint, the program has come from protect() straight into that step. */
static int anchor_here(void)
{
    struct ftrma_event_clock *t = &ftrma_event_clock;
    int known = replay.horizon > replay.mark.events;
    if (known ? ftrma_mix(replay.mark.hash, t->signature) != replay.mark.first_hash
              : replay.synchronized)
        return refuse("where its checkpoint was taken cannot be told from the calls behind "
                      "protect(); call safepoint() at the top of the loop");
    return anchor();
}

int ftrma_replay_begin(int what)
{
    struct ftrma_event_clock *t = &ftrma_event_clock;
    int access = ftrma_kind_is(what, FTRMA_ACCESS);
    if (ftrma_unwinding())
        return ftrma_code_unwind;
    ftrma_failpoint(FTRMA_FAILPOINT_REPLAY);
    if (t->mode == FTRMA_REPLAY && t->events == replay.limit && replay.in_prefix) {
        if (t->hash != t->slot->prefix_hash)
            return different();
        replay.in_prefix = 0;
        t->mode = FTRMA_PROLOGUE;
    }
    if (t->mode == FTRMA_PROLOGUE) {
        if (!access) {
            replay.synchronized = 1;
            return 1;
        }
        int rc = anchor_here();
        if (rc)
            return rc;
    }
    if (t->events == replay.limit)
        return go_live();
    t->clock += (uint64_t)ftrma_kind_is(what, FTRMA_TICKS);
    replay.passive = ftrma_kind_is(what, FTRMA_PASSIVE);
    return 1;
}

void ftrma_replay_end(void)
{
    struct ftrma_event_clock *t = &ftrma_event_clock;
    if (t->mode != FTRMA_REPLAY)
        return;
    t->hash = ftrma_mix(t->hash, t->signature);
    t->events++;
    if (!replay.in_prefix)
        apply_until(t->clock, t->events);
}

int ftrma_replay_over(void)
{
    return ftrma_event_clock.mode == FTRMA_LIVE
           || (ftrma_event_clock.mode == FTRMA_REPLAY && !replay.in_prefix
               && ftrma_event_clock.events == replay.limit);
}

int ftrma_result_read(void *bytes, size_t n)
{
    if (ftrma_event_clock.mode == FTRMA_PROLOGUE)
        return refuse("it needs the result of a call between protect() and the place of its "
                      "checkpoint; call safepoint() right behind protect() or at the top of the "
                      "loop");
    for (size_t done = 0; done < n;) {
        const void *from;
        size_t size;
        if (!ftrma_answers_next(&replay.answers, ftrma_event_clock.events + 1, &from, &size)
            || size > n - done)
            return different();
        memcpy((char *)bytes + done, from, size);
        done += size;
    }
    return MPI_SUCCESS;
}
