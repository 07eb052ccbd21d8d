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
    unsigned char old[FTRMA_WIRE_IMAGE];
};

/* A part. Where it is, is written by who places it, its generation last; 0: nobody has. */
struct ftrma_ledger_part {
    struct ftrma_wire_part place;
    uint64_t taken;  /* 1: somebody has chosen it; by compare-and-swap */
    uint64_t placed; /* how often */
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
    uint32_t origins, targets, parts, pad;
    uint64_t agents;    /* that have begun */
    uint64_t epoch;     /* of the roles in force here */
    uint64_t forgetting; /* the epoch with which all is forgotten, while it is */
    uint64_t left; /* parts so far that are gone; by processes of the node */
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
    uint64_t left; /* that are unmapped */
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

/* The number of the part, or -1: it is not here, or not of this generation. */
int ftrma_ledger_find(struct ftrma_ledger *ledger, uint32_t window, uint32_t target,
                      uint32_t generation);
/* Its file, mapped if need be; NULL: it is not as it was said. */
char *ftrma_ledger_map(struct ftrma_ledger *ledger, uint32_t part);
/* Let the memory of parts that are gone go. */
void ftrma_ledger_tidy(struct ftrma_ledger *ledger);
/* Copy bytes out of a part and into it, wherever it lies. 0 or -errno. */
int ftrma_ledger_read(struct ftrma_ledger *ledger, uint32_t part, uint64_t offset, void *to, size_t n);
int ftrma_ledger_write(struct ftrma_ledger *ledger, uint32_t part, uint64_t offset, const void *from,
                       size_t n);

/* Take back the atomics that the agent before was inside of. */
void ftrma_ledger_put_back(struct ftrma_ledger *ledger);

/* New roles. forget: numbers, answers, undos and locks of before mean nothing any more.
   between: called when the roles are in force and not all is forgotten. */
void ftrma_ledger_roles(struct ftrma_ledger *ledger, uint64_t epoch, int forget,
                        void (*between)(void *arg), void *arg);
/* Forget what an agent was killed amid forgetting. */
void ftrma_ledger_finish_roles(struct ftrma_ledger *ledger);

/* Raise a word in the head of the part's file, and wake who waits for one. */
void ftrma_ledger_set(struct ftrma_ledger *ledger, uint32_t part, uint64_t word, uint64_t value);
/* Wake processes of the node that wait at the bells of the part's file. */
void ftrma_ledger_wake(struct ftrma_ledger *ledger, uint32_t part);
/* Somebody of the node sleeps there. */
int ftrma_ledger_sleepers(struct ftrma_ledger *ledger, uint32_t part);
/* It has been rung. */
void ftrma_ledger_hush(struct ftrma_ledger *ledger);
/* Make the lock word of a part say what `holds` says. Whoever of this node waits is woken. */
void ftrma_ledger_settle(struct ftrma_ledger *ledger, uint32_t part);

#endif
