/* Demand checkpoints: when logs run short, one slot checkpoints on its own and its share of them is
 * freed (section 6.2).
 *
 * Place. A demand checkpoint lies beside the slot's result log, and both count as held by the first
 * checksum rank of its group. A rollback of all slots needs the committed version, which stays as
 * it is. A replay of this slot starts from the newer of the two checkpoints.
 *
 * Nobody waits. The slot copies its parts inside a safepoint, while others go on accessing them.
 * First it reads the number S of accesses to each part so far, then for each origin the number E of
 * its last complete event. An access with number s in event i is *held* by the copy if s <= S and i
 * <= E. A replay applies all other accesses again. This is harmless if their bytes are in the copy
 * already, since records hold the bytes after the access and are applied in order:
 *
 * - If A comes before B, both to the same bytes, and B is held, so is A: B took its number before S was
 *   read, A was complete before B took its number, and E is read after S.  (Between atomics
 *   `atomic_done` says so, which is set before the next one can begin.)
 * - If the owner's stores come after A, a synchronization of the origin after A has ordered them
 *   so. Then A's event was complete when E was read: A is held, and does not overwrite the stores.
 * - An access that began after the safepoint read a larger clock (event.h) and is replayed as
 *   always.
 *
 * A slot that has logged accesses finds S and E beside the window's other words for the pair, and
 * frees the records of held accesses. S and E are stored once the checkpoint is in force, and only
 * grow: even if a slot reads a mixture of older and newer ones, the newer checkpoint holds all that
 * it frees.
 *
 * Over several nodes. The agent does the accesses of other nodes, one request at a time. So the
 * slot awaits a scan of the agent after it has read S: then all accesses with s <= S are in memory,
 * and the event need not be known, so E is infinite. If an agent leaves a request half done, the
 * next agent does it again, with a larger number. If that happens while the slot copies, the copy
 * does not count, since it may have half of a sum. One more scan shows this, because the next agent
 * makes it. All puts of the slot itself are at their targets before it begins, since a replay would
 * not send them again.
 *
 * S alone goes to the other nodes, in the slot's words of the control file. It cannot go over the
 * wire: the wire's requests are counted, and a replay would have to send them again. Each window
 * has one word there, so that the window's name and the number are one store.
 */
#include "chunks.h"
#include "control.h"
#include "demand.h"
#include "event_clock.h"
#include "held.h"
#include "marks.h"
#include "nodes.h"
#include "trace.h"
#include "window.h"

/* ---- the slot that checkpoints -------------------------------------------------------------- */

static uint64_t complete_events(int slot)
{
    const struct ftrma_slot *s = &ftrma_ctl->slots[slot];
    uint64_t done = LOAD(&s->atomic_done), events = LOAD(&s->events);
    return done > events ? done : events;
}

static int is_elsewhere(int slot)
{
    return ftrma_ctl->nodes > 1 && ftrma_node_of(slot) != ftrma_node_here();
}

/* The number of agents that this node has had. A new one may have begun after the old one died in
   the middle of a request. */
static uint64_t agents_so_far(void)
{
    struct ftrma_ledger *ledger = ftrma_wire_ledger();
    return ledger ? ftrma_ledger_agents(ledger) : 0;
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

static uint64_t agents; /* agents so far, when the newest one was begun */

uint64_t ftrma_demand_begin(int overwrite, uint64_t *cut)
{
    struct ftrma_slot *s = ftrma_event_clock.slot;
    /* The number after the one in force, even if a checkpoint of that number was begun before. */
    uint64_t number = (s->demand ? s->demand : s->demands) + 1, *at = cut + ftrma_ctl->nslots;
    struct window *w;
    if (!ftrma_logs() || LOAD(&ftrma_ctl->replays))
        return 0;
    agents = agents_so_far();
    for (int i = 0; (w = ftrma_window_number(i)); i++)
        if (w->in_use) {
            *at++ = w->name_number;
            *at++ = LOAD(&w->members[w->me].seq);
        }
    if (ftrma_synchronize())
        return 0;
    for (uint32_t p = 0; p < ftrma_ctl->nslots; p++)
        cut[p] = is_elsewhere((int)p) ? UINT64_MAX : complete_events((int)p);
    STORE(&s->demands, number);
    if (overwrite)
        STORE(&s->demand, 0);
    return number;
}

/* Show the others what the demand checkpoint holds, so that they may free it. */
static void show(const uint64_t *cut)
{
    const uint64_t *at = cut + ftrma_ctl->nslots + 1;
    struct window *w;
    int n = 0;
    for (int i = 0; (w = ftrma_window_number(i)); i++) {
        if (!w->in_use)
            continue;
        uint64_t word = ftrma_held_word(w->name_number, *at);
        for (int o = 0; o < w->n; o++) {
            struct ftrma_cut *c = &pair(w, o, w->me)->cut;
            STORE(&c->seq, *at);
            STORE(&c->event, cut[w->members[o].slot]);
        }
        if (word && w->far && n < FTRMA_HELD_WINDOWS)
            STORE(&ftrma_event_clock.slot->held[n++], word);
        at += 2;
    }
    while (n < FTRMA_HELD_WINDOWS)
        STORE(&ftrma_event_clock.slot->held[n++], 0);
}

/* Trace the demand checkpoint: a record for each part and origin. */
static void trace_demand(uint64_t number, const struct ftrma_mark *mark, const uint64_t *cut)
{
    struct ftrma_trace_record record = {.what = FTRMA_WHAT_DEMAND, .window = -1, .target = -1,
                                        .event = mark->events, .clock = mark->clock,
                                        .value = {number, 0}};
    const uint64_t *at = cut + ftrma_ctl->nslots + 1;
    struct window *w;
    for (int i = 0; (w = ftrma_window_number(i)); i++) {
        if (!w->in_use)
            continue;
        for (int o = 0; o < w->n; o++) {
            if (o == w->me)
                continue;
            record.window = ftrma_trace_window(w->name_number);
            record.target = w->members[o].slot;
            record.seq = *at;
            record.value[1] = cut[w->members[o].slot];
            ftrma_trace_write(&record);
        }
        at += 2;
    }
    if (record.window < 0)
        ftrma_trace_write(&record);
}

int ftrma_demand_end(const uint64_t *cut)
{
    struct ftrma_slot *s = ftrma_event_clock.slot;
    if (ftrma_synchronize() || agents_so_far() != agents)
        return 0;
    const struct ftrma_mark *mark = ftrma_mark_demand(s->demands);
    if (ftrma_tracing)
        trace_demand(s->demands, mark, cut);
    ftrma_break(FTRMA_BROKEN_DEMAND); /* first, since the others free what the new one holds once it
                                         is in force */
    STORE(&s->demand, s->demands);
    show(cut);
    ftrma_trim_results(mark->spot[FTRMA_RESULTS]);
    STORE(&s->asked, 0);
    ftrma_tell_agent();
    return 1;
}

void ftrma_demand_failed(int lost)
{
    if (lost)
        STORE(&ftrma_event_clock.slot->demand, 0);
    STORE(&ftrma_event_clock.slot->asked, 0);
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
