/* Windows in recovery: logged accesses are written to the slot's own part, and counters are
 * restored from a checkpoint. */
#include "restore.h"

#include <string.h>

#include "communicator.h"
#include "log.h"
#include "meet.h"
#include "nodes.h"
#include "window.h"

int ftrma_window_apply(const struct ftrma_record *record)
{
    struct window *w;
    for (int i = 0; (w = ftrma_window_number(i)); i++)
        if (w->name_number == record->window) {
            struct ftrma_member *m = &w->members[w->me];
            if (!ftrma_is_inside(m, record->at, record->bytes))
                return 0;
            char *base = w->allocated ? part(w, w->me) : (char *)(uintptr_t)m->base;
            memcpy(base + record->at, record + 1, record->bytes);
            return 1;
        }
    return 1; /* the window is freed again already: nobody will read it */
}

/* ---- counters ------------------------------------------------------------------------------- */

struct counters {
    int32_t ordinal, n;
    uint64_t gnc, gc, lc, barriers;
    int32_t fence_open, all_locked, access_open, exposure_open;
};

static uint64_t copy(uint8_t *image, uint64_t room, uint64_t at, const void *from, uint64_t n)
{
    if (at + n <= room)
        memcpy(image + at, from, n);
    return at + n;
}

uint64_t ftrma_counters_save(uint8_t *image, uint64_t room)
{
    /* Barriers passed, windows made, words of communicators, requests to slots of other nodes. */
    struct ftrma_origin *origin = ftrma_wire_origin();
    uint64_t counts[4] = {ftrma_barriers, (uint64_t)ftrma_next_ordinal, ftrma_comms_save(NULL, 0),
                          origin ? ftrma_ctl->nslots : 0};
    uint64_t at = copy(image, room, 0, counts, sizeof counts), bytes = counts[2] * sizeof *counts;
    struct window *w;
    if (at + bytes <= room)
        ftrma_comms_save((uint64_t *)(void *)(image + at), counts[2]);
    at += bytes;
    for (uint32_t s = 0; s < counts[3]; s++) {
        uint64_t number = ftrma_origin_last_number(origin, s);
        at = copy(image, room, at, &number, sizeof number);
    }
    for (int i = 0; (w = ftrma_window_number(i)); i++) {
        if (!w->in_use)
            continue;
        struct counters c = {w->ordinal,    w->n,          w->gnc,         w->gc,
                             w->lc,         w->barriers,   w->fence_open,  w->all_locked,
                             w->access_open, w->exposure_open};
        at = copy(image, room, at, &c, sizeof c);
        at = copy(image, room, at, w->locked, 4 * (uint64_t)w->n);
        at = copy(image, room, at, w->ec, 4 * (uint64_t)w->n * sizeof *w->ec);
    }
    return at;
}

static struct window *in_use(int ordinal)
{
    struct window *w;
    for (int i = 0; (w = ftrma_window_number(i)); i++)
        if (w->in_use && w->ordinal == ordinal)
            return w;
    return NULL;
}

int ftrma_counters_load(const uint8_t *image, uint64_t size)
{
    uint64_t counts[4], at = sizeof counts;
    if (size < at)
        return -1;
    memcpy(counts, image, sizeof counts);
    ftrma_barriers = counts[0];
    ftrma_next_ordinal = (int)counts[1];
    if (ftrma_comms_load((const uint64_t *)(const void *)(image + at), counts[2]))
        return -1;
    at += counts[2] * sizeof *counts;
    for (uint32_t s = 0; s < counts[3]; s++, at += sizeof *counts) {
        uint64_t number;
        memcpy(&number, image + at, sizeof number);
        ftrma_origin_continue(ftrma_wire_origin(), s, number);
    }
    while (at < size) {
        struct counters c;
        memcpy(&c, image + at, sizeof c);
        at += sizeof c;
        struct window *w = in_use(c.ordinal);
        if (!w || w->n != c.n)
            return -1;
        w->gnc = c.gnc;
        w->gc = c.gc;
        w->lc = c.lc;
        w->barriers = c.barriers;
        w->fence_open = c.fence_open;
        w->all_locked = c.all_locked;
        w->access_open = c.access_open;
        w->exposure_open = c.exposure_open;
        memcpy(w->locked, image + at, 4 * (size_t)c.n);
        at += 4 * (uint64_t)c.n;
        memcpy(w->ec, image + at, 4 * (size_t)c.n * sizeof *w->ec);
        at += 4 * (uint64_t)c.n * sizeof *w->ec;
    }
    return 0;
}

void ftrma_locks_load(void)
{
    struct window *w;
    for (int i = 0; (w = ftrma_window_number(i)); i++)
        for (int t = 0; w->in_use && t < w->n; t++)
            w->sc[t] = pair(w, w->me, t)->sc;
}
