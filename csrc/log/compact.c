/* Compaction, when a slot's logs run short: it frees the records of accesses that demand
 * checkpoints of other slots hold (demand.c), and asks for more such checkpoints. */
#include "compact.h"

#include <string.h>

#include "chunks.h"
#include "control.h"
#include "event_clock.h"
#include "held.h"
#include "pending.h"
#include "window.h"

/* The window of a record; NULL if the window has been freed. */
static struct window *window_of(const struct ftrma_record *record)
{
    struct window *w;
    for (int i = 0; (w = ftrma_window_number(i)); i++)
        if (w->in_use && w->name_number == record->window)
            return w;
    return NULL;
}

/* The record's target among the members of the window; -1 if the window is gone. */
static int member_of(const struct window *w, const struct ftrma_record *record)
{
    int t = w ? w->n - 1 : -1;
    while (t >= 0 && w->members[t].slot != record->target)
        t--;
    return t;
}

static int64_t held_up_to(const struct ftrma_record *record)
{
    return ftrma_held_up_to(ftrma_ctl->slots[record->target].held, record->window);
}

/* 1 if the target's newest demand checkpoint holds the access. */
static int held(const struct ftrma_record *record)
{
    struct window *w = window_of(record);
    int t = member_of(w, record);
    if (t < 0)
        return 0;
    if (is_far(w, t)) {
        int64_t up_to = held_up_to(record);
        return up_to > 0 && record->seq <= (uint64_t)up_to;
    }
    const struct ftrma_cut *c = &pair(w, w->me, t)->cut;
    return record->seq <= LOAD(&c->seq) && record->event <= LOAD(&c->event);
}

/* 1 if no demand checkpoint will hold the access, but only a checkpoint of all slots: its window is
   gone, or the target is on another node and reports other windows. */
static int is_orphan(const struct ftrma_record *record)
{
    struct window *w = window_of(record);
    int t = member_of(w, record);
    return t < 0 || (is_far(w, t) && held_up_to(record) < 0);
}

uint64_t ftrma_held_so_far(void)
{
    uint64_t hash = 0;
    struct window *w;
    for (uint32_t s = 0; s < ftrma_ctl->nslots && ftrma_ctl->nodes > 1; s++)
        for (int i = 0; i < FTRMA_HELD_WINDOWS; i++)
            hash = ftrma_mix(hash, LOAD(&ftrma_ctl->slots[s].held[i]));
    for (int i = 0; (w = ftrma_window_number(i)); i++)
        for (int t = 0; w->in_use && t < w->n; t++) {
            const struct ftrma_cut *c = &pair(w, w->me, t)->cut;
            hash = ftrma_mix(hash, LOAD(&c->seq) ^ LOAD(&c->event) << 32);
        }
    return hash;
}

/* Move the records that may still be needed to the front of their chunk; returns their bytes. */
static uint32_t compact_chunk(uint32_t chunk, uint64_t since)
{
    char *data = ftrma_chunk_data(ftrma_log, chunk);
    uint32_t kept = 0, fill = ftrma_log->chunk[chunk].fill, size;
    for (uint32_t at = 0; at < fill; at += size) {
        const struct ftrma_record *record = (const struct ftrma_record *)(const void *)(data + at);
        int damaged = !ftrma_is_record(record, fill - at); /* whoever replays it finds the damage */
        size = damaged ? fill - at : (uint32_t)ftrma_record_size(record->bytes);
        if (!damaged && (record->event <= since || held(record)))
            continue;
        if (kept != at)
            memmove(data + kept, data + at, size);
        kept += size;
    }
    ftrma_log->chunk[chunk].fill = kept;
    return kept;
}

int ftrma_compact_puts(uint64_t since)
{
    struct ftrma_log *l = ftrma_log;
    struct ftrma_pen *pen = &ftrma_pens[FTRMA_PUTS];
    uint32_t *link = &l->head[FTRMA_PUTS], before = 0; /* the chunk kept last, + 1 */
    while (*link && !ftrma_pending_since(*link)) {
        uint32_t chunk = *link - 1, kept = compact_chunk(chunk, since);
        struct ftrma_chunk *to = before ? &l->chunk[before - 1] : NULL;
        if (kept && to && to->fill + kept <= l->chunk_bytes) {
            memcpy(ftrma_chunk_data(l, before - 1) + to->fill, ftrma_chunk_data(l, chunk), kept);
            to->fill += kept;
            kept = 0;
        }
        if (kept) {
            before = chunk + 1;
            link = &l->chunk[chunk].next;
        } else {
            *link = l->chunk[chunk].next;
            ftrma_chunk_free(chunk);
        }
    }
    if (*link) /* pending records stay where they are */
        return *link == pen->chunk + 1;
    *pen = (struct ftrma_pen){0};
    if (before) {
        uint32_t fill = l->chunk[before - 1].fill;
        *pen = (struct ftrma_pen){ftrma_chunk_data(l, before - 1) + fill, l->chunk_bytes - fill,
                                  before - 1};
    }
    return 1;
}

/* ---- asking --------------------------------------------------------------------------------- */

#define LEAST_SHARE 16 /* part of the budget; freeing less is not worth it */

/* Ask the slot with the largest share of the logs, and those with nearly as much, for demand
   checkpoints. If all slots do the same work, they then checkpoint at one time instead of delaying
   each other one after the other. */
void ftrma_demand_ask(void)
{
    static int asked = -1;
    static uint64_t share[FTRMA_MAX_PROCS];
    uint64_t orphaned = 0, least = ftrma_log->file_bytes / LEAST_SHARE;
    int me, most = 0;
    if (asked >= 0 && LOAD(&ftrma_ctl->slots[asked].asked))
        return;
    memset(share, 0, ftrma_ctl->nslots * sizeof *share);
    struct ftrma_reader reader = {.log = ftrma_log, .head = ftrma_log->head[FTRMA_PUTS]};
    for (const struct ftrma_record *r; (r = ftrma_log_next(&reader));)
        *(is_orphan(r) ? &orphaned : &share[r->target]) += ftrma_record_size(r->bytes);
    ftrma_my_role(&me);
    share[me] += ftrma_results_bytes();
    for (int s = 0; s < (int)ftrma_ctl->nslots; s++)
        if (share[s] > share[most])
            most = s;
    if (orphaned >= least) {
        STORE(&ftrma_ctl->wanted, 1);
        ftrma_tell_agent();
    }
    if (share[most] < least)
        return;
    asked = most;
    for (uint32_t s = 0; s < ftrma_ctl->nslots; s++)
        if (share[s] >= least && 2 * share[s] >= share[most])
            STORE(&ftrma_ctl->slots[s].asked, 1);
    ftrma_tell_agent();
}
