/* Demand checkpoints: when logs run short, one slot checkpoints on its own and its share of them is
 * freed (section 6.2).
 *
 * Where.  A demand checkpoint lies beside the slot's result log, and like it counts as held by the
 * checksum rank of its group: a rollback of all needs the committed version, which stays as it is,
 * and a replay of this slot starts from the newer of both.
 *
 * Nobody waits.  The slot copies its parts inside a safepoint, while others go on accessing them.
 * First it takes down the number S of accesses to each part so far, then for each origin the number
 * E of its last complete event.  An access with number s in event i is *held* by the copy if
 * s <= S and i <= E.  A replay applies everything else again.  That is harmless where the bytes had
 * come already, since records hold the bytes after the access and are applied in order:
 *
 *   - If A comes before B, both to the same bytes, and B is held, so is A: B took its number before
 *     S was read, A was complete before B took its number, and E is read after S.  (Between atomics
 *     it is `atomic_done` that says so, which is set before the next one can begin.)
 *   - The owner's stores behind A are ordered by a synchronization of the origin after A, so A's
 *     event was complete when E was read: A is held, and does not overwrite them.
 *   - What began behind the safepoint read a larger clock (event.h) and is replayed as ever.
 *
 * Whoever logs reads S and E beside the window's other words for the pair, and frees what is held.
 */
#include "chunks.h"
#include "control.h"
#include "demand.h"
#include "marks.h"
#include "tape.h"
#include "trace.h"
#include "window.h"

/* ---- the slot that checkpoints -------------------------------------------------------------- */

static uint64_t complete_events(int slot)
{
    const struct ftrma_slot *s = &ftrma_ctl->slots[slot];
    uint64_t done = LOAD(&s->atomic_done), events = LOAD(&s->events);
    return done > events ? done : events;
}

static int parts(void)
{
    struct window *w;
    int n = 0;
    for (int i = 0; (w = ftrma_window_number(i)); i++)
        n += w->in_use;
    return n;
}

uint64_t ftrma_cut_words(void)
{
    return ftrma_ctl->nslots + 2 * (uint64_t)parts();
}

uint64_t ftrma_demand_begin(int overwrite, uint64_t *cut)
{
    struct ftrma_slot *s = ftrma_tape.slot;
    /* The one after the one in force, also where that had been begun before: the words of its
       parity are free. */
    uint64_t number = (s->demand ? s->demand : s->demands) + 1, *at = cut + ftrma_ctl->nslots;
    struct window *w;
    if (!ftrma_logs() || LOAD(&ftrma_ctl->replays))
        return 0;
    STORE(&s->demands, number);
    if (overwrite)
        STORE(&s->demand, 0);
    for (int i = 0; (w = ftrma_window_number(i)); i++)
        if (w->in_use) {
            *at++ = w->name_number;
            *at++ = LOAD(&w->members[w->me].seq);
        }
    for (uint32_t p = 0; p < ftrma_ctl->nslots; p++)
        cut[p] = complete_events((int)p);
    at = cut + ftrma_ctl->nslots + 1;
    for (int i = 0; (w = ftrma_window_number(i)); i++) {
        for (int o = 0; w->in_use && o < w->n; o++) {
            struct ftrma_cut *c = &pair(w, o, w->me)->cut[number & 1];
            STORE(&c->seq, *at);
            STORE(&c->event, cut[w->members[o].slot]);
        }
        at += 2 * w->in_use;
    }
    return number;
}

/* A record for each part and origin. */
static void trace_demand(uint64_t number, const struct ftrma_mark *mark)
{
    struct ftrma_trace_record record = {.what = FTRMA_WHAT_DEMAND, .window = -1, .target = -1,
                                        .event = mark->events, .clock = mark->clock,
                                        .value = {number, 0}};
    struct window *w;
    for (int i = 0; (w = ftrma_window_number(i)); i++)
        for (int o = 0; w->in_use && o < w->n; o++) {
            if (o == w->me)
                continue;
            const struct ftrma_cut *c = &pair(w, o, w->me)->cut[number & 1];
            record.window = ftrma_trace_window(w->name_number);
            record.target = w->members[o].slot;
            record.seq = c->seq;
            record.value[1] = c->event;
            ftrma_trace_write(&record);
        }
    if (record.window < 0)
        ftrma_trace_write(&record);
}

void ftrma_demand_end(void)
{
    struct ftrma_slot *s = ftrma_tape.slot;
    const struct ftrma_mark *mark = ftrma_mark_demand(s->demands);
    if (ftrma_tracing)
        trace_demand(s->demands, mark);
    ftrma_break(FTRMA_BROKEN_DEMAND); /* first: the others free what it holds once it is in force */
    STORE(&s->demand, s->demands);
    ftrma_trim_results(mark->spot[FTRMA_RESULTS]);
    STORE(&s->asked, 0);
}

void ftrma_demand_failed(int lost)
{
    if (lost)
        STORE(&ftrma_tape.slot->demand, 0);
    STORE(&ftrma_tape.slot->asked, 0);
    STORE(&ftrma_ctl->wanted, 1);
}

int ftrma_cut_holds(const uint64_t *cut, uint64_t words, const struct ftrma_record *record,
                    int source)
{
    for (uint64_t i = ftrma_ctl->nslots; i + 1 < words; i += 2)
        if (cut[i] == record->window)
            return record->seq <= cut[i + 1] && record->event <= cut[source];
    return 0;
}
