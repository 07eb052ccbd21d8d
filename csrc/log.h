/* Access logs: what a slot did to others (put log) and what it learned from them (result log).
 *
 * A slot's logs fill one file of exactly the budget, whose memory is taken at the start.  It is cut
 * into chunks; a log is a chain of chunks, a record lies within one.  Only the slot itself writes.
 * The put log counts as lost with its process; the result log is held for the slot by the checksum
 * rank of its group, and is lost with that one.
 *
 * A mark is a place in both logs that a checkpoint version belongs to.  There are two, of the
 * committed version and of the one being taken; what lies before the older is freed, and what
 * demand checkpoints hold (demand.c).
 */
#ifndef FTRMA_LOG_H
#define FTRMA_LOG_H

#include <string.h>

#include "event.h"
#include "window.h"

enum ftrma_record_kind {
    FTRMA_RECORD_PUT = 1,  /* bytes that are in the target's part after the access */
    FTRMA_RECORD_SELF,     /* the same, of an atomic or accumulate on the slot's own part */
    FTRMA_RECORD_RESULT,   /* what an event learned */
    FTRMA_RECORD_UNDO,     /* what an accumulate or atomic is about to change */
    FTRMA_RECORD_REPEAT,   /* several results that had come before (results.c) */
};

/* Section 3.2.3, eq. (1): a contiguous stretch each; a layout with holes makes several. */
struct ftrma_record {
    uint32_t size;    /* with the payload behind it, a multiple of 8 */
    uint16_t kind;    /* enum ftrma_record_kind */
    uint16_t what;    /* enum ftrma_what */
    uint32_t bytes;   /* of the payload */
    int32_t target;   /* slot */
    uint64_t window;  /* its name: slot of the first member << 32 | its number there */
    union {
        uint64_t at;   /* offset in the target's part */
        uint64_t back; /* REPEAT: equal to the result so many before it */
    };
    uint64_t event;    /* of the writer; REPEAT: of the first result */
    union {
        uint64_t clock; /* of the target, see event.h */
        uint64_t last;  /* REPEAT: event of the last result */
    };
    union {
        uint64_t seq;   /* order among all accesses that change the part */
        uint64_t times; /* REPEAT: results */
    };
    uint32_t ec, gc, sc, gnc;
};

#define FTRMA_LOG_MAGIC 0x4654524d414c4f47ull /* "FTRMALOG" */

struct ftrma_chunk {
    uint32_t next; /* of its chain; the chunk's number + 1, 0 at the end */
    uint32_t fill; /* bytes of whole records */
};

struct ftrma_log {
    uint64_t magic;
    uint64_t file_bytes;
    uint32_t chunk_bytes, nchunks;
    uint32_t free, used; /* first free chunk + 1; chunks in use */
    uint32_t head[2];    /* first chunk of each log + 1 */
    struct ftrma_chunk chunk[];
};

static inline char *ftrma_chunk_data(const struct ftrma_log *log, uint32_t chunk)
{
    return (char *)(uintptr_t)log + log->file_bytes
           - (uint64_t)(log->nchunks - chunk) * log->chunk_bytes;
}

/* Where the next record goes; private to the writer. */
struct ftrma_pen {
    char *at;
    uint32_t room, chunk;
};
extern struct ftrma_pen ftrma_pens[2];

/* Of this process alone: barriers of all slots that it has passed. */
uint64_t ftrma_barriers(void);
void ftrma_barriers_load(uint64_t count);

/* A safepoint: what was logged since the last one tells what will be before the next. */
void ftrma_log_step(void);

/* replay.c: the next event would be executed, not replayed. */
int ftrma_replay_over(void);
/* Wait until a slot that is being replayed is live. An MPI code. */
int ftrma_await_live(int slot);

enum { FTRMA_PUTS, FTRMA_RESULTS };
extern struct ftrma_log *ftrma_log; /* this slot's */

int ftrma_log_wanted(void); /* FTRMA_LOG_* that the user asked for */
/* Another slot's logs, read-only by agreement. 0 or -errno. */
int ftrma_log_view(int slot, struct ftrma_log **log);
void ftrma_log_close(struct ftrma_log *log);
/* Forget the own put log, and what the result log has behind `spot`; go on writing there. */
void ftrma_log_resume(struct ftrma_spot spot);
/* All marks become useless for this reason. */
void ftrma_break(uint32_t why);
/* Mark both logs for a demand checkpoint of this number. */
const struct ftrma_mark *ftrma_mark_demand(uint64_t number);
/* Free what the result log has before `to`, and have no mark lead there. */
void ftrma_trim_results(struct ftrma_spot to);
uint64_t ftrma_results_bytes(void); /* that such trimming could free */
void ftrma_chunk_free(uint32_t chunk);

/* demand.c: free the put log's records up to event `since`, and what demand checkpoints hold. */
void ftrma_squeeze_puts(uint64_t since);
/* Have those slots checkpoint that free most of this slot's logs, or all where that does not help. */
void ftrma_demand_ask(void);
/* The access of slot `source` is in the demand checkpoint with this cut. */
int ftrma_cut_holds(const uint64_t *cut, uint64_t words, const struct ftrma_record *record,
                    int source);

/* Steps through a log. */
struct ftrma_reader {
    const struct ftrma_log *log;
    struct ftrma_spot at;
    uint32_t head; /* first chunk + 1, where nothing was written when the spot was taken */
};
/* The next record, NULL at the end. */
const struct ftrma_record *ftrma_log_next(struct ftrma_reader *reader);

/* ---- results.c ------------------------------------------------------------------------------ */

#define FTRMA_REACH 256u /* results that a repeated one may lie behind its like; a power of two */

/* The newest results. */
struct ftrma_past {
    uint64_t n;
    struct {
        const void *bytes;
        size_t size;
    } of[FTRMA_REACH];
};

/* Append what an event learned, or count it if it repeats. */
void ftrma_result_append(const struct ftrma_record *record, const void *bytes, size_t size);
/* The same where nothing is logged since the budget was spent; NULL: do not look whether it repeats. */
void ftrma_result_drop(const void *bytes, size_t size);
/* A reader may begin here, or what came so far is gone: nothing behind repeats anything before. */
void ftrma_results_break(void);

/* Steps through the results of a log. */
struct ftrma_answers {
    struct ftrma_reader reader;
    struct ftrma_record *repeat; /* that the next result is of; NULL: it has a record of its own */
    uint64_t used;               /* results of `repeat` so far */
    struct ftrma_past past;
};
void ftrma_answers_begin(struct ftrma_answers *answers, struct ftrma_reader reader);
/* The next result.  0: it is not of this event, or there is none. */
int ftrma_answers_next(struct ftrma_answers *answers, uint64_t event, const void **bytes,
                       size_t *size);
/* Forget what lies above the horizon.  [out] end: of all other records.  0: not all results up to the
   horizon have been used. */
int ftrma_answers_end(struct ftrma_answers *answers, uint64_t horizon, struct ftrma_spot *end);

/* ---- appending ------------------------------------------------------------------------------ */

/* Go on to another chunk.  0: the budget is spent, logging ends until the next checkpoint. */
int ftrma_log_turn(int log);

/* Append a record with `bytes` of payload, in pieces where it does not fit; and write the payload to
   `also`, unless that is NULL, in one pass with the log (`both` as of ftrma_copy_past). */
void ftrma_log_append(int log, const struct ftrma_record *record, const void *payload,
                      size_t bytes, char *also, int both);

/* Take back what was appended since the pen was `before`, if that is at hand. */
static inline void ftrma_log_pop(int log, const struct ftrma_pen *before)
{
    struct ftrma_pen *pen = &ftrma_pens[log];
    if (!before->at || pen->chunk != before->chunk)
        return;
    struct ftrma_chunk *chunk = &ftrma_log->chunk[pen->chunk];
    __atomic_store_n(&chunk->fill, chunk->fill - (uint32_t)(pen->at - before->at),
                     __ATOMIC_RELEASE);
    *pen = *before;
}

/* The fast path of small ones. */
static inline void ftrma_log_small(int log, const struct ftrma_record *record,
                                   const void *payload, size_t bytes)
{
    struct ftrma_pen *pen = &ftrma_pens[log];
    uint32_t size = (uint32_t)(sizeof *record + ((bytes + 7) & ~(size_t)7));
    if (unlikely(bytes > 64 || size > pen->room)) {
        ftrma_log_append(log, record, payload, bytes, NULL, 0);
        return;
    }
    struct ftrma_record *to = (struct ftrma_record *)(void *)pen->at;
    *to = *record;
    to->size = size;
    to->bytes = (uint32_t)bytes;
    memcpy(pen->at + sizeof *record, payload, bytes);
    pen->at += size;
    pen->room -= size;
    __atomic_store_n(&ftrma_log->chunk[pen->chunk].fill,
                     ftrma_log->chunk[pen->chunk].fill + size, __ATOMIC_RELEASE);
}

#endif
