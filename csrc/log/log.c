/* Appending to the logs, chunk after chunk, within the budget; see log.h. */
#include "log.h"

#include <string.h>

#include "compact.h"
#include "control.h"
#include "kernels.h"
#include "pending.h"

static ftrma_full_function full; /* set once by ftrma_set_full, before the program runs */
static int wanted_logging; /* FTRMA_LOG_* that the user asked for */
/* Chunks taken in this attempt so far, and up to the last safepoint; the most that were taken
   between two safepoints lately; the number of safepoints so far. */
static struct {
    uint32_t taken, before, step, safepoints;
} pace;

void ftrma_set_full(ftrma_full_function function)
{
    full = function;
}

void ftrma_log_configure(int what)
{
    wanted_logging = what;
}

/* Stop logging. No checkpoint of this attempt begins it again. */
void ftrma_log_stop(void)
{
    wanted_logging = ftrma_event_clock.logging = FTRMA_LOG_NONE;
}

int ftrma_log_wanted(void)
{
    return wanted_logging;
}

void ftrma_log_tell_full(uint64_t needed_bytes)
{
    if (full)
        full(needed_bytes);
}

/* ---- pace ----------------------------------------------------------------------------------- */

void ftrma_log_pace_reset(void)
{
    memset(&pace, 0, sizeof pace);
}

void ftrma_log_step(void)
{
    uint32_t step = pace.taken - pace.before;
    pace.before = pace.taken;
    if (pace.safepoints++)
        pace.step = step > pace.step ? step : pace.step - (pace.step - step) / 8;
}

/* Chunks that may be used before a slot is asked for a checkpoint. The slot answers at its next
   safepoint, so as many chunks are left free as two steps take: an eighth of all at least, half at
   most. */
static uint32_t enough(void)
{
    uint32_t n = ftrma_log->nchunks, left = 2 * (pace.step + 1);
    left = left > n / 8 ? left : n / 8;
    return pace.safepoints > 1 && left < n / 2 ? n - left : n / 2;
}

/* Free all records that can be freed, since the budget runs short. If that is too little, ask a
   slot for a checkpoint. */
static void reclaim(void)
{
    static uint64_t compacted; /* hash of the checkpoints for which the log was compacted last */
    ftrma_log_trim_committed();
    struct ftrma_mark *mark = ftrma_log_free_to_trim();
    if (!mark || ftrma_log->used < enough())
        return;
    uint64_t seen = ftrma_mix(ftrma_mix(mark->version, LOAD(&ftrma_ctl->attempt)), ftrma_held_so_far());
    if (seen != compacted) {
        compacted = ftrma_compact_puts(mark->events) ? seen : 0;
        ftrma_log_lose_spots(FTRMA_PUTS); /* readers find their place by the events in the records
                                             instead */
        ftrma_log_note_use();
    }
    if (ftrma_log->used >= enough())
        ftrma_demand_ask();
}

int ftrma_log_next_chunk(int log)
{
    struct ftrma_log *l = ftrma_log;
    struct ftrma_pen *pen = &ftrma_pens[log];
    if (l->used >= enough())
        reclaim();
    if (!l->free)
        return 0;
    uint32_t chunk = l->free - 1;
    l->free = l->chunk[chunk].next;
    l->chunk[chunk] = (struct ftrma_chunk){0};
    l->used++;
    pace.taken++;
    ftrma_log_note_use();
    if (pen->at)
        l->chunk[pen->chunk].next = chunk + 1;
    else
        l->head[log] = chunk + 1;
    *pen = (struct ftrma_pen){ftrma_chunk_data(l, chunk), l->chunk_bytes, chunk};
    return 1;
}

/* ---- appending ------------------------------------------------------------------------------ */

static void run_over(void)
{
    ftrma_event_clock.logging = FTRMA_LOG_NONE;
    ftrma_event_clock.dropped = 0;
    ftrma_break(FTRMA_BROKEN_FULL);
    STORE(&ftrma_ctl->wanted, 1);
    ftrma_log_tell_full(0);
}

/* Copy a payload as ftrma_copy_past does. Returns its sum. */
static uint64_t copy(char *to, const char *from, size_t n, char *also, int both)
{
    if (n <= FTRMA_SUM_SHORT)
        return ftrma_sum_short(from, n, to, also);
    uint32_t crc = 0;
    ftrma_copy_past(to, from, n, also, both, &crc);
    return crc;
}

void ftrma_log_append(int log, const struct ftrma_record *record, const void *payload, size_t bytes,
                      char *also, int both)
{
    struct ftrma_pen *pen = &ftrma_pens[log];
    struct ftrma_record piece = *record;
    size_t done = 0;
    do {
        size_t left = bytes - done, least = sizeof piece + (left < 64 ? left : 64);
        if (pen->room < ((least + 7) & ~(size_t)7) && !ftrma_log_next_chunk(log)) {
            run_over();
            if (also)
                memcpy(also + done, (const char *)payload + done, left);
            return;
        }
        size_t room = pen->room - sizeof piece, n = left < room ? left : room;
        uint32_t size = (uint32_t)ftrma_record_size(n);
        piece.bytes = (uint32_t)n;
        piece.sum = ftrma_record_sum(&piece, copy(pen->at + sizeof piece,
                                                  (const char *)payload + done, n,
                                                  also ? also + done : NULL, both));
        piece.order = ftrma_record_order(&piece);
        memcpy(pen->at, &piece, sizeof piece);
        pen->at += size;
        pen->room -= size;
        __atomic_store_n(&ftrma_log->chunk[pen->chunk].fill,
                         ftrma_log->chunk[pen->chunk].fill + size, __ATOMIC_RELEASE);
        done += n;
        piece.at += n;
    } while (done < bytes);
}
