/* Exchanges: all slots show each other some bytes, and wait for each other.
 *
 * The file `exchange` has two areas for each slot.  In exchange number k a slot writes its bytes to
 * its own area k & 1, stores k as its arrival word, waits until all slots' words are at least k, and
 * reads what it wants from the others' areas.  Two areas are enough: nobody writes for k + 2 before
 * everybody has arrived at k + 1 and so has read what was written for k.
 *
 * Words have one writer each and hold absolute values, so that an exchange that was interrupted can
 * be done again: the same bytes to the same place, the same word.  That is what lets survivors wait
 * on while a slot is replaced; the library's own collectives would have to be started over by all.
 *
 * Each exchange is one event (event.h).  What is learned in it passes through ftrma_learn, the same
 * code for an exchange that takes place and for one that is answered from the log.  Data larger than
 * an area takes several exchanges, one for each chunk of the slots' streams.
 */
#define _GNU_SOURCE
#include "exchange.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "event.h"
#include "types.h"
#include "window.h"

/* Bytes of an area. Chosen: together 8 MiB, which stay in a cache; an area is a page at least. */
#define AREAS_BYTES ((size_t)4 << 20)
#define AREA_LEAST ((size_t)4 << 10)
#define AREA_MOST ((size_t)256 << 10)
#define LINE ((size_t)64)

/* A waiter looks this often for the others before it gives the library its turn too. */
#define PATIENCE 64

int ftrma_slot = -1, ftrma_nslots;
uint64_t ftrma_exchanges;
static char *areas;
static size_t area_bytes;

static const char *const names[] = {
    "Win.Allocate or Win.Create", "Barrier", "Bcast", "Gather", "Gatherv", "Scatter", "Scatterv",
    "Allgather", "Allgatherv", "Alltoall", "Alltoallv", "Reduce", "Allreduce", "Scan", "Exscan",
    "Reduce_scatter", "Reduce_scatter_block"};

/* ---- areas ---------------------------------------------------------------------------------- */

static int map_areas(size_t file_bytes)
{
    char path[4096];
    if (snprintf(path, sizeof path, "%s/exchange", ftrma_directory) >= (int)sizeof path)
        return -ENAMETOOLONG;
    /* Whoever comes first makes it; all make the same. */
    int fd = ftrma_open(path, O_RDWR | O_CREAT);
    if (fd < 0)
        return fd;
    /* Taking the memory now turns a full /dev/shm into an error here instead of a signal later. */
    int error = posix_fallocate(fd, 0, (off_t)file_bytes);
    void *p = MAP_FAILED;
    if (!error) {
        p = mmap(NULL, file_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        error = p == MAP_FAILED ? errno : 0;
    }
    close(fd);
    areas = error ? NULL : p;
    return -error;
}

int ftrma_exchange_open(size_t *room)
{
    if (unlikely(!areas)) {
        size_t n = ftrma_ctl->nslots, bytes = AREAS_BYTES / n / LINE * LINE;
        bytes = bytes < AREA_LEAST ? AREA_LEAST : bytes > AREA_MOST ? AREA_MOST : bytes;
        int error = map_areas(2 * n * bytes);
        if (error)
            return ftrma_window_fail(NULL, MPI_ERR_NO_MEM, "no memory for collective calls (%s): "
                                     "free space in /dev/shm", strerror(-error));
        area_bytes = bytes;
        ftrma_nslots = (int)n;
        ftrma_my_role(&ftrma_slot); /* a slot's process keeps its slot */
    }
    *room = area_bytes - sizeof(struct ftrma_area);
    return MPI_SUCCESS;
}

static struct ftrma_area *area(int slot, uint64_t number)
{
    return (struct ftrma_area *)(void *)(areas + (2 * (size_t)slot + (number & 1)) * area_bytes);
}

const struct ftrma_area *ftrma_deposit(const struct ftrma_transfer *t, int slot, int *rc)
{
    const struct ftrma_area *a = area(slot, t->number);
    *rc = MPI_SUCCESS;
    if (likely(a->collective == (uint64_t)t->collective && a->round == t->round))
        return a;
    size_t other = (size_t)a->collective;
    *rc = ftrma_window_fail(NULL, MPI_ERR_OTHER, "slot %d is in %s where slot %d is in %s%s: "
                            "collective calls come in the same order, with the same amounts of "
                            "data, on all slots", slot,
                            other < sizeof names / sizeof *names ? names[other] : "no call",
                            ftrma_slot, names[t->collective],
                            a->collective == (uint64_t)t->collective ? " with less or more data" : "");
    return NULL;
}

/* ---- one exchange --------------------------------------------------------------------------- */

static int all_arrived(uint64_t number, int *first)
{
    while (*first < ftrma_nslots
           && __atomic_load_n(&ftrma_ctl->slots[*first].exchange, __ATOMIC_SEQ_CST) >= number)
        ++*first;
    return *first == ftrma_nslots;
}

/* Arrive, then wait for the others.  Whoever finds all arrived as it arrives rings: the last one
   does in any case. */
static int meet(uint64_t number)
{
    struct ftrma_bell *bell = &ftrma_ctl->exchange_bell;
    int first = 0;
    STORE(&ftrma_ctl->slots[ftrma_slot].exchange, number);
    if (all_arrived(number, &first)) {
        if (ftrma_nslots > 1)
            ftrma_wake(bell);
        return MPI_SUCCESS;
    }
    uint32_t seen = LOAD(&bell->word);
    for (unsigned step = 0; !all_arrived(number, &first); seen = LOAD(&bell->word)) {
        if (ftrma_unwinding())
            return ftrma_code_unwind;
        /* Another slot may wait for a message that this one has begun to send. */
        if (step >= PATIENCE)
            ftrma_progress();
        ftrma_wait_step(&step, bell, seen);
    }
    return MPI_SUCCESS;
}

int ftrma_learn(const struct ftrma_transfer *t, void *to, const void *from, size_t n)
{
    if (t->answered)
        return ftrma_result_read(to, n);
    memcpy(to, from, n);
    ftrma_result_log(to, n);
    return MPI_SUCCESS;
}

/* Copy bytes [lo, hi) of the own stream. */
static void copy_stream(const struct ftrma_transfer *t, size_t lo, size_t hi, char *to)
{
    size_t begin = 0;
    for (int i = 0; i < t->nout && begin < hi; begin += t->out[i++].bytes) {
        size_t end = begin + t->out[i].bytes, a = lo > begin ? lo : begin, b = hi < end ? hi : end;
        if (a < b)
            memcpy(to + (a - lo), t->out[i].at + (a - begin), b - a);
    }
}

/* At most 16 words, spread over the chunk and with both of its ends: enough to notice that a
   program that should be deterministic is not, for the price of a few cache lines. */
static uint64_t sampled(uint64_t h, const struct ftrma_transfer *t, size_t lo, size_t hi)
{
    hi = hi < t->bytes ? hi : t->bytes;
    size_t n = hi > lo ? hi - lo : 0, words = n / sizeof h, step = words > 16 ? words / 16 : 1;
    for (size_t i = 0; i < words; i += step) {
        uint64_t word;
        copy_stream(t, lo + i * sizeof word, lo + (i + 1) * sizeof word, (char *)&word);
        h = ftrma_mix(h, word);
    }
    uint64_t last = 0;
    size_t tail = n < sizeof last ? n : sizeof last;
    copy_stream(t, hi - tail, hi, (char *)&last);
    return ftrma_mix(h, last);
}

static int exchange(struct ftrma_transfer *t, size_t lo, size_t hi)
{
    uint64_t h = ftrma_mix(ftrma_mix((uint64_t)t->collective, t->round), t->detail);
    h = ftrma_mix(ftrma_mix(h, t->bytes), t->expected);
    if (t->sample)
        h = sampled(h, t, lo, hi);
    int rc = ftrma_sync_begin(FTRMA_WHAT_COLLECTIVE, -1, t->root, h);
    if (rc != 0 && rc != 1)
        return rc;
    t->answered = rc;
    t->number = ++ftrma_exchanges;
    if (!t->answered) {
        struct ftrma_area *a = area(ftrma_slot, t->number);
        a->collective = (uint64_t)t->collective;
        a->round = t->round;
        a->bytes = t->bytes;
        a->rounds = t->rounds;
        copy_stream(t, lo, hi, a->data);
        rc = meet(t->number);
        if (rc)
            return rc;
    }
    rc = t->deliver ? t->deliver(t, lo, hi) : MPI_SUCCESS;
    if (!rc)
        ftrma_event_end();
    return rc;
}

/* ---- transfers ------------------------------------------------------------------------------ */

/* A unit takes `split` rounds, unless it is smaller than a chunk. */
int ftrma_transfer_run(struct ftrma_transfer *t)
{
    size_t room;
    int rc = ftrma_exchange_open(&room);
    size_t unit = t->unit ? t->unit : room, split = (unit + room - 1) / room;
    t->bytes = 0;
    for (int i = 0; i < t->nout; i++)
        t->bytes += t->out[i].bytes;
    size_t most = t->expected > t->bytes ? t->expected : t->bytes;
    t->rounds = most ? (most + unit - 1) / unit * split : 1;
    for (t->round = 0; !rc && t->round < t->rounds; t->round++) {
        size_t part = t->round % split * room, lo = t->round / split * unit + part;
        size_t hi = lo + (unit - part < room ? unit - part : room);
        rc = exchange(t, lo, hi);
    }
    return rc;
}

struct gathering {
    char *all;
    size_t bytes;
};

static int gather(struct ftrma_transfer *t, size_t lo, size_t hi)
{
    const struct gathering *g = t->user;
    int rc = MPI_SUCCESS;
    hi = hi < g->bytes ? hi : g->bytes;
    for (int s = 0; s < ftrma_nslots && !rc; s++) {
        if (s == ftrma_slot)
            continue;
        const struct ftrma_area *a = t->answered ? NULL : ftrma_deposit(t, s, &rc);
        if (!rc)
            rc = ftrma_learn(t, g->all + (size_t)s * g->bytes + lo, a ? a->data : NULL, hi - lo);
    }
    return rc;
}

int ftrma_gather_all(const void *mine, size_t bytes, void *all)
{
    struct ftrma_piece out = {(char *)(uintptr_t)mine, bytes};
    struct gathering g = {all, bytes};
    struct ftrma_transfer t = {.collective = FTRMA_GATHER_ALL, .root = -1, .out = &out, .nout = 1,
                               .expected = bytes, .deliver = gather, .user = &g};
    int rc = ftrma_transfer_run(&t);
    if (!rc)
        memcpy((char *)all + (size_t)ftrma_slot * bytes, mine, bytes);
    return rc;
}
