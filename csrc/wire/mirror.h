/* The mirror: words of a file that agents keep equal on all nodes (mirror.c).
 *
 * Each node has a file of its own, whose words its processes read and write as on one node. The
 * agent of node 0 is the hub; all others are spokes with one connection to it. The order in which
 * the hub takes changes is the order on all nodes. Beside the file lies the state of the mirror,
 * which outlives agents. It has two words for each mirrored word: the *shadow*, which is the value
 * that was last sent or received, so that a word that differs from its shadow was changed on this
 * node; and *pending*, the number of the message in which the word was last sent.
 *
 * A sender reads words in the order of the regions, and sends them in the opposite order, in which
 * they are stored on all nodes. So a process that sees the new value of a word also sees the words
 * that are listed later and were stored before it, wherever agents are killed (merge.c, spokes.c).
 */
#ifndef FTRMA_MIRROR_H
#define FTRMA_MIRROR_H

#include "ledger.h"

/* Words of one message, at most. */
#define FTRMA_MIRROR_MESSAGE_WORDS (FTRMA_WIRE_PAYLOAD_BYTES / sizeof(struct ftrma_wire_word))

struct ftrma_mirror_header {
    uint64_t magic;                      /* stored last */
    uint64_t file_bytes, mirrored_bytes; /* of the state; of the file up to its last region */
    uint64_t regions, words;
    uint64_t hash;           /* of the regions */
    uint64_t sent;           /* at a spoke: the number of the last message sent */
    uint64_t acked;          /* at a spoke: the last number that the hub has taken */
    uint64_t scans, ordered; /* see ftrma_mirror_scans() */
    /* The message in the journal, the rest of which the next agent stores. valid is stored last. */
    uint64_t valid, from, number, count;
    uint64_t done;                    /* number of its words that are stored */
    char file[FTRMA_WIRE_NAME_BYTES]; /* beside the state */
};

struct ftrma_mirror {
    struct ftrma_agent *agent;
    struct ftrma_mirror_header *header;
    struct ftrma_mirror_region *regions;
    uint64_t *taken;   /* [node], at the hub: the number of the last message taken from it */
    uint64_t *shadow;  /* [word] */
    uint64_t *pending; /* [word], at a spoke */
    struct ftrma_wire_word *journal;
    char *file; /* the mirrored file, of so many bytes */
    uint64_t bytes;
    /* Only in this process: */
    uint64_t **at;                 /* [word]: its address */
    unsigned char *kinds;          /* [word] */
    struct ftrma_wire_word *found; /* words to be sent; room for all */
    uint64_t *alarm, *calm;        /* NULL: there is no alarm, so it is never pending */
    uint64_t *echo;                /* the ECHO word of this node, or NULL */
    uint64_t echoes, first_echo;   /* how many ECHO words there are, and number of the first word */
    uint64_t scan, last; /* the newest scan whose words are all sent, and its last message */
    int hot;             /* the alarm was pending at the last scan */
    uint64_t resends;    /* words with a pending number up to this one are sent again */
    unsigned ahead;      /* messages over this connection that are not acknowledged */
};

/* Map the state and the mirrored file. 0 or -errno. */
int ftrma_mirror_open(const char *path, uint32_t node, struct ftrma_mirror **mirror);
void ftrma_mirror_close(struct ftrma_mirror *mirror);
/* 1: a node counts as lost. */
int ftrma_mirror_lost(const struct ftrma_mirror *mirror, uint32_t node);

#endif
