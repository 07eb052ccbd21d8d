/* The file of a slot's logs: its chunks, trimming, reading.  See chunks.h. */
#define _GNU_SOURCE
#include "chunks.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "control.h"
#include "tape.h"

#define PAGE 4096u
#define LEAST_CHUNKS 8u
#define MOST_CHUNK (1u << 20)
#define CHUNKS 64u /* at least so many where the budget allows it, so that trimming frees some */

struct ftrma_log *ftrma_log;
struct ftrma_pen ftrma_pens[2];

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

void ftrma_chunks_empty(struct ftrma_log *log)
{
    log->head[0] = log->head[1] = 0;
    log->used = 0;
    log->free = 1;
    for (uint32_t i = 0; i < log->nchunks; i++)
        log->chunk[i] = (struct ftrma_chunk){.next = i + 1 < log->nchunks ? i + 2 : 0};
    ftrma_pens[0] = ftrma_pens[1] = (struct ftrma_pen){0};
}

/* It gets its name when it is whole.  Memory that the logs of an ended launch had is taken over: to
   take it anew costs 10 to 40 ms. */
int ftrma_log_map(int slot, int create, uint64_t budget_bytes, struct ftrma_log **log)
{
    char path[4096], room[4096];
    if (snprintf(path, sizeof path, "%s/log-%d", ftrma_directory, slot) >= (int)sizeof path
        || snprintf(room, sizeof room, "%s/room-%d", ftrma_directory, slot) >= (int)sizeof room)
        return -ENAMETOOLONG;
    int fd = create ? ftrma_open(room, O_RDWR | O_CREAT) : ftrma_open(path, O_RDWR);
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
    if (!error) {
        *log = p;
        if (create) {
            lay_out(*log, size);
            ftrma_chunks_empty(*log);
            (*log)->magic = FTRMA_LOG_MAGIC;
            error = rename(room, path) ? errno : 0;
        } else if ((*log)->magic != FTRMA_LOG_MAGIC)
            error = EINVAL;
        if (error)
            munmap(*log, size);
    }
    if (error && create)
        unlink(room);
    return -error;
}

int ftrma_log_view(int slot, struct ftrma_log **log)
{
    return ftrma_log_map(slot, 0, 0, log);
}

void ftrma_log_close(struct ftrma_log *log)
{
    munmap(log, log->file_bytes);
}

/* ---- chunks --------------------------------------------------------------------------------- */

void ftrma_log_note_use(void)
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
void ftrma_log_trim(int log, struct ftrma_spot to)
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
void ftrma_log_lose_spots(int log)
{
    for (int i = 0; i < 2; i++)
        ftrma_tape.slot->marks[i].spot[log] = (struct ftrma_spot){0};
}

/* Nobody reads the logs: what is before a mark in force can go. */
struct ftrma_mark *ftrma_log_free_to_trim(void)
{
    int quiet = ftrma_tape.mode == FTRMA_LIVE && !LOAD(&ftrma_ctl->replays);
    return quiet ? ftrma_mark_of(ftrma_tape.slot, LOAD(&ftrma_ctl->commit) >> 1) : NULL;
}

/* The older mark's records are not needed any more once the newer version is committed. */
void ftrma_log_trim_committed(void)
{
    struct ftrma_mark *mark = ftrma_log_free_to_trim();
    if (mark) {
        ftrma_log_trim(FTRMA_PUTS, mark->spot[FTRMA_PUTS]);
        ftrma_log_trim(FTRMA_RESULTS, mark->spot[FTRMA_RESULTS]);
        ftrma_log_note_use();
    }
}

void ftrma_trim_results(struct ftrma_spot to)
{
    ftrma_log_trim(FTRMA_RESULTS, to);
    for (int i = 0; i < 2; i++)
        ftrma_tape.slot->marks[i].spot[FTRMA_RESULTS] = to;
    ftrma_log_note_use();
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
