/* Access logs: what a slot did to others (put log) and what it learned from them (result log).
 *
 * A slot's logs fill one file of exactly the size of the budget, whose memory is allocated at the
 * start. It is cut into chunks; a log is a chain of chunks, and each record lies within one chunk.
 * Only the slot itself writes. The put log counts as lost with its process. The result log counts
 * as held for the slot by the first checksum rank of its group, and is lost with that process.
 *
 * A mark is the place in both logs that belongs to a checkpoint version. There are two: of the
 * committed version and of the one being taken. Records before the older mark are freed, and
 * records whose accesses demand checkpoints hold (demand.c).
 */
#ifndef FTRMA_CHUNKS_H
#define FTRMA_CHUNKS_H

#include "internal.h"

enum ftrma_record_kind {
    FTRMA_RECORD_PUT = 1,  /* bytes that are in the target's part after the access */
    FTRMA_RECORD_SELF,     /* like PUT, for an atomic or accumulate on the slot's own part */
    FTRMA_RECORD_RESULT,   /* the bytes that an event learned */
    FTRMA_RECORD_UNDO,     /* the old bytes at the place of an accumulate or atomic that follows */
    FTRMA_RECORD_REPEAT,   /* several results that repeat earlier ones (results.c) */
};

/* One record (section 3.2.3, eq. (1)), of a contiguous stretch; an access to a layout with holes
   makes several records. */
struct ftrma_record {
    uint32_t sum;     /* sum of the payload and of the fields that never change (record_sum.h) */
    uint8_t kind;     /* enum ftrma_record_kind */
    uint8_t what;     /* enum ftrma_what */
    uint16_t order;   /* sum of clock and seq, which are known late if the target is on another
                         node */
    uint32_t bytes;   /* of the payload */
    int32_t target;   /* slot */
    uint64_t window;  /* its name: slot of the first member << 32 | its number there */
    union {
        uint64_t at;   /* offset in the target's part */
        uint64_t back; /* REPEAT: it equals the result that lies so many results before it */
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

/* Bytes of a record with its payload, a multiple of 8. */
static inline uint64_t ftrma_record_size(uint64_t payload_bytes)
{
    return sizeof(struct ftrma_record) + ((payload_bytes + 7) & ~(uint64_t)7);
}

static inline char *ftrma_chunk_data(const struct ftrma_log *log, uint32_t chunk)
{
    return (char *)(uintptr_t)log + log->file_bytes
           - (uint64_t)(log->nchunks - chunk) * log->chunk_bytes;
}

/* The end of a log, where the next record goes; private to the writer. */
struct ftrma_pen {
    char *at;
    uint32_t room, chunk;
};
extern struct ftrma_pen ftrma_pens[2];

enum { FTRMA_PUTS, FTRMA_RESULTS };
extern struct ftrma_log *ftrma_log; /* this slot's; mapped by ftrma_log_open */

/* The mark of this version, or NULL. */
static inline struct ftrma_mark *ftrma_mark_of(struct ftrma_slot *slot, uint64_t version)
{
    struct ftrma_mark *mark = &slot->marks[version & 1];
    return mark->version == version ? mark : NULL;
}

/* Map the logs of a slot, or make them. 0 or -errno. */
int ftrma_log_map(int slot, int create, uint64_t budget_bytes, struct ftrma_log **log);
/* Map another slot's logs, which only their slot writes. 0 or -errno. */
int ftrma_log_view(int slot, struct ftrma_log **log);
void ftrma_log_close(struct ftrma_log *log);
void ftrma_chunks_empty(struct ftrma_log *log); /* makes the pens new, too */

void ftrma_chunk_free(uint32_t chunk);
void ftrma_log_note_use(void); /* notes the most that was in use */
void ftrma_log_trim(int log, struct ftrma_spot to);
void ftrma_log_lose_spots(int log);
struct ftrma_mark *ftrma_log_free_to_trim(void);
void ftrma_log_trim_committed(void);
/* Free the result log before `to`, so that no mark points there. */
void ftrma_trim_results(struct ftrma_spot to);
uint64_t ftrma_results_bytes(void); /* the bytes that ftrma_trim_results could free */

/* A reader, which steps through a log. */
struct ftrma_reader {
    const struct ftrma_log *log;
    struct ftrma_spot at;
    uint32_t head;    /* first chunk + 1, if nothing was written when the spot was taken */
    uint32_t passed;  /* chunks */
    int damaged;      /* 1: a chunk or record is invalid, so nothing after it can be read */
};
/* The next record; NULL at the end, and where the log is damaged. Sums are not compared. */
const struct ftrma_record *ftrma_log_next(struct ftrma_reader *reader);
/* 1 if this can be a record, given how many bytes of its chunk are left. */
int ftrma_is_record(const struct ftrma_record *record, uint32_t room);

#endif
