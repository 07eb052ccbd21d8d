/* Marks: the places in both logs to which versions belong. Also here: how logs begin, and how a
 * replacement goes on with them. */
#include "marks.h"

#include <stdio.h>
#include <string.h>

#include "chunks.h"
#include "control.h"
#include "event_clock.h"
#include "log.h"
#include "pending.h"
#include "results.h"
#include "revoke.h"
#include "trace.h"
#include "window.h"

int ftrma_log_open(int slot, int create, uint64_t budget_bytes)
{
    int error = ftrma_log_map(slot, create, budget_bytes, &ftrma_log);
    if (error)
        return error;
    if (create)
        ftrma_results_break();
    ftrma_event_clock.slot = &ftrma_ctl->slots[slot];
    return 0;
}

void ftrma_log_resume(struct ftrma_spot spot)
{
    struct ftrma_log *l = ftrma_log;
    while (l->head[FTRMA_PUTS]) {
        uint32_t chunk = l->head[FTRMA_PUTS] - 1;
        l->head[FTRMA_PUTS] = l->chunk[chunk].next;
        ftrma_chunk_free(chunk);
    }
    uint32_t *link = &l->head[FTRMA_RESULTS];
    if (spot.chunk) {
        l->chunk[spot.chunk - 1].fill = spot.at;
        link = &l->chunk[spot.chunk - 1].next;
    }
    for (uint32_t next = *link; next;) {
        uint32_t chunk = next - 1;
        next = l->chunk[chunk].next;
        ftrma_chunk_free(chunk);
    }
    *link = 0;
    ftrma_log_lose_spots(FTRMA_PUTS);
    ftrma_results_break();
    ftrma_pens[FTRMA_PUTS] = ftrma_pens[FTRMA_RESULTS] = (struct ftrma_pen){0};
    if (spot.chunk)
        ftrma_pens[FTRMA_RESULTS] = (struct ftrma_pen){
            ftrma_chunk_data(l, spot.chunk - 1) + spot.at, l->chunk_bytes - spot.at,
            spot.chunk - 1};
    ftrma_log_note_use();
}

/* ---- marks ---------------------------------------------------------------------------------- */

/* The current end of a log, from which it will be read. */
static struct ftrma_spot here(int log)
{
    if (log == FTRMA_RESULTS)
        ftrma_results_break();
    struct ftrma_pen *pen = &ftrma_pens[log];
    return pen->at ? (struct ftrma_spot){pen->chunk + 1, ftrma_log->chunk[pen->chunk].fill}
                   : (struct ftrma_spot){0};
}

static void set_mark(struct ftrma_mark *mark, uint64_t version, int start, uint64_t events,
                     uint64_t hash)
{
    struct ftrma_event_clock *t = &ftrma_event_clock;
    *mark = (struct ftrma_mark){
        .version = version, .start = (uint32_t)start, .events = events, .clock = t->clock,
        .hash = hash, .spot = {here(FTRMA_PUTS), here(FTRMA_RESULTS)},
        .broken = start ? 0 : t->slot->prefix_broken};
    memcpy(mark->call, t->slot->prefix_call, sizeof mark->call);
    const char *held = ftrma_window_held();
    held = held ? held : ftrma_foreign_maker();
    if (held && !(mark->broken & (FTRMA_BROKEN_FOREIGN | FTRMA_BROKEN_HELD)))
        ftrma_blame(mark, FTRMA_BROKEN_HELD, held);
    t->first = events + 1;
}

void ftrma_log_start(uint64_t version)
{
    struct ftrma_event_clock *t = &ftrma_event_clock;
    struct ftrma_slot *s = t->slot;
    t->on = 1;
    t->logging = ftrma_log_wanted();
    t->mode = FTRMA_LIVE;
    t->clock = t->ended = t->events = t->hash = 0;
    ftrma_log_pace_reset();
    ftrma_chunks_empty(ftrma_log);
    ftrma_pending_clear();
    ftrma_results_break();
    STORE(&s->entered, LOAD(&ftrma_ctl->attempt));
    s->clock = s->events = s->hash[0] = s->hash[1] = s->atomic_done = s->put = 0;
    s->prefix = (struct ftrma_spot){0};
    s->prefix_events = 0;
    s->prefix_broken = 0;
    s->prefix_call[0] = 0;
    s->marks[0].version = s->marks[1].version = UINT64_MAX;
    s->demand = s->demands = s->asked = 0;
    memset(s->held, 0, sizeof s->held);
    set_mark(&s->marks[version & 1], version, 1, 0, 0);
    ftrma_log_note_use();
    if (LOAD(&ftrma_ctl->attempt) > 1)
        ftrma_trace_note(FTRMA_WHAT_ROLLBACK, version, 0);
}

/* Trace the mark: a record for each window, with the number of the last access to its part. For a
   mark of one slot alone there is one record, without a window. */
static void trace_mark(uint64_t version, int alone)
{
    struct window *w;
    int none = 1;
    for (int i = 0; !alone && (w = ftrma_window_number(i)); i++) {
        if (!w->in_use)
            continue;
        struct ftrma_trace_record record = {
            .what = FTRMA_WHAT_CHECKPOINT, .window = ftrma_trace_window(w->name_number), .target = -1,
            .event = ftrma_event_clock.events + 1, .clock = ftrma_event_clock.clock,
            .seq = w->members[w->me].seq, .gc = w->gc, .gnc = w->gnc, .value = {version, 0}};
        ftrma_trace_write(&record);
        none = 0;
    }
    if (none) {
        struct ftrma_trace_record record = {
            .what = FTRMA_WHAT_CHECKPOINT, .window = -1, .target = -1,
            .event = ftrma_event_clock.events + 1, .clock = ftrma_event_clock.clock,
            .value = {version, (uint64_t)alone}};
        ftrma_trace_write(&record);
    }
}

void ftrma_log_mark(uint64_t version, int alone)
{
    struct ftrma_event_clock *t = &ftrma_event_clock;
    if (!t->on)
        return;
    int resumed = t->logging == FTRMA_LOG_NONE && ftrma_log_wanted() != FTRMA_LOG_NONE;
    if (resumed) { /* records from before logging ended are of no use; all but the prefix is
                      freed */
        for (int log = 0; log < 2; log++) {
            ftrma_log_trim(log, here(log));
            ftrma_log_lose_spots(log);
        }
        t->logging = ftrma_log_wanted();
        ftrma_log_tell_full(ftrma_log->file_bytes + t->dropped);
    }
    /* This is called in a safepoint, which is the last event before the mark. */
    set_mark(&t->slot->marks[version & 1], version, 0, t->events + 1,
             ftrma_mix(t->hash, t->signature));
    STORE(&t->slot->asked, 0);
    if (ftrma_tracing)
        trace_mark(version, alone);
    ftrma_log_trim_committed();
}

const struct ftrma_mark *ftrma_mark_demand(uint64_t number)
{
    struct ftrma_event_clock *t = &ftrma_event_clock;
    struct ftrma_mark *mark = &t->slot->demand_marks[number & 1];
    set_mark(mark, 0, 0, t->events + 1, ftrma_mix(t->hash, t->signature));
    return mark;
}

void ftrma_log_prefix(void)
{
    struct ftrma_event_clock *t = &ftrma_event_clock;
    if (!t->on || t->mode != FTRMA_LIVE)
        return;
    struct ftrma_slot *s = t->slot;
    const struct ftrma_mark *newest = ftrma_mark_of(s, LOAD(&ftrma_ctl->commit) >> 1);
    int late = s->demands > 0;
    for (int i = 0; i < 2; i++)
        late |= s->marks[i].version != UINT64_MAX && !s->marks[i].start;
    if (late) {
        ftrma_foreign("ftrma.protect after the first checkpoint");
        return;
    }
    s->prefix = here(FTRMA_RESULTS);
    s->prefix_events = t->events;
    s->prefix_hash = t->hash;
    if (newest) {
        s->prefix_broken = newest->broken & ~(uint32_t)FTRMA_BROKEN_RECOVERED;
        if (newest->broken & (FTRMA_BROKEN_FOREIGN | FTRMA_BROKEN_HELD))
            s->prefix_broken |= FTRMA_BROKEN_FOREIGN | FTRMA_BROKEN_SETUP;
        memcpy(s->prefix_call, newest->call, sizeof s->prefix_call);
    }
}

/* ---- what a slot can be replayed from ------------------------------------------------------- */

uint64_t ftrma_demand_of(int slot, uint64_t version)
{
    const struct ftrma_slot *s = &ftrma_ctl->slots[slot];
    const struct ftrma_mark *mark = &s->marks[version & 1];
    uint64_t number = LOAD(&s->demand);
    int newer = number && mark->version == version
                && s->demand_marks[number & 1].events > mark->events;
    return newer ? number : 0;
}

int ftrma_mark_broken(int slot, uint64_t version, const char **call)
{
    struct ftrma_mark *mark = ftrma_mark_of(&ftrma_ctl->slots[slot], version);
    *call = mark ? mark->call : "";
    if (!mark)
        return -1;
    return (int)(ftrma_demand_of(slot, version) ? mark->broken & ~(uint32_t)FTRMA_BROKEN_DEMAND
                                                : mark->broken);
}

void ftrma_results_lost(int slot)
{
    for (int i = 0; i < 2; i++)
        ftrma_mark_break(&ftrma_ctl->slots[slot].marks[i], FTRMA_BROKEN_CHECKSUM);
    STORE(&ftrma_ctl->slots[slot].demand, 0);
    STORE(&ftrma_ctl->wanted, 1);
}
