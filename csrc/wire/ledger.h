/* The ledger: what outlives an agent, in a file in shared memory (ledger.c).
 *
 * All words are written by the agent, but for those that say otherwise.  A request with a number is
 * done when the number is stored; what is stored before, is done again by whoever gets the request
 * again, with the same effect, or is taken back by the undo.  The file is large and mostly without
 * memory: a page is taken where something is first written or read.
 */
#ifndef FTRMA_LEDGER_H
#define FTRMA_LEDGER_H

#include "internal.h"
#include "wire.h"

/* How to take back the atomic under way. number is stored last, and 0 while the rest is written. */
struct ftrma_undo {
    uint64_t number;
    uint32_t origin, generation; /* of the part */
    uint64_t offset, bytes;
    unsigned char old[FTRMA_WIRE_ATOMIC_BYTES];
};

/* A part. Where it is, is written by who places it, its generation last; 0: nobody has. */
struct ftrma_ledger_part {
    struct ftrma_wire_part place;
    uint64_t taken;  /* 1: somebody has chosen it; by compare-and-swap */
    uint64_t placed; /* how often it was placed, or left */
    struct ftrma_undo undo;
};

/* Of one origin toward one target. */
struct ftrma_ledger_pair {
    uint64_t number; /* the last that has taken effect */
    struct ftrma_wire_answer answer; /* of the last atomic; its number is stored last */
};

struct ftrma_ledger_header {
    uint64_t magic;
    uint64_t file_bytes;
    uint32_t origins, targets, parts;
    int32_t agent;      /* the process that serves it, or did */
    uint64_t agents;    /* that have begun */
    uint64_t roles_number;     /* of the roles in force here */
    uint64_t forgetting; /* the roles_number with which all is forgotten, while it is */
    uint64_t released; /* parts so far that are gone; by processes of the node */
    uint64_t clock_at, clock_step; /* where the first `clocks` targets' clocks lie in clock_file */
    uint32_t clocks, pad2;         /* stored last, by who has made the ledger; 0: in the ledger */
    char clock_file[64];
};

enum { FTRMA_HOLDS_NOTHING, FTRMA_HOLDS_SHARED, FTRMA_HOLDS_EXCLUSIVE };

struct ftrma_ledger {
    int fd;
    int directory;
    int bell; /* a FIFO: the agent sleeps at its end, processes of the node write to it */
    uint32_t found; /* the part that was looked for last */
    struct ftrma_ledger_header *header;
    struct ftrma_ledger_target *targets;
    uint64_t *incarnations; /* of each origin, the newest that has come */
    struct ftrma_ledger_part *parts;
    struct ftrma_ledger_pair *pairs; /* [origin][target] */
    unsigned char *holds;            /* [part][origin]: what of the part's lock it holds */
    struct ftrma_mapped {
        char *map; /* of the file, NULL: not mapped */
        size_t map_bytes;
        uint64_t placed;
    } *mapped;
    uint64_t released; /* that are unmapped */
    char *clocks;  /* of clock_file; NULL: not mapped */
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

/* How many events a target has begun that order others' accesses. */
uint64_t ftrma_ledger_clock(struct ftrma_ledger *ledger, uint32_t target);
/* Open the directory that a file lies in, and parts' files beside the ledger. -1: errno says why. */
int ftrma_ledger_beside(const char *path);

/* It has been rung. */
void ftrma_ledger_drain_bell(struct ftrma_ledger *ledger);
/* Let the memory of a part's file go. */
void ftrma_ledger_unmap(struct ftrma_mapped *mapped);

#endif
