/* The ledger: the state that outlives an agent, in a file in shared memory (ledger.c).
 *
 * The agent writes all words, except where stated otherwise. A request is done when its number is
 * stored. If the agent dies before that store, the next agent carries the request out again with
 * the same effect, or reverts it by the undo. The file is large but mostly without memory: a page
 * gets memory at the first access.
 */
#ifndef FTRMA_LEDGER_H
#define FTRMA_LEDGER_H

#include "internal.h"
#include "wire.h"

/* The undo of the atomic under way. number is stored last, and is 0 while the rest is written. */
struct ftrma_undo {
    uint64_t number;
    uint32_t origin, generation; /* of the part */
    uint64_t offset, bytes;
    unsigned char old[FTRMA_WIRE_ATOMIC_BYTES];
};

/* A part. Whoever places it writes the place, its generation last; generation 0: it is not
   placed. */
struct ftrma_ledger_part {
    struct ftrma_wire_part place;
    uint64_t taken;  /* 1: reserved; by compare-and-swap */
    uint64_t placed; /* how often it was placed or released */
    struct ftrma_undo undo;
};

/* The state of one origin toward one target. */
struct ftrma_ledger_pair {
    uint64_t number;                 /* of the last request that has taken effect */
    struct ftrma_wire_answer answer; /* of the last atomic; its number is stored last */
};

struct ftrma_ledger_header {
    uint64_t magic;
    uint64_t file_bytes;
    uint32_t origins, targets, parts;
    int32_t agent;         /* pid of the newest agent */
    uint64_t agents;       /* number of agents so far */
    uint64_t roles_number; /* of the role table in force on this node */
    uint64_t forgetting;   /* the roles_number of a rollback, while its forgetting is under way */
    uint64_t released;     /* number of parts released so far; by processes of the node */
    uint64_t clock_at, clock_step; /* places of clocks in clock_file */
    uint32_t clocks; /* number of those clocks; stored last, by the maker of the ledger */
    uint32_t pad2;
    char clock_file[64];
};

enum { FTRMA_HOLDS_NOTHING, FTRMA_HOLDS_SHARED, FTRMA_HOLDS_EXCLUSIVE };

struct ftrma_ledger {
    int fd;
    int directory;
    int bell;       /* a FIFO: processes of the node write to it and so wake the agent */
    uint32_t found; /* the part that was last found */
    struct ftrma_ledger_header *header;
    struct ftrma_ledger_target *targets;
    uint64_t *incarnations; /* [origin]: the newest that has come */
    struct ftrma_ledger_part *parts;
    struct ftrma_ledger_pair *pairs; /* [origin][target] */
    unsigned char *holds;            /* [part][origin]: FTRMA_HOLDS_* of the part's lock */
    struct ftrma_mapped {
        char *map; /* of the file, NULL: not mapped */
        size_t map_bytes;
        uint64_t placed;
    } *mapped;
    uint64_t released; /* how many of header->released are unmapped */
    char *clocks;      /* of clock_file; NULL: not mapped */
    size_t clocks_bytes;
};

static inline struct ftrma_ledger_pair *ftrma_ledger_pair(const struct ftrma_ledger *l,
                                                          uint32_t origin, uint32_t target)
{
    return &l->pairs[(size_t)origin * l->header->targets + target];
}

static inline unsigned char *ftrma_ledger_hold(const struct ftrma_ledger *l, uint32_t part,
                                               uint32_t origin)
{
    return &l->holds[(size_t)part * l->header->origins + origin];
}

/* Keep other agents out until this process ends. 0 or -EWOULDBLOCK. */
int ftrma_ledger_lock(const struct ftrma_ledger *ledger);

/* The clock of a target: the events it has begun that order accesses of others. */
uint64_t ftrma_ledger_clock(struct ftrma_ledger *ledger, uint32_t target);
/* Open the directory in which a file lies. -1: errno says why. */
int ftrma_ledger_beside(const char *path);

/* Take the bytes out of the bell. */
void ftrma_ledger_drain_bell(struct ftrma_ledger *ledger);
/* Unmap the file of a part. */
void ftrma_ledger_unmap(struct ftrma_mapped *mapped);

#endif
