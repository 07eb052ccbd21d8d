/* Results: a slot's bytes from others go into the result log, and come out of it in a replay.
 *
 * A program that waits by looking again and again (Test, a Get under a lock, Fetch_and_op with
 * NO_OP, a Compare_and_swap that fails) learns equal results millions of times a second. So a
 * result that repeats an earlier one is counted, not appended: a REPEAT record stands for any
 * number of results that follow each other, each of them equal to the one `back` results before it.
 * `back` is the number of results in one round of the program's loop.
 *
 * Counting is one store, which is made before the call returns, as a record would be: `last` is
 * written first, and a reader ignores all above the horizon. The log does not tell in which event
 * between the first and the last each result came. A replay makes the same calls, or the hash over
 * all of them reveals that it does not.
 *
 * A record repeats nothing from before a mark, since a reader begins there and all before it is
 * freed.
 */
#include "results.h"

#include "log.h"

/* Longer results are not compared: copying them costs no more. */
#define MOST 1024

static struct {
    struct ftrma_past past;
    struct ftrma_record *run;     /* the REPEAT record that counts now, in the log */
    uint64_t newest[FTRMA_REACH]; /* [call] number of the newest result of such a call, as past.n
                                     counts; if nothing is logged, a sum of the result */
    uint64_t event, part;         /* event of the last result, and the result's number in that
                                     event */
} told;

/* ---- appending ------------------------------------------------------------------------------ */

static int within(const struct ftrma_past *past, uint64_t back)
{
    return back - 1 < FTRMA_REACH && back <= past->n;
}

static void note(struct ftrma_past *past, const void *bytes, size_t size)
{
    past->of[past->n % FTRMA_REACH].bytes = bytes;
    past->of[past->n++ % FTRMA_REACH].size = size;
}

void ftrma_results_break(void)
{
    told.past.n = 0;
    told.run = NULL;
}

/* Append a record. Returns its place in the log; NULL if it is not there, or is in pieces. */
static struct ftrma_record *append(const struct ftrma_record *record, const void *bytes, size_t size)
{
    const struct ftrma_pen *pen = &ftrma_pens[FTRMA_RESULTS];
    size_t whole = ftrma_record_size(size);
    int fits = size <= 64 || whole <= pen->room;
    ftrma_log_small(FTRMA_RESULTS, record, bytes, size);
    return fits && ftrma_logs() ? (struct ftrma_record *)(void *)(pen->at - whole) : NULL;
}

static inline int same(const void *a, const void *b, size_t size)
{
    return size == 8 ? !memcmp(a, b, 8) : !memcmp(a, b, size); /* words are compared without a
                                                                  call */
}

/* The element of `newest` for the call that has this result, by its signature. */
static uint64_t *call_of(uint64_t event)
{
    told.part = event == told.event ? told.part + 1 : 0;
    told.event = event;
    uint64_t call = ftrma_event_clock.signature + told.part * 0x9e3779b97f4a7c15ull;
    return &told.newest[(call >> 48) % FTRMA_REACH];
}

/* The distance to the result that this one may repeat: the newest result of such a call or, if
   there is none, the last result of all. */
static uint64_t candidate(uint64_t event)
{
    uint64_t *newest = call_of(event);
    uint64_t back = told.run ? told.run->back : told.past.n - *newest;
    *newest = told.past.n;
    return within(&told.past, back) ? back : 1;
}

void ftrma_result_append(const struct ftrma_record *record, const void *bytes, size_t size)
{
    uint64_t back = candidate(record->event), i = (told.past.n - back) % FTRMA_REACH;
    const void *at = told.past.of[i].bytes;
    if (within(&told.past, back) && size <= MOST && told.past.of[i].size == size
        && same(at, bytes, size)) {
        if (told.run) {
            __atomic_store_n(&told.run->last, record->event, __ATOMIC_RELEASE);
            __atomic_store_n(&told.run->times, told.run->times + 1, __ATOMIC_RELEASE);
        } else {
            struct ftrma_record repeat = {.kind = FTRMA_RECORD_REPEAT, .back = back, .times = 1,
                                          .event = record->event, .last = record->event};
            told.run = append(&repeat, "", 0);
            if (!told.run)
                return ftrma_results_break();
        }
    } else {
        told.run = NULL;
        const struct ftrma_record *own = append(record, bytes, size);
        if (!own)
            return ftrma_results_break();
        at = own + 1;
    }
    note(&told.past, at, size);
}

/* Values are not kept here, so sums are compared. */
void ftrma_result_drop(const void *bytes, size_t size)
{
    if (!ftrma_counts())
        return;
    uint64_t *newest = call_of(ftrma_event_clock.events + 1), sum = size, word;
    for (size_t at = 0; bytes && size <= MOST && at < size; at += sizeof word) {
        word = 0;
        memcpy(&word, (const char *)bytes + at, size - at < sizeof word ? size - at : sizeof word);
        sum = ftrma_mix(sum, word);
    }
    if (!bytes || size > MOST || *newest != sum)
        ftrma_event_clock.dropped += size + sizeof(struct ftrma_record);
    *newest = sum;
}

void ftrma_result_log(const void *bytes, size_t n)
{
    struct ftrma_record record = {.kind = FTRMA_RECORD_RESULT,
                                  .event = ftrma_event_clock.events + 1};
    if (n && ftrma_logs())
        ftrma_result_append(&record, bytes, n);
    else if (n)
        ftrma_result_drop(bytes, n);
}

/* ---- reading -------------------------------------------------------------------------------- */

static int is_answer(const struct ftrma_record *record)
{
    return record->kind == FTRMA_RECORD_RESULT || record->kind == FTRMA_RECORD_REPEAT;
}

void ftrma_answers_begin(struct ftrma_answers *answers, struct ftrma_reader reader)
{
    *answers = (struct ftrma_answers){.reader = reader};
}

static int next_repeated(struct ftrma_answers *a, const void **bytes, size_t *size)
{
    uint64_t back = a->repeat->back, i = (a->past.n - back) % FTRMA_REACH;
    if (!within(&a->past, back))
        return 0;
    *bytes = a->past.of[i].bytes;
    *size = a->past.of[i].size;
    if (++a->used == a->repeat->times)
        a->repeat = NULL;
    return 1;
}

int ftrma_answers_next(struct ftrma_answers *a, uint64_t event, const void **bytes, size_t *size)
{
    if (a->repeat) {
        if (event > a->repeat->last || !next_repeated(a, bytes, size))
            return 0;
    } else {
        const struct ftrma_record *record;
        do
            record = ftrma_log_next(&a->reader);
        while (record && !is_answer(record));
        if (!record || record->event != event)
            return 0;
        *bytes = record + 1;
        *size = record->bytes;
        if (record->kind == FTRMA_RECORD_REPEAT) {
            a->repeat = (struct ftrma_record *)(uintptr_t)record;
            a->used = 0;
            if (!next_repeated(a, bytes, size))
                return 0;
        }
    }
    note(&a->past, *bytes, *size);
    return 1;
}

int ftrma_answers_end(struct ftrma_answers *a, uint64_t horizon, struct ftrma_spot *end)
{
    struct ftrma_reader rest = a->reader;
    const struct ftrma_record *left;
    *end = rest.at;
    if (a->repeat && a->repeat->last <= horizon)
        return 0;
    while ((left = ftrma_log_next(&rest))) { /* records of events without a result, or of the
                                                event in flight */
        if (left->event > horizon)
            continue;
        if (is_answer(left))
            return 0;
        *end = rest.at;
    }
    if (!end->chunk && rest.log->head[FTRMA_RESULTS])
        *end = (struct ftrma_spot){rest.log->head[FTRMA_RESULTS], 0};
    if (a->repeat) { /* the last results that it counts came in the event in flight */
        __atomic_store_n(&a->repeat->times, a->used, __ATOMIC_RELEASE);
        __atomic_store_n(&a->repeat->last, horizon, __ATOMIC_RELEASE);
    }
    return 1;
}
