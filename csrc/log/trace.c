/* Writing the trace. A record is one write to a file of this process, or to a stream that somebody
 * reads, so that all events that ended before a SIGKILL are in the trace. Tracing is made for
 * inspection, not for speed. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stddef.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "control.h"
#include "event_clock.h"
#include "event_kinds.h"
#include "trace.h"
#include "window.h"

_Static_assert(sizeof(struct ftrma_trace_record) == 144, "the reader relies on it");

struct ftrma_trace_record ftrma_trace;
int ftrma_tracing;

/* Shared memory that a trace leaves to the job, and bytes between two checks of it. */
#define RESERVE (64u << 20)
#define LOOK (1u << 16)

static int file = -1, own_slot = -1;
static int bounded;    /* the file lies in shared memory; else it is a stream */
static size_t written; /* bytes since the last check */
static pthread_mutex_t writing = PTHREAD_MUTEX_INITIALIZER;

int ftrma_trace_open(const char *path)
{
    int fd = ftrma_open(path, O_WRONLY | O_APPEND | O_CREAT);
    if (fd < 0)
        return fd;
    ftrma_trace_to(fd);
    return 0;
}

void ftrma_trace_to(int fd)
{
    struct stat st;
    file = fd;
    bounded = fd >= 0 && !fstat(fd, &st) && S_ISREG(st.st_mode);
    written = LOOK;
    ftrma_tracing = fd >= 0;
}

static int has_room(void)
{
    struct statvfs room;
    if (fstatvfs(file, &room) || !room.f_blocks) /* it has no blocks if there is no limit */
        return 1;
    uint64_t whole = (uint64_t)room.f_blocks * room.f_frsize;
    return (uint64_t)room.f_bavail * room.f_frsize >= (whole / 8 < RESERVE ? whole / 8 : RESERVE);
}

/* Stop writing. The file is made unwritable, which tells its reader that records are missing. */
static void stop(void)
{
    ftrma_tracing = 0;
    if (bounded)
        (void)fchmod(file, S_IRUSR);
}

/* Write bytes. A stream may take a record in parts. If room lacks, the trace ends, but not the
   program. */
static void append(const char *bytes, size_t n)
{
    pthread_mutex_lock(&writing);
    written += n;
    if (bounded && written >= LOOK && ftrma_tracing) {
        written = 0;
        if (!has_room())
            stop();
    }
    for (ssize_t done = 0; n && ftrma_tracing; bytes += done, n -= (size_t)done) {
        done = write(file, bytes, n);
        if (done < 0 && errno != EINTR)
            stop();
        done = done < 0 ? 0 : done;
    }
    pthread_mutex_unlock(&writing);
}

void ftrma_trace_write(struct ftrma_trace_record *record)
{
    if (ftrma_my_role(&own_slot) != FTRMA_ROLE_SLOT)
        own_slot = -1;
    record->slot = own_slot;
    record->proc = ftrma_me;
    record->entry = LOAD(&ftrma_ctl->attempt);
    record->end_ns = ftrma_now_ns();
    if (!record->begin_ns)
        record->begin_ns = record->end_ns;
    append((const char *)record, sizeof *record);
}

/* Record that the program has made calls since the last event that the trace does not follow. */
static void write_messages(void)
{
    struct ftrma_trace_record record = {
        .begin_ns = ftrma_trace.end_ns, .what = FTRMA_WHAT_MESSAGE, .window = -1, .target = -1,
        .event = ftrma_event_clock.events, .clock = ftrma_event_clock.clock,
        .value = {ftrma_event_clock.unfollowed, 0}};
    ftrma_event_clock.unfollowed = 0;
    ftrma_trace_write(&record);
}

void ftrma_trace_begin(int what, int window)
{
    const struct window *w;
    if (unlikely(ftrma_event_clock.unfollowed))
        write_messages();
    ftrma_trace = (struct ftrma_trace_record){.begin_ns = ftrma_now_ns(), .what = (uint32_t)what,
                                              .window = -1, .target = -1};
    for (int i = 0; window >= 0 && (w = ftrma_window_number(i)); i++)
        if (w->in_use && w->ordinal == window)
            ftrma_trace.window = ftrma_trace_window(w->name_number);
}

void ftrma_trace_end(int mode, uint64_t event, uint64_t clock)
{
    if (!ftrma_kind_is((int)ftrma_trace.what, FTRMA_ACCESS))
        ftrma_trace.clock = clock;
    ftrma_trace.mode = (uint32_t)mode;
    ftrma_trace.event = event;
    ftrma_trace_write(&ftrma_trace);
}

void ftrma_trace_beside(int what, int target, uint64_t event)
{
    if (likely(!ftrma_tracing) || !ftrma_counts())
        return;
    struct ftrma_trace_record record = ftrma_trace;
    record.what = (uint32_t)what;
    record.target = target;
    record.event = event;
    record.mode = (uint32_t)ftrma_event_clock.mode;
    record.begin_ns = 0;
    ftrma_trace_write(&record);
}

void ftrma_trace_note(int what, uint64_t value, uint64_t other)
{
    struct ftrma_trace_record record = {.what = (uint32_t)what, .window = -1, .target = -1,
                                        .event = ftrma_event_clock.events,
                                        .clock = ftrma_event_clock.clock,
                                        .value = {value, other}};
    if (ftrma_tracing)
        ftrma_trace_write(&record);
}

enum { BEFORE = offsetof(struct ftrma_trace_record, seq),
       PIECE = sizeof(struct ftrma_trace_record) - BEFORE };
_Static_assert(FTRMA_TRACE_TEXT % PIECE == 0, "the longest text fills its pieces");

void ftrma_trace_text(struct ftrma_trace_record *head, const char *text, size_t n)
{
    char pieces[FTRMA_TRACE_TEXT / PIECE * sizeof *head] = {0}, *to = pieces;
    n = n < FTRMA_TRACE_TEXT ? n : FTRMA_TRACE_TEXT;
    head->begin_ns = head->end_ns = ftrma_now_ns();
    head->at = 0;
    head->bytes = n;
    do {
        size_t part = n < PIECE ? n : PIECE;
        memcpy(to, head, BEFORE);
        memcpy(to + BEFORE, text, part);
        to += sizeof *head;
        text += part;
        n -= part;
        head->at++;
    } while (n);
    append(pieces, (size_t)(to - pieces));
}
