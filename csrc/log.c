/* Access logs: chunks, appending, marks, trimming.  See log.h. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kernels.h"
#include "log.h"

#define PAGE 4096u
#define LEAST_CHUNKS 8u
#define MOST_CHUNK (1u << 20)
#define CHUNKS 64u /* at least so many where the budget allows it, so that trimming frees some */

struct ftrma_tape ftrma_tape;
_Thread_local int ftrma_counted;
struct ftrma_log *ftrma_log;
struct ftrma_pen ftrma_pens[2];

static ftrma_full_function full;
static int wanted_logging; /* FTRMA_LOG_* that the user asked for */
/* Chunks taken in this entry, and up to the last safepoint; the most between two safepoints lately;
   safepoints so far. */
static struct {
    uint32_t taken, before, step, safepoints;
} pace;

/* ---- the file ------------------------------------------------------------------------------- */

static uint64_t round_up(uint64_t n, uint64_t unit)
{
    return (n + unit - 1) / unit * unit;
}

static uint64_t head_bytes(uint64_t nchunks)
{
    return round_up(sizeof(struct ftrma_log) + nchunks * sizeof(struct ftrma_chunk), PAGE);
}

uint64_t ftrma_log_least(void)
{
    return head_bytes(LEAST_CHUNKS) + (uint64_t)LEAST_CHUNKS * PAGE;
}

static void lay_out(struct ftrma_log *log, uint64_t file_bytes)
{
    uint64_t chunk = file_bytes / CHUNKS / PAGE * PAGE;
    chunk = chunk < PAGE ? PAGE : chunk > MOST_CHUNK ? MOST_CHUNK : chunk;
    uint64_t n = file_bytes / chunk;
    while (head_bytes(n) + n * chunk > file_bytes)
        n--;
    log->file_bytes = file_bytes;
    log->chunk_bytes = (uint32_t)chunk;
    log->nchunks = (uint32_t)n;
}

static void empty(struct ftrma_log *log)
{
    log->head[0] = log->head[1] = 0;
    log->used = 0;
    log->free = 1;
    for (uint32_t i = 0; i < log->nchunks; i++)
        log->chunk[i] = (struct ftrma_chunk){.next = i + 1 < log->nchunks ? i + 2 : 0};
    ftrma_pens[0] = ftrma_pens[1] = (struct ftrma_pen){0};
    ftrma_results_break();
}

static int map_log(int slot, int create, uint64_t budget_bytes, struct ftrma_log **log)
{
    char path[4096];
    if (snprintf(path, sizeof path, "%s/log-%d", ftrma_directory, slot) >= (int)sizeof path)
        return -ENAMETOOLONG;
    int fd = ftrma_open(path, O_RDWR | (create ? O_CREAT : 0));
    if (fd < 0)
        return fd;
    struct stat st;
    uint64_t size = budget_bytes / PAGE * PAGE;
    int error = create ? posix_fallocate(fd, 0, (off_t)size) : fstat(fd, &st) ? errno : 0;
    if (!create && !error)
        size = (uint64_t)st.st_size;
    void *p = MAP_FAILED;
    if (!error && !size)
        error = EINVAL;
    if (!error) {
        p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | (create ? MAP_POPULATE : 0), fd,
                 0);
        error = p == MAP_FAILED ? errno : 0;
    }
    close(fd);
    if (error && create)
        unlink(path);
    if (error)
        return -error;
    *log = p;
    if (create) {
        lay_out(*log, size);
        empty(*log);
        __atomic_store_n(&(*log)->magic, FTRMA_LOG_MAGIC, __ATOMIC_RELEASE); /* last */
    }
    if (LOAD(&(*log)->magic) == FTRMA_LOG_MAGIC)
        return 0;
    munmap(*log, size);
    return -EINVAL;
}

int ftrma_log_open(int slot, int create, uint64_t budget_bytes)
{
    int error = map_log(slot, create, budget_bytes, &ftrma_log);
    if (error)
        return error;
    ftrma_tape.slot = &ftrma_ctl->slots[slot];
    return 0;
}

int ftrma_log_view(int slot, struct ftrma_log **log)
{
    return map_log(slot, 0, 0, log);
}

void ftrma_log_close(struct ftrma_log *log)
{
    munmap(log, log->file_bytes);
}

/* ---- chunks --------------------------------------------------------------------------------- */

static struct ftrma_mark *mark_of(struct ftrma_slot *slot, uint64_t version)
{
    struct ftrma_mark *mark = &slot->marks[version & 1];
    return mark->version == version ? mark : NULL;
}

static void note_use(void)
{
    struct ftrma_slot *slot = ftrma_tape.slot;
    uint64_t bytes = ftrma_log->file_bytes
                     - (uint64_t)(ftrma_log->nchunks - ftrma_log->used) * ftrma_log->chunk_bytes;
    if (bytes > slot->peak_bytes)
        slot->peak_bytes = bytes;
}

void ftrma_chunk_free(uint32_t chunk)
{
    ftrma_log->chunk[chunk] = (struct ftrma_chunk){.next = ftrma_log->free};
    ftrma_log->free = chunk + 1;
    ftrma_log->used--;
}

/* The link to a chunk in the chain that begins with `link`; NULL if it is not in there. */
static uint32_t *find_chunk(uint32_t *link, uint32_t chunk)
{
    while (*link && *link != chunk)
        link = &ftrma_log->chunk[*link - 1].next;
    return *link ? link : NULL;
}

/* Free what lies before the spot; in the result log not the prefix, which every entry needs.  A spot
   in an empty log (chunk 0) has nothing before it. */
static void trim(int log, struct ftrma_spot to)
{
    uint32_t *link = &ftrma_log->head[log], prefix = ftrma_tape.slot->prefix.chunk;
    if (log == FTRMA_RESULTS && prefix)
        link = find_chunk(link, prefix) ? &ftrma_log->chunk[prefix - 1].next : NULL;
    if (!to.chunk || !link || !find_chunk(link, to.chunk))
        return;
    while (*link != to.chunk) {
        uint32_t chunk = *link - 1;
        *link = ftrma_log->chunk[chunk].next;
        ftrma_chunk_free(chunk);
    }
}

/* The marks so far lead nowhere: what was behind them in this log is gone. */
static void lose_spots(int log)
{
    for (int i = 0; i < 2; i++)
        ftrma_tape.slot->marks[i].spot[log] = (struct ftrma_spot){0};
}

/* Nobody reads the logs: what is before a mark in force can go. */
static struct ftrma_mark *free_to_trim(void)
{
    int quiet = ftrma_tape.mode == FTRMA_LIVE && !LOAD(&ftrma_ctl->replays);
    return quiet ? mark_of(ftrma_tape.slot, LOAD(&ftrma_ctl->commit) >> 1) : NULL;
}

/* The older mark's records are not needed any more once the newer version is committed. */
static void trim_committed(void)
{
    struct ftrma_mark *mark = free_to_trim();
    if (mark) {
        trim(FTRMA_PUTS, mark->spot[FTRMA_PUTS]);
        trim(FTRMA_RESULTS, mark->spot[FTRMA_RESULTS]);
        note_use();
    }
}

void ftrma_trim_results(struct ftrma_spot to)
{
    trim(FTRMA_RESULTS, to);
    for (int i = 0; i < 2; i++)
        ftrma_tape.slot->marks[i].spot[FTRMA_RESULTS] = to;
    note_use();
}

uint64_t ftrma_results_bytes(void)
{
    uint64_t chunks = 0;
    uint32_t prefix = ftrma_tape.slot->prefix.chunk;
    uint32_t next = prefix ? ftrma_log->chunk[prefix - 1].next : ftrma_log->head[FTRMA_RESULTS];
    for (; next; next = ftrma_log->chunk[next - 1].next)
        chunks++;
    return chunks * ftrma_log->chunk_bytes;
}

void ftrma_log_step(void)
{
    uint32_t step = pace.taken - pace.before;
    pace.before = pace.taken;
    if (pace.safepoints++)
        pace.step = step > pace.step ? step : pace.step - (pace.step - step) / 8;
}

/* Chunks that may be used before a slot is asked for a checkpoint: as much is left as two steps
   take, since it answers at its next safepoint; an eighth at least, half at most. */
static uint32_t enough(void)
{
    uint32_t n = ftrma_log->nchunks, left = 2 * (pace.step + 1);
    left = left > n / 8 ? left : n / 8;
    return pace.safepoints > 1 && left < n / 2 ? n - left : n / 2;
}

/* The budget runs short: free what can be, or have a slot checkpoint. */
static void reclaim(void)
{
    static uint64_t squeezed; /* for what checkpoints that was done last */
    trim_committed();
    struct ftrma_mark *mark = free_to_trim();
    if (!mark || ftrma_log->used < enough())
        return;
    uint64_t seen = ftrma_mix(mark->version, LOAD(&ftrma_ctl->entry));
    for (uint32_t s = 0; s < ftrma_ctl->nslots; s++)
        seen = ftrma_mix(seen, LOAD(&ftrma_ctl->slots[s].demand));
    if (seen != squeezed) {
        squeezed = seen;
        ftrma_squeeze_puts(mark->events);
        lose_spots(FTRMA_PUTS); /* the events in the records tell, too */
        note_use();
    }
    if (ftrma_log->used >= enough())
        ftrma_demand_ask();
}

int ftrma_log_turn(int log)
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
    note_use();
    if (pen->at)
        l->chunk[pen->chunk].next = chunk + 1;
    else
        l->head[log] = chunk + 1;
    *pen = (struct ftrma_pen){ftrma_chunk_data(l, chunk), l->chunk_bytes, chunk};
    return 1;
}

/* ---- appending ------------------------------------------------------------------------------ */

void ftrma_break(uint32_t why)
{
    for (int i = 0; i < 2; i++)
        ftrma_tape.slot->marks[i].broken |= why;
}

static void run_over(void)
{
    ftrma_tape.logging = FTRMA_LOG_NONE;
    ftrma_tape.dropped = 0;
    ftrma_break(FTRMA_BROKEN_FULL);
    STORE(&ftrma_ctl->wanted, 1);
    if (full)
        full(0);
}

void ftrma_log_append(int log, const struct ftrma_record *record, const void *payload, size_t bytes,
                      char *also, int both)
{
    struct ftrma_pen *pen = &ftrma_pens[log];
    struct ftrma_record piece = *record;
    size_t done = 0;
    do {
        size_t left = bytes - done, least = sizeof piece + (left < 64 ? left : 64);
        if (pen->room < ((least + 7) & ~(size_t)7) && !ftrma_log_turn(log)) {
            run_over();
            if (also)
                memcpy(also + done, (const char *)payload + done, left);
            return;
        }
        size_t room = pen->room - sizeof piece, n = left < room ? left : room;
        piece.bytes = (uint32_t)n;
        piece.size = (uint32_t)(sizeof piece + ((n + 7) & ~(size_t)7));
        memcpy(pen->at, &piece, sizeof piece);
        ftrma_copy_past(pen->at + sizeof piece, (const char *)payload + done, n,
                        also ? also + done : NULL, both);
        pen->at += piece.size;
        pen->room -= piece.size;
        __atomic_store_n(&ftrma_log->chunk[pen->chunk].fill,
                         ftrma_log->chunk[pen->chunk].fill + piece.size, __ATOMIC_RELEASE);
        done += n;
        piece.at += n;
    } while (done < bytes);
}

/* ---- reading -------------------------------------------------------------------------------- */

const struct ftrma_record *ftrma_log_next(struct ftrma_reader *reader)
{
    if (!reader->at.chunk)
        reader->at = (struct ftrma_spot){reader->head, 0};
    while (reader->at.chunk) {
        uint32_t chunk = reader->at.chunk - 1;
        const struct ftrma_chunk *c = &reader->log->chunk[chunk];
        if (reader->at.at < LOAD(&c->fill)) {
            const struct ftrma_record *record = (const struct ftrma_record *)(const void *)(
                ftrma_chunk_data(reader->log, chunk) + reader->at.at);
            reader->at.at += record->size;
            return record;
        }
        if (!c->next)
            return NULL;
        reader->at = (struct ftrma_spot){c->next, 0};
    }
    return NULL;
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
    lose_spots(FTRMA_PUTS);
    ftrma_results_break();
    ftrma_pens[FTRMA_PUTS] = ftrma_pens[FTRMA_RESULTS] = (struct ftrma_pen){0};
    if (spot.chunk)
        ftrma_pens[FTRMA_RESULTS] = (struct ftrma_pen){
            ftrma_chunk_data(l, spot.chunk - 1) + spot.at, l->chunk_bytes - spot.at,
            spot.chunk - 1};
    note_use();
}

/* ---- marks ---------------------------------------------------------------------------------- */

/* The place of a mark, from which a log will be read. */
static struct ftrma_spot here(int log)
{
    if (log == FTRMA_RESULTS)
        ftrma_results_break();
    struct ftrma_pen *pen = &ftrma_pens[log];
    return pen->at ? (struct ftrma_spot){pen->chunk + 1, ftrma_log->chunk[pen->chunk].fill}
                   : (struct ftrma_spot){0};
}

static void blame(struct ftrma_mark *mark, uint32_t why, const char *call)
{
    if (!(mark->broken & (FTRMA_BROKEN_FOREIGN | FTRMA_BROKEN_HELD)))
        snprintf(mark->call, sizeof mark->call, "%s", call);
    mark->broken |= why;
}

static void set_mark(struct ftrma_mark *mark, uint64_t version, int start, uint64_t events,
                     uint64_t hash)
{
    struct ftrma_tape *t = &ftrma_tape;
    *mark = (struct ftrma_mark){
        .version = version, .start = (uint32_t)start, .events = events, .clock = t->clock,
        .hash = hash, .spot = {here(FTRMA_PUTS), here(FTRMA_RESULTS)},
        .broken = start ? 0 : t->slot->prefix_broken};
    memcpy(mark->call, t->slot->prefix_call, sizeof mark->call);
    const char *held = ftrma_window_held();
    held = held ? held : ftrma_foreign_maker();
    if (held && !(mark->broken & (FTRMA_BROKEN_FOREIGN | FTRMA_BROKEN_HELD)))
        blame(mark, FTRMA_BROKEN_HELD, held);
    t->first = events + 1;
}

void ftrma_set_full(ftrma_full_function function)
{
    full = function;
}

void ftrma_log_configure(int what)
{
    wanted_logging = what;
}

int ftrma_log_wanted(void)
{
    return wanted_logging;
}

void ftrma_log_start(uint64_t version)
{
    struct ftrma_tape *t = &ftrma_tape;
    struct ftrma_slot *s = t->slot;
    t->on = 1;
    t->logging = wanted_logging;
    t->mode = FTRMA_LIVE;
    t->clock = t->events = t->hash = 0;
    memset(&pace, 0, sizeof pace);
    empty(ftrma_log);
    STORE(&s->entered, LOAD(&ftrma_ctl->entry));
    s->clock = s->events = s->hash[0] = s->hash[1] = s->atomic_done = 0;
    s->prefix = (struct ftrma_spot){0};
    s->prefix_events = 0;
    s->prefix_broken = 0;
    s->prefix_call[0] = 0;
    s->marks[0].version = s->marks[1].version = UINT64_MAX;
    s->demand = s->demands = s->asked = 0;
    set_mark(&s->marks[version & 1], version, 1, 0, 0);
    note_use();
    if (LOAD(&ftrma_ctl->entry) > 1)
        ftrma_trace_note(FTRMA_WHAT_ROLLBACK, version, 0);
}

/* A record for each window: how far its part had come. */
static void trace_mark(uint64_t version)
{
    struct window *w;
    int none = 1;
    for (int i = 0; (w = ftrma_window_number(i)); i++) {
        if (!w->in_use)
            continue;
        struct ftrma_trace_record record = {
            .what = FTRMA_WHAT_CHECKPOINT, .window = ftrma_trace_window(w->name_number), .target = -1,
            .event = ftrma_tape.events + 1, .clock = ftrma_tape.clock,
            .seq = w->members[w->me].seq, .gc = w->gc, .gnc = w->gnc, .value = {version, 0}};
        ftrma_trace_write(&record);
        none = 0;
    }
    if (none) {
        struct ftrma_trace_record record = {
            .what = FTRMA_WHAT_CHECKPOINT, .window = -1, .target = -1,
            .event = ftrma_tape.events + 1, .clock = ftrma_tape.clock, .value = {version, 0}};
        ftrma_trace_write(&record);
    }
}

void ftrma_log_mark(uint64_t version)
{
    struct ftrma_tape *t = &ftrma_tape;
    if (!t->on)
        return;
    int resumed = t->logging == FTRMA_LOG_NONE && wanted_logging != FTRMA_LOG_NONE;
    if (resumed) { /* what was logged before it ran over is of no use; all but the prefix goes */
        for (int log = 0; log < 2; log++) {
            trim(log, here(log));
            lose_spots(log);
        }
        t->logging = wanted_logging;
        if (full)
            full(ftrma_log->file_bytes + t->dropped);
    }
    /* The safepoint that this is called in is the last event before the mark. */
    set_mark(&t->slot->marks[version & 1], version, 0, t->events + 1,
             ftrma_mix(t->hash, t->signature));
    STORE(&t->slot->asked, 0);
    if (ftrma_tracing)
        trace_mark(version);
    trim_committed();
}

const struct ftrma_mark *ftrma_mark_demand(uint64_t number)
{
    struct ftrma_tape *t = &ftrma_tape;
    struct ftrma_mark *mark = &t->slot->demand_marks[number & 1];
    set_mark(mark, 0, 0, t->events + 1, ftrma_mix(t->hash, t->signature));
    return mark;
}

void ftrma_note_first(void)
{
    struct ftrma_slot *s = ftrma_tape.slot;
    struct ftrma_mark *marks[] = {&s->marks[0], &s->marks[1], &s->demand_marks[0],
                                  &s->demand_marks[1]};
    for (int i = 0; i < 4; i++)
        if (marks[i]->events + 1 == ftrma_tape.first)
            marks[i]->first_hash = ftrma_tape.hash;
}

void ftrma_log_prefix(void)
{
    struct ftrma_tape *t = &ftrma_tape;
    if (!t->on || t->mode != FTRMA_LIVE)
        return;
    struct ftrma_slot *s = t->slot;
    const struct ftrma_mark *newest = mark_of(s, LOAD(&ftrma_ctl->commit) >> 1);
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

static void blame_all(uint32_t why, const char *call)
{
    struct ftrma_tape *t = &ftrma_tape;
    if (!t->on || ftrma_stale())
        return;
    if (t->mode) {
        char words[128];
        snprintf(words, sizeof words, "its program calls %s, which a replay cannot repeat", call);
        ftrma_refuse(words);
        return;
    }
    for (int i = 0; i < 2; i++)
        blame(&t->slot->marks[i], why, call);
}

void ftrma_foreign(const char *call)
{
    blame_all(FTRMA_BROKEN_FOREIGN, call);
}

void ftrma_hold(const char *call)
{
    blame_all(FTRMA_BROKEN_HELD, call);
}

int ftrma_uncounted(void)
{
    if (ftrma_tape.slot->marks[0].broken & ftrma_tape.slot->marks[1].broken & FTRMA_BROKEN_FOREIGN)
        return 0;
    ftrma_foreign("MPI from a second thread");
    return 1;
}

int ftrma_mark_broken(int slot, uint64_t version, const char **call)
{
    struct ftrma_mark *mark = mark_of(&ftrma_ctl->slots[slot], version);
    *call = mark ? mark->call : "";
    if (!mark)
        return -1;
    return (int)(ftrma_demand_of(slot, version) ? mark->broken & ~(uint32_t)FTRMA_BROKEN_DEMAND
                                                : mark->broken);
}

void ftrma_results_lost(int slot)
{
    for (int i = 0; i < 2; i++)
        ftrma_ctl->slots[slot].marks[i].broken |= FTRMA_BROKEN_CHECKSUM;
    STORE(&ftrma_ctl->slots[slot].demand, 0);
    STORE(&ftrma_ctl->wanted, 1);
}
