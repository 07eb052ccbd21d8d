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
#include "event_clock.h"

#define PAGE 4096u
#define LEAST_CHUNKS 8u
#define MOST_CHUNK (1u << 20)
#define CHUNKS 64u /* at least so many if the budget allows it, so that trimming frees some */

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

/* Open a new file of a log, of [in] *size bytes, and allocate its memory; or open one that exists:
   [out] its size. Returns the descriptor, or -errno; a file that cannot be made is removed. */
static int open_file(const char *path, int create, uint64_t *size)
{
    int fd = ftrma_open(path, O_RDWR | (create ? O_CREAT : 0));
    if (fd < 0)
        return fd;
    struct stat st;
    int error = create ? posix_fallocate(fd, 0, (off_t)*size) : fstat(fd, &st) ? errno : 0;
    if (!create && !error)
        *size = (uint64_t)st.st_size;
    if (!error && !*size)
        error = EINVAL;
    if (!error)
        return fd;
    close(fd);
    if (create)
        unlink(path);
    return -error;
}

/* Make the log in a file that is mapped, and give the file its name once it is whole. Returns 0 or
   an errno value. */
static int make_log(struct ftrma_log *log, uint64_t size, const char *room, const char *path)
{
    lay_out(log, size);
    ftrma_chunks_empty(log);
    log->magic = FTRMA_LOG_MAGIC;
    return rename(room, path) ? errno : 0;
}

/* Map a log, or make one. A new one takes over the memory that the logs of an ended launch had
   (room-S): allocating it anew costs 10 to 40 ms. */
int ftrma_log_map(int slot, int create, uint64_t budget_bytes, struct ftrma_log **log)
{
    char path[4096], room[4096];
    if (snprintf(path, sizeof path, "%s/log-%d", ftrma_directory, slot) >= (int)sizeof path
        || snprintf(room, sizeof room, "%s/room-%d", ftrma_directory, slot) >= (int)sizeof room)
        return -ENAMETOOLONG;
    uint64_t size = budget_bytes / PAGE * PAGE;
    int fd = open_file(create ? room : path, create, &size);
    if (fd < 0)
        return fd;
    int flags = MAP_SHARED | (create ? MAP_POPULATE : 0);
    struct ftrma_log *p = mmap(NULL, size, PROT_READ | PROT_WRITE, flags, fd, 0);
    int error = p == MAP_FAILED ? errno : 0;
    close(fd);
    if (!error) {
        *log = p;
        error = create ? make_log(p, size, room, path) : p->magic == FTRMA_LOG_MAGIC ? 0 : EINVAL;
        if (error)
            munmap(p, size);
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
    struct ftrma_slot *slot = ftrma_event_clock.slot;
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

/* Find the link to a chunk in the chain that begins with `link`; NULL if the chunk is not in it. */
static uint32_t *find_chunk(uint32_t *link, uint32_t chunk)
{
    while (*link && *link != chunk)
        link = &ftrma_log->chunk[*link - 1].next;
    return *link ? link : NULL;
}

/* Free the log before the spot. In the result log the prefix stays, since every attempt needs it. A
   spot in an empty log (chunk 0) has nothing before it. */
void ftrma_log_trim(int log, struct ftrma_spot to)
{
    uint32_t *link = &ftrma_log->head[log], prefix = ftrma_event_clock.slot->prefix.chunk;
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

/* Invalidate this log's spots of all marks so far: the records after them are gone. */
void ftrma_log_lose_spots(int log)
{
    for (int i = 0; i < 2; i++)
        ftrma_event_clock.slot->marks[i].spot[log] = (struct ftrma_spot){0};
}

/* The mark in force, up to which the logs can be freed while no slot is replayed, since nobody
   reads them then. NULL during a replay, or if there is no such mark. */
struct ftrma_mark *ftrma_log_free_to_trim(void)
{
    int quiet = ftrma_event_clock.mode == FTRMA_LIVE && !LOAD(&ftrma_ctl->replays);
    return quiet ? ftrma_mark_of(ftrma_event_clock.slot, LOAD(&ftrma_ctl->commit) >> 1) : NULL;
}

/* Free the older mark's records: nobody needs them once the newer version is committed. */
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
        ftrma_event_clock.slot->marks[i].spot[FTRMA_RESULTS] = to;
    ftrma_log_note_use();
}

uint64_t ftrma_results_bytes(void)
{
    uint64_t chunks = 0;
    uint32_t prefix = ftrma_event_clock.slot->prefix.chunk;
    uint32_t next = prefix ? ftrma_log->chunk[prefix - 1].next : ftrma_log->head[FTRMA_RESULTS];
    for (; next; next = ftrma_log->chunk[next - 1].next)
        chunks++;
    return chunks * ftrma_log->chunk_bytes;
}

/* ---- reading -------------------------------------------------------------------------------- */

/* A bit that has changed in a size or a kind would lead a reader astray. */
int ftrma_is_record(const struct ftrma_record *record, uint32_t room)
{
    return room >= sizeof *record && record->kind >= FTRMA_RECORD_PUT
           && record->kind <= FTRMA_RECORD_REPEAT && ftrma_record_size(record->bytes) <= room;
}

static const struct ftrma_record *give_up(struct ftrma_reader *reader)
{
    reader->damaged = 1;
    return NULL;
}

const struct ftrma_record *ftrma_log_next(struct ftrma_reader *reader)
{
    const struct ftrma_log *log = reader->log;
    if (reader->damaged)
        return NULL;
    if (!reader->at.chunk)
        reader->at = (struct ftrma_spot){reader->head, 0};
    while (reader->at.chunk) {
        uint32_t chunk = reader->at.chunk - 1, fill;
        if (chunk >= log->nchunks || reader->passed >= log->nchunks
            || (fill = LOAD(&log->chunk[chunk].fill)) > log->chunk_bytes)
            return give_up(reader);
        if (reader->at.at < fill) {
            const struct ftrma_record *record = (const struct ftrma_record *)(const void *)(
                ftrma_chunk_data(log, chunk) + reader->at.at);
            if (!ftrma_is_record(record, fill - reader->at.at))
                return give_up(reader);
            reader->at.at += (uint32_t)ftrma_record_size(record->bytes);
            return record;
        }
        if (!log->chunk[chunk].next)
            return NULL;
        reader->at = (struct ftrma_spot){log->chunk[chunk].next, 0};
        reader->passed++;
    }
    return NULL;
}
