/* Mail: messages, shared words and deaths in one order, for a framework that is told of deaths.
 *
 * One file per node has all of this. Each ordered pair of processes has a ring of its own, with one
 * writer and one reader. A record becomes visible by the store of its end, so a death of the writer
 * leaves it whole or absent, and all that the dead have written can still be read. A ring that is
 * full refuses a message; no writer waits for a reader.
 *
 * All processes that notice a death write to the list of deaths, by compare-and-swap at its first
 * free place. So all see the deaths in one order, and each death once. The number of deaths is the
 * *generation*.
 *
 * A process that changes something for another process rings the other's bell. A waiter reads its
 * bell, then looks for changes, then waits until the bell has another value.
 *
 * Over several nodes each node has such a file, and a process writes to those of other nodes by
 * their agents (ftrma/fabric/nodes_mail.py): a ring lies on the node of its reader, and the words
 * on the node of slot 0's process are the valid ones. That process alone writes the lists of deaths
 * then.
 */
#define _GNU_SOURCE
#include "mail.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "control.h"

#define MAGIC 0x4654524d4d410002ull /* "FTRMMA", layout 2 */
#define LINE 128
#define SKIP UINT32_MAX /* in place of a record's length: go on at the beginning of the ring */
/* Time for which a waiter polls before it sleeps. It is short, since others may need the processor
   meanwhile. */
#define SPIN_NS 50000

struct place {
    struct ftrma_bell bell, spare; /* an agent rings two bells; nobody sleeps at the second one */
    uint64_t dead, joined;
    char pad[LINE - 2 * sizeof(struct ftrma_bell) - 16];
};

/* Both ends count all bytes that have ever passed; each has cache lines of its own. */
struct ring {
    uint64_t written;
    char pad1[LINE - 8];
    uint64_t read;
    char pad2[LINE - 8];
};

struct record {
    uint32_t bytes, kind; /* of the data that follows, which is padded to 8 bytes */
};

struct header {
    uint64_t magic, ring_bytes, words;
    uint32_t procs, pad;
    uint64_t generation;
    uint64_t started; /* number of processes that were started later; whoever starts them writes
                         it */
    uint64_t deaths[FTRMA_MAX_PROCS]; /* proc + 1 in the order of their deaths; 0 ends the list */
};

struct ftrma_mail {
    struct header *h;
    struct place *place; /* [proc] */
    struct ring *ring;   /* [to * procs + from] */
    char *data;
    uint64_t *words;
    uint64_t file_bytes;
    int me, next;        /* the source to look at first */
    int source;          /* source of the message that is being taken; -1: none is */
    uint64_t after;      /* its end */
};

/* The mail of the framework, in which the watching thread tells deaths. */
static struct ftrma_mail *of_job;

static uint64_t rounded(uint64_t bytes, uint64_t to)
{
    return (bytes + to - 1) / to * to;
}

/* Find the parts of a mail file; [out] its size. */
static void lay_out(struct ftrma_mail *m, char *at, uint32_t procs, uint64_t ring_bytes,
                    uint64_t words)
{
    uint64_t pairs = (uint64_t)procs * procs, offset = rounded(sizeof *m->h, LINE);
    m->h = (struct header *)at;
    m->place = (struct place *)(at + offset);
    offset += procs * sizeof *m->place;
    m->ring = (struct ring *)(at + offset);
    offset = rounded(offset + pairs * sizeof *m->ring, 4096);
    m->data = at + offset;
    offset += pairs * ring_bytes;
    m->words = (uint64_t *)(at + offset);
    m->file_bytes = offset + words * sizeof *m->words;
}

int ftrma_mail_create(const char *path, int procs, uint64_t ring_bytes, uint64_t words)
{
    struct ftrma_mail m = {0};
    if (procs < 1 || procs > FTRMA_MAX_PROCS || ring_bytes % 4096 || !ring_bytes)
        return -EINVAL;
    int fd = ftrma_open(path, O_RDWR | O_CREAT | O_EXCL);
    if (fd < 0)
        return fd;
    lay_out(&m, NULL, (uint32_t)procs, ring_bytes, words);
    uint64_t head_bytes = (uint64_t)(uintptr_t)m.data;
    int error = ftruncate(fd, (off_t)m.file_bytes) ? -errno : 0;
    /* The rings' memory is allocated at their first use; the rest must be there now. */
    if (!error && (error = -posix_fallocate(fd, 0, (off_t)head_bytes)) == 0) {
        struct header h = {MAGIC, ring_bytes, words, (uint32_t)procs, 0, 0, 0, {0}};
        error = pwrite(fd, &h, sizeof h, 0) == sizeof h ? 0 : -EIO;
    }
    close(fd);
    if (error)
        unlink(path);
    return error;
}

void ftrma_mail_find(int procs, uint64_t ring_bytes, uint64_t words, struct ftrma_mail_spots *spots)
{
    struct ftrma_mail m;
    lay_out(&m, NULL, (uint32_t)procs, ring_bytes, words);
    uint64_t place = (uint64_t)(uintptr_t)m.place, ring = (uint64_t)(uintptr_t)m.ring;
    *spots = (struct ftrma_mail_spots){
        .generation = offsetof(struct header, generation),
        .deaths = offsetof(struct header, deaths),
        .bells = place + offsetof(struct place, bell),
        .dead = place + offsetof(struct place, dead),
        .joined = place + offsetof(struct place, joined),
        .place_bytes = sizeof *m.place,
        .written = ring + offsetof(struct ring, written),
        .read = ring + offsetof(struct ring, read),
        .pair_bytes = sizeof *m.ring,
        .data = (uint64_t)(uintptr_t)m.data,
        .words = (uint64_t)(uintptr_t)m.words,
        .file_bytes = m.file_bytes};
}

int ftrma_mail_open(const char *path, int me, struct ftrma_mail **mail)
{
    int fd = ftrma_open(path, O_RDWR);
    if (fd < 0)
        return fd;
    struct header h;
    struct stat st;
    int error = pread(fd, &h, sizeof h, 0) == sizeof h && !fstat(fd, &st) ? 0 : -EINVAL;
    struct ftrma_mail *m = error ? NULL : calloc(1, sizeof *m);
    if (!error && !m)
        error = -ENOMEM;
    if (!error) {
        lay_out(m, NULL, h.procs, h.ring_bytes, h.words);
        if (h.magic != MAGIC || h.procs > FTRMA_MAX_PROCS || me < 0 || me >= (int)h.procs
            || m->file_bytes != (uint64_t)st.st_size)
            error = -EINVAL;
    }
    void *at = error ? NULL : mmap(NULL, m->file_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (!error && at == MAP_FAILED)
        error = -errno;
    close(fd);
    if (error) {
        free(m);
        return error;
    }
    lay_out(m, at, h.procs, h.ring_bytes, h.words);
    m->me = me;
    m->source = -1;
    *mail = m;
    return 0;
}

/* ---- bells ------------------------------------------------------------------------------------ */

static void ring_bell(struct ftrma_mail *m, int proc)
{
    ftrma_wake(&m->place[proc].bell);
}

static void ring_all(struct ftrma_mail *m)
{
    for (uint32_t p = 0; p < m->h->procs; p++)
        ring_bell(m, (int)p);
}

void ftrma_mail_ring(struct ftrma_mail *m, int to)
{
    ring_bell(m, to);
}

uint32_t ftrma_mail_bell(const struct ftrma_mail *m)
{
    return LOAD(&m->place[m->me].bell.word);
}

void ftrma_mail_wait(struct ftrma_mail *m, uint32_t seen, uint64_t timeout_us)
{
    struct ftrma_bell *bell = &m->place[m->me].bell;
    uint64_t begin = ftrma_now_ns(), most_ns = timeout_us * 1000, spent_ns = 0;
    while (LOAD(&bell->word) == seen && spent_ns < most_ns && spent_ns < SPIN_NS) {
        sched_yield();
        spent_ns = ftrma_now_ns() - begin;
    }
    if (LOAD(&bell->word) != seen || spent_ns >= most_ns)
        return;
    ftrma_nap(bell, seen, most_ns - spent_ns, ftrma_awaits(FTRMA_WHAT_MESSAGE, -1));
}

/* ---- who comes later ---------------------------------------------------------------------------- */

void ftrma_mail_start(struct ftrma_mail *m, uint64_t started)
{
    STORE(&m->h->started, started);
    ring_all(m);
}

uint64_t ftrma_mail_started(const struct ftrma_mail *m)
{
    return LOAD(&m->h->started);
}

void ftrma_mail_join(struct ftrma_mail *m)
{
    STORE(&m->place[m->me].joined, 1);
    ring_all(m);
}

int ftrma_mail_joined(const struct ftrma_mail *m, int proc)
{
    return (int)LOAD(&m->place[proc].joined);
}

/* ---- deaths ----------------------------------------------------------------------------------- */

void ftrma_mail_note_death(struct ftrma_mail *m, int proc)
{
    struct header *h = m->h;
    uint64_t i = 0, its = (uint64_t)proc + 1;
    STORE(&m->place[proc].dead, 1);
    for (;; i++) {
        uint64_t found = 0;
        if (__atomic_compare_exchange_n(&h->deaths[i], &found, its, 0, __ATOMIC_SEQ_CST,
                                        __ATOMIC_SEQ_CST)
            || found == its)
            break;
    }
    uint64_t seen = LOAD(&h->generation);
    while (seen < i + 1 && !ftrma_cas(&h->generation, seen, i + 1))
        seen = LOAD(&h->generation);
    ring_all(m);
}

uint64_t ftrma_mail_generation(const struct ftrma_mail *m)
{
    return LOAD(&m->h->generation);
}

int ftrma_mail_death(const struct ftrma_mail *m, uint64_t number)
{
    return (int)LOAD(&m->h->deaths[number]) - 1;
}

int ftrma_mail_dead(const struct ftrma_mail *m, int proc)
{
    return (int)LOAD(&m->place[proc].dead);
}

/* 1 if each process that notices a death tells it. Over several nodes one process tells all deaths,
   in its order. */
static int told_here(void)
{
    return LOAD(&ftrma_ctl->nodes) == 1;
}

void ftrma_mail_attach(struct ftrma_mail *m)
{
    int index;
    STORE(&of_job, m);
    for (int p = 0; p < (int)ftrma_ctl->nprocs && told_here(); p++)
        if (LOAD(&ftrma_ctl->proc[p].state) == FTRMA_DEAD && !ftrma_ended_itself(p)
            && ftrma_role_of(ftrma_ctl, p, &index) != FTRMA_ROLE_CHECKSUM)
            ftrma_mail_note_death(m, p);
}

void ftrma_mail_note(int proc)
{
    struct ftrma_mail *m = LOAD(&of_job);
    if (m && told_here())
        ftrma_mail_note_death(m, proc);
}

void ftrma_mail_alarm(void)
{
    struct ftrma_mail *m = LOAD(&of_job);
    if (m)
        ring_bell(m, m->me);
}

/* ---- messages --------------------------------------------------------------------------------- */

uint64_t ftrma_mail_limit(const struct ftrma_mail *m)
{
    return m->h->ring_bytes / 2 - sizeof(struct record);
}

static char *ring_data(const struct ftrma_mail *m, uint64_t pair)
{
    return m->data + pair * m->h->ring_bytes;
}

int ftrma_mail_append(struct ftrma_mail *m, int to, uint32_t kind, const void *data, uint64_t bytes)
{
    if (to < 0 || to >= (int)m->h->procs)
        return -EINVAL;
    if (bytes > ftrma_mail_limit(m))
        return -EMSGSIZE;
    if (ftrma_mail_dead(m, to))
        return FTRMA_MAIL_DEAD;
    uint64_t pair = (uint64_t)to * m->h->procs + (uint64_t)m->me, size = m->h->ring_bytes;
    struct ring *ring = &m->ring[pair];
    uint64_t written = ring->written, need = rounded(sizeof(struct record) + bytes, 8);
    uint64_t at = written % size, skipped = at + need > size ? size - at : 0;
    if (written + skipped + need - LOAD(&ring->read) > size)
        return FTRMA_MAIL_FULL;
    if (skipped) {
        *(uint32_t *)(ring_data(m, pair) + at) = SKIP;
        at = 0;
    }
    struct record *record = (struct record *)(ring_data(m, pair) + at);
    *record = (struct record){(uint32_t)bytes, kind};
    memcpy(record + 1, data, bytes);
    STORE(&ring->written, written + skipped + need);
    ring_bell(m, to);
    return FTRMA_OK;
}

int ftrma_mail_holds(const struct ftrma_mail *m, int from)
{
    const struct ring *ring = &m->ring[(uint64_t)m->me * m->h->procs + (uint64_t)from];
    return LOAD(&ring->written) != ring->read;
}

int ftrma_mail_take(struct ftrma_mail *m, int *from, uint32_t *kind, const void **data,
                    uint64_t *bytes)
{
    int procs = (int)m->h->procs;
    for (int n = 0; n < procs; n++) {
        int source = (m->next + n) % procs;
        if (!ftrma_mail_holds(m, source))
            continue;
        uint64_t pair = (uint64_t)m->me * (uint64_t)procs + (uint64_t)source;
        uint64_t size = m->h->ring_bytes, read = m->ring[pair].read, at = read % size;
        if (*(uint32_t *)(ring_data(m, pair) + at) == SKIP) {
            read += size - at;
            at = 0;
        }
        struct record *record = (struct record *)(ring_data(m, pair) + at);
        *from = source;
        *kind = record->kind;
        *data = record + 1;
        *bytes = record->bytes;
        m->source = source;
        m->after = read + rounded(sizeof *record + record->bytes, 8);
        m->next = source + 1;
        if (ftrma_ctl)
            STORE(&ftrma_ctl->proc[m->me].mails, ftrma_ctl->proc[m->me].mails + 1);
        return 1;
    }
    return 0;
}

void ftrma_mail_release(struct ftrma_mail *m)
{
    if (m->source >= 0)
        STORE(&m->ring[(uint64_t)m->me * m->h->procs + (uint64_t)m->source].read, m->after);
    m->source = -1;
}

/* ---- words ------------------------------------------------------------------------------------ */

uint64_t *ftrma_mail_words(struct ftrma_mail *m, uint64_t *count)
{
    *count = m->h->words;
    return m->words;
}

uint64_t ftrma_word_add(uint64_t *word, uint64_t n)
{
    uint64_t value = *word + n;
    STORE(word, value);
    return value;
}

void ftrma_words_read(const uint64_t *words, uint64_t count, uint64_t *copy)
{
    for (uint64_t i = 0; i < count; i++)
        copy[i] = LOAD(words + i);
}

int ftrma_words_equal(const uint64_t *first, const uint64_t *second, uint64_t count)
{
    uint64_t copy[FTRMA_ROW_WORDS];
    if (count > FTRMA_ROW_WORDS)
        return 0;
    ftrma_words_read(first, count, copy);
    for (uint64_t i = 0; i < count; i++)
        if (LOAD(second + i) != copy[i])
            return 0;
    return 1;
}
