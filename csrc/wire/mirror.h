/* The mirror: words of a file that are kept equal on all nodes, by their agents (mirror.c).
 *
 * Each node has a file of its own, whose words its processes read and write as on one node. The
 * agent of node 0 is the hub, all others are spokes with one connection to it, and the order in
 * which the hub takes changes is that of all. Beside the file lies the state of the mirror, which
 * outlives agents: of each word its *shadow*, which is what was sent or received last, so that a
 * word that differs from it was changed here; and *pending*, the number of the message that it
 * was last sent with.
 *
 * A sender reads words in the order of the regions and sends them in the opposite one, in which
 * they are stored everywhere: who sees a word that is listed early sees what was stored before it
 * and is listed later, whatever the agents are killed amid (merge.c, spokes.c).
 */
#ifndef FTRMA_MIRROR_H
#define FTRMA_MIRROR_H

#include "ledger.h"

/* Words of a message. */
#define FTRMA_MIRROR_MESSAGE_WORDS (FTRMA_WIRE_PAYLOAD_BYTES / sizeof(struct ftrma_wire_word))

struct ftrma_mirror_header {
    uint64_t magic; /* stored last */
    uint64_t file_bytes, mirrored_bytes; /* of the state, and of the file up to the last region */
    uint64_t regions, words;
    uint64_t hash;  /* of the regions */
    uint64_t sent;  /* the number of the message sent last; of a spoke, as the next */
    uint64_t acked; /* what the hub has taken */
    uint64_t scans, ordered; /* see ftrma_mirror_scans() */
    /* The message that is being taken: a successor takes the rest of it. valid is stored last. */
    uint64_t valid, from, number, count;
    uint64_t done;  /* words of it that are stored */
    char file[FTRMA_WIRE_NAME_BYTES]; /* beside the state */
};

struct ftrma_mirror {
    struct ftrma_agent *agent;
    struct ftrma_mirror_header *header;
    struct ftrma_mirror_region *regions;
    uint64_t *taken;   /* [node], hub: the number of the last message that was taken of it */
    uint64_t *shadow;  /* [word] */
    uint64_t *pending; /* [word], spoke */
    struct ftrma_wire_word *journal;
    char *file; /* the file itself, and */
    uint64_t bytes;
    /* Of this process alone: */
    uint64_t **at;              /* [word]: where it is */
    unsigned char *kinds;       /* [word] */
    struct ftrma_wire_word *found; /* what is to be sent; room for all words */
    uint64_t *alarm, *calm;     /* NULL: there is none, and nothing is ever pending */
    uint64_t *echo;             /* of this node, or NULL */
    uint64_t scan, last; /* the newest look whose words all are sent, and its message */
    int hot;       /* the alarm was pending at the last look */
    uint64_t resends; /* up to this number, what was not taken is sent again */
    unsigned ahead; /* messages over this connection that were not acknowledged */
};

int ftrma_mirror_open(const char *path, uint32_t node, struct ftrma_mirror **mirror);
void ftrma_mirror_close(struct ftrma_mirror *mirror);

#endif
