/* Exchanges: all members of a communicator show each other some bytes, and wait for each other.
 *
 * Its board (board.c) has two areas for each member. In exchange number k a member writes its bytes
 * to its own area k & 1, stores k as its arrival word, waits until all words are at least k, and
 * reads from the others' areas. Two areas are enough: nobody writes for k + 2 before all have
 * arrived at k + 1, and so have read the bytes of k.
 *
 * Each word has one writer, which stores the number of the exchange, so that an interrupted
 * exchange can be done again: the same bytes to the same place, the same word. So survivors can go
 * on waiting while a slot is replaced; with the library's own collectives all would have to start
 * over.
 *
 * Over several nodes each node has such a board. A member writes to its own board, puts these bytes
 * to those of the other nodes, and has its word raised there after them (far.c).
 *
 * Each exchange is one event (event.h). Bytes that are learned in it pass through ftrma_learn, for
 * an exchange that takes place and for one that is answered from the log. Data larger than an area
 * takes several exchanges, one for each chunk of the slots' streams.
 */
#define _GNU_SOURCE
#include "exchange.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "alarm.h"
#include "board.h"
#include "communicator.h"
#include "errors.h"
#include "event.h"
#include "far.h"
#include "results.h"
#include "types.h"
#include "window.h"

_Thread_local struct communicator *ftrma_on;

static const char *const names[] = {
    "Split, Win.Allocate or Win.Create", "Barrier", "Bcast", "Gather", "Gatherv", "Scatter", "Scatterv",
    "Allgather", "Allgatherv", "Alltoall", "Alltoallv", "Reduce", "Allreduce", "Scan", "Exscan",
    "Reduce_scatter", "Reduce_scatter_block", "the making of a communicator", "Free"};

/* ---- areas ---------------------------------------------------------------------------------- */

int ftrma_exchange_prepare(struct communicator *on, int find)
{
    int error = find ? ftrma_board_find(on) : ftrma_board_open(on);
    if (error || on->others)
        return error;
    on->others = malloc((size_t)on->spec.n * sizeof *on->others);
    if (!on->others)
        return -ENOMEM;
    on->nothers = ftrma_far_others(&on->spec, on->others);
    return 0;
}

int ftrma_world_open(void)
{
    return ftrma_exchange_prepare(&ftrma_world, 0);
}

int ftrma_exchange_open(struct communicator *on, size_t *room)
{
    if (ftrma_unwinding())
        return ftrma_code_unwind;
    int error = likely(on->board && on->others) || on->ghost ? 0 : ftrma_exchange_prepare(on, 0);
    if (unlikely(error))
        return ftrma_error_code(MPI_ERR_NO_MEM, "no memory for collective calls (%s): free "
                                "space in /dev/shm", strerror(-error));
    ftrma_on = on;
    *room = (on->board ? on->board->area_bytes : ftrma_area_bytes(&on->spec))
            - sizeof(struct ftrma_area);
    return MPI_SUCCESS;
}

static struct ftrma_area *area(int rank, uint64_t number)
{
    size_t at = (2 * (size_t)rank + (number & 1)) * ftrma_on->board->area_bytes;
    return (struct ftrma_area *)(void *)(ftrma_on->areas + at);
}

const struct ftrma_area *ftrma_deposit(const struct ftrma_transfer *t, int rank, int *rc)
{
    const struct ftrma_area *a = area(rank, t->number);
    *rc = MPI_SUCCESS;
    if (likely(a->collective == (uint64_t)t->collective && a->round == t->round))
        return a;
    size_t other = (size_t)a->collective;
    const int32_t *slots = ftrma_on->spec.slots;
    *rc = ftrma_error_code(MPI_ERR_OTHER, "slot %d is in %s where slot %d is in %s%s: "
                           "collective calls come in the same order, with the same amounts of "
                           "data, on all slots", slots[rank],
                           other < sizeof names / sizeof *names ? names[other] : "no call",
                           slots[ftrma_rank()], names[t->collective],
                           a->collective == (uint64_t)t->collective ? " with less or more data" : "");
    return NULL;
}

/* ---- one exchange --------------------------------------------------------------------------- */

/* 1 if all members from `*first` on have arrived; `except` is left out (-1: no member). */
static int all_arrived(uint64_t number, int except, int *first)
{
    while (*first < ftrma_ranks()
           && (*first == except
               || __atomic_load_n(&ftrma_on->words[*first].arrived, __ATOMIC_SEQ_CST) >= number))
        ++*first;
    return *first == ftrma_ranks();
}

/* 1 if there is a failure, for which this member leaves the exchange. If the members agree, all
   leave it or none. */
static int leaves(int agree)
{
    if (!agree || ftrma_stale())
        return ftrma_unwinding();
    return ftrma_pending() && ftrma_agree(ftrma_on, FTRMA_STAY_OUT) == FTRMA_STAY_OUT
           && ftrma_unwinding();
}

static int await(uint64_t number, int except, int agree)
{
    struct ftrma_bell *bell = &ftrma_on->board->bell;
    uint32_t seen = LOAD(&bell->word);
    int first = 0;
    for (unsigned step = 0; !all_arrived(number, except, &first); seen = LOAD(&bell->word)) {
        if (leaves(agree))
            return ftrma_code_unwind;
        /* Another slot may wait for a message that this slot has begun to send. */
        if (step >= FTRMA_PATIENCE)
            ftrma_progress();
        ftrma_wait_step(&step, bell, seen,
                        ftrma_awaits(FTRMA_WHAT_COLLECTIVE, ftrma_on->spec.slots[first]));
    }
    return MPI_SUCCESS;
}

/* Arrive, then wait for the others. A member that finds at its arrival that all have arrived rings
   the bell; the last one does so in any case, or the agent for it. The event is not over before the
   arrival has reached all nodes: until then it would be lost with this process. If one member is to
   arrive after all others, the last of the others rings for it. */
static int meet(const struct ftrma_transfer *t, const struct ftrma_area *own, size_t bytes)
{
    struct ftrma_bell *bell = &ftrma_on->board->bell;
    uint64_t *word = &ftrma_on->words[ftrma_rank()].arrived, number = t->number;
    int agree = t->agrees && ftrma_can_agree(ftrma_on), last = t->ordered ? 0 : -1;
    int far = ftrma_on->nothers > 0, first = 0, rc = MPI_SUCCESS;
    if (ftrma_rank() == last)
        rc = await(number, last, agree);
    if (!rc && unlikely(far))
        rc = ftrma_far_show(ftrma_on, own, sizeof *own + bytes, word, number);
    if (rc)
        return rc;
    STORE(word, number);
    if (all_arrived(number, last, &first) && ftrma_ranks() > 1)
        ftrma_wake(bell);
    if (unlikely(far))
        rc = ftrma_far_shown(ftrma_on);
    return rc ? rc : await(number, -1, agree);
}

int ftrma_learn(const struct ftrma_transfer *t, void *to, const void *from, size_t n)
{
    if (t->answered)
        return ftrma_result_read(to, n);
    memcpy(to, from, n);
    ftrma_result_log(to, n);
    return MPI_SUCCESS;
}

/* Copy bytes [lo, hi) of this slot's stream. */
static void copy_stream(const struct ftrma_transfer *t, size_t lo, size_t hi, char *to)
{
    size_t begin = 0;
    for (int i = 0; i < t->nout && begin < hi; begin += t->out[i++].bytes) {
        size_t end = begin + t->out[i].bytes, a = lo > begin ? lo : begin, b = hi < end ? hi : end;
        if (a < b)
            memcpy(to + (a - lo), t->out[i].at + (a - begin), b - a);
    }
}

/* Add at most 16 words of the chunk to the hash, spread over it, with both of its ends: for the
   price of a few cache lines this detects a program that is not deterministic. */
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

/* Trace the exchange, and for whom its members wait: all, or the root alone. */
static void trace_exchange(const struct ftrma_transfer *t)
{
    int scatters = t->collective == FTRMA_BCAST || t->collective == FTRMA_SCATTER
                   || t->collective == FTRMA_SCATTERV;
    ftrma_trace.at = ftrma_on->spec.id;
    ftrma_trace.seq = t->number;
    ftrma_trace.value[0] = t->root < 0 ? 0 : scatters ? 1 : 2;
    ftrma_trace.value[1] = t->root < 0 ? 0 : (uint64_t)ftrma_on->spec.slots[t->root];
}

static int exchange(struct ftrma_transfer *t, size_t lo, size_t hi)
{
    uint64_t h = ftrma_mix(ftrma_mix((uint64_t)t->collective, t->round), t->detail);
    h = ftrma_mix(ftrma_mix(ftrma_mix(h, t->bytes), t->expected), ftrma_on->spec.id);
    if (t->sample)
        h = sampled(h, t, lo, hi);
    int rc = ftrma_sync_begin(FTRMA_WHAT_COLLECTIVE, -1, t->root, h);
    if (rc != 0 && rc != 1)
        return rc;
    t->answered = rc;
    t->number = ++ftrma_on->exchanges;
    if (unlikely(ftrma_tracing))
        trace_exchange(t);
    if (!t->answered && !ftrma_on->ghost) { /* if it is a ghost, all others have made this exchange
                                               already */
        struct ftrma_area *a = area(ftrma_rank(), t->number);
        a->collective = (uint64_t)t->collective;
        a->round = t->round;
        a->bytes = t->bytes;
        a->rounds = t->rounds;
        copy_stream(t, lo, hi, a->data);
        size_t end = hi < t->bytes ? hi : t->bytes;
        rc = meet(t, a, end > lo ? end - lo : 0);
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
    int rc = ftrma_exchange_open(ftrma_on, &room);
    if (rc)
        return rc;
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
    int passed;
};

static int gather(struct ftrma_transfer *t, size_t lo, size_t hi)
{
    struct gathering *g = t->user;
    int rc = MPI_SUCCESS;
    hi = hi < g->bytes ? hi : g->bytes;
    g->passed = t->answered && ftrma_event_clock.mode == FTRMA_PROLOGUE;
    for (int s = 0; s < ftrma_ranks() && !rc && !g->passed; s++) {
        if (s == ftrma_rank())
            continue;
        const struct ftrma_area *a = t->answered ? NULL : ftrma_deposit(t, s, &rc);
        if (!rc)
            rc = ftrma_learn(t, g->all + (size_t)s * g->bytes + lo, a ? a->data : NULL, hi - lo);
    }
    return rc;
}

int ftrma_gather_all(const void *mine, size_t bytes, void *all, int ordered, int *passed)
{
    struct ftrma_piece out = {(char *)(uintptr_t)mine, bytes};
    struct gathering g = {all, bytes, 0};
    struct ftrma_transfer t = {.collective = FTRMA_GATHER_ALL, .root = -1, .out = &out, .nout = 1,
                               .expected = bytes, .ordered = ordered, .deliver = gather, .user = &g};
    int rc = ftrma_transfer_run(&t);
    if (!rc)
        memcpy((char *)all + (size_t)ftrma_rank() * bytes, mine, bytes);
    *passed = g.passed;
    return rc;
}
