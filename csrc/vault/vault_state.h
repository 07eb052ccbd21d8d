/* A vault: one process's committed copy, its staged deltas, and the parity of a group.  This header has
 * its parts, and what the files of this folder share; checkpoint.c has the steps of a checkpoint.
 *
 * A vault is a sparse file in shared memory, used in blocks of 4 KiB:
 *
 *   header | dirty list | checksums | copy | stage
 *
 * For a slot, `copy` is the last checkpoint of everything it protects, and `stage` holds, packed,
 * new XOR old of the blocks that changed since.  For a checksum rank, `copy` is one parity of its
 * group (the sum of the members' copies, each multiplied by its coefficient in GF(2^8), see
 * ftrma/vault/erasure.py; all coefficients of a group's first parity are 1, which makes it their XOR)
 * and `stage` the same sum of the members' staged deltas.
 *
 * Checksums (crc32c per block) lie with the parity, for the parity and for every member, and with
 * each member for itself.  A slot checks a block of its copy before it forms a delta from it: a delta
 * from a corrupt copy would make the parity wrong and consistent with it.  Going back, it compares
 * its copy with the checksums that lie with the parity, and a rebuilt block is compared with the
 * checksum of the lost one: neither a stray store into a vault nor a wrong input goes unnoticed.
 * Which of the others a block is computed from is decided in Python (ftrma/vault/group.py).
 */
#ifndef FTRMA_VAULT_STATE_H
#define FTRMA_VAULT_STATE_H

#include <pthread.h>

#include "gf.h"
#include "internal.h"
#include "kernels.h"

#define BLOCK FTRMA_BLOCK
#define MAX_MEMBERS 255 /* of a group: k + m elements of GF(2^8) */

struct vault_header {
    uint64_t magic;
    uint64_t capacity;      /* blocks of copy, and of stage */
    uint64_t used;          /* blocks of the copy for which memory is taken */
    uint64_t stage_room;    /* blocks of the stage for which memory is taken */
    struct ftrma_vault_words words;
    uint64_t stage_version; /* version being staged or summed; 0: nothing is */
    uint64_t torn;          /* 1 + the place in the dirty list of the delta that is being added,
                               until it is known to be done; 0: none is */
    uint64_t torn_crc;      /* checksum that its block has then; written before `torn` */
    size_t ndirty;
    uint64_t npending[MAX_MEMBERS]; /* parity: blocks of each member in the sum */
};
_Static_assert(sizeof(struct vault_header) <= BLOCK, "the header fills at most one block");

/* The memory that a thread takes before it is needed (ahead.c). Of each pair the first number is
   that of the copy, the second that of the stage. */
struct ahead {
    pthread_mutex_t lock;
    pthread_t thread;
    uint64_t wanted[2], taken[2]; /* blocks, from the first one on */
    int begun, working, stopped;  /* a thread is to be joined; it takes more; it may not */
};

struct ftrma_vault {
    struct vault_header *header;
    uint32_t *dirty;     /* [capacity] blocks that the stage holds, in its order */
    uint32_t *crc;       /* lists of [capacity]: of the copy; see list() for those of a parity */
    unsigned char *copy;
    unsigned char *stage;
    unsigned char *touched; /* [capacity] parity: 1 where the block is in the sum */
    uint32_t group_size; /* lists of so many members lie beside a parity */
    size_t file_bytes;
    int fd;
    uint64_t copy_at, stage_at;
    struct ahead ahead;
};

static inline uint64_t blocks_of(uint64_t bytes)
{
    return (bytes + BLOCK - 1) / BLOCK;
}

/* Lists beside the parity: its own checksums, then for each member its checksums, and which blocks
   of it are in the sum with the checksums that they will have. */
enum list { CRC, PENDING_BLOCK, PENDING_CRC };

static inline uint32_t *list(struct ftrma_vault *parity, int member, enum list which)
{
    uint64_t stride = blocks_of(parity->header->capacity * 4) * BLOCK / 4;
    return parity->crc + (member < 0 ? 0 : 1 + 3 * (uint64_t)member + which) * stride;
}

static inline uint32_t *crc_of(struct ftrma_vault *parity, int member)
{
    return list(parity, member, CRC);
}

/* to += g * from */
static inline void add(void *to, const void *from, uint8_t g, size_t n)
{
    if (g == 1)
        ftrma_xor_into(to, from, n);
    else
        ftrma_gf_fold(&to, 1, &from, 1, &g, n);
}

#endif
