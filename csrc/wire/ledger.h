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

/* A part. The first line is written by who places it, `generation` last; 0: nobody has. */
struct ftrma_ledger_part {
    uint32_t generation, window, target, pad;
    uint64_t at, bytes;
    char file[FTRMA_WIRE_NAME];
    uint64_t seq;  /* order of all accesses that change it; also by processes of the node */
    int32_t owner; /* who is inside a change; also by processes of the node */
    int32_t pad2;
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
    uint32_t origins, targets, parts, words;
    uint64_t agents;    /* that have begun */
    uint64_t epoch;     /* of the roles in force here */
    uint64_t forgetting; /* the epoch with which all is forgotten, while it is */
    uint32_t bell, pad; /* counts changes of the node's words; a futex */
};

enum { FTRMA_HOLDS_NOTHING, FTRMA_HOLDS_SHARED, FTRMA_HOLDS_EXCLUSIVE };

struct ftrma_ledger {
    int fd;
    int directory;
    uint32_t found; /* the part that was looked for last */
    struct ftrma_ledger_header *header;
    struct ftrma_ledger_target *targets;
    uint64_t *incarnations; /* of each origin, the newest that has come */
    uint64_t *words;        /* of the node; the maximum of what was SET */
    struct ftrma_ledger_part *parts;
    struct ftrma_ledger_pair *pairs; /* [origin][target] */
    unsigned char *holds;            /* [part][origin]: what of the part's lock it holds */
    struct ftrma_mapped {
        unsigned char *base; /* of the part, NULL: not mapped */
        char *map;
        size_t map_bytes;
        uint32_t generation;
    } *mapped;
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
/* Where it lies in this process, mapped if need be; NULL: its file is not as it was said. */
unsigned char *ftrma_ledger_base(struct ftrma_ledger *ledger, uint32_t part);

/* Take back the atomics that the agent before was inside of. */
void ftrma_ledger_put_back(struct ftrma_ledger *ledger);

/* New roles. forget: numbers, answers, undos and locks of before mean nothing any more.
   between: called when the roles are in force and not all is forgotten. */
void ftrma_ledger_roles(struct ftrma_ledger *ledger, uint64_t epoch, int forget,
                        void (*between)(void *arg), void *arg);
/* Forget what an agent was killed amid forgetting. */
void ftrma_ledger_finish_roles(struct ftrma_ledger *ledger);

/* Raise a word of the node, and wake who waits for one. */
void ftrma_ledger_set(struct ftrma_ledger *ledger, uint64_t word, uint64_t value);

#endif
