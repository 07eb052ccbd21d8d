/* The vault: one process's committed copy, its staged deltas, and the parity of a group.
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
 * A checkpoint from version v to v + 1:
 *
 *   stage   every slot: stage = window ^ copy, copy = window, in one pass over memory
 *   sum     every checksum rank: stage = sum of its members' stages; the parity is still at v
 *   commit  one compare-and-swap by whoever sees all groups summed (ftrma/protocol/server.py)
 *   fold    every checksum rank: parity ^= stage; the parity is at v + 1
 *
 * Before the commit a slot goes back to v by copy ^= stage, and a lost one is computed from the
 * parity at v and the others gone back; after it everything needed for v + 1 is in place.  Each
 * step is finished by the process that began it or undone by its repair, so at every instant one
 * version can be rebuilt completely, and all groups agree which.
 *
 * Checksums (crc32c per block) lie with the parity, for the parity and for every member, and with
 * each member for itself.  A slot checks a block of its copy before it forms a delta from it: a delta
 * from a corrupt copy would make the parity wrong and consistent with it.  Going back, it compares
 * its copy with the checksums that lie with the parity, and a rebuilt block is compared with the
 * checksum of the lost one: neither a stray store into a vault nor a wrong input goes unnoticed.
 * Which of the others a block is computed from is decided in Python (ftrma/vault/group.py).
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_READ 22 /* Linux 5.14; before, nothing happens and pages fault */
#define MADV_POPULATE_WRITE 23
#endif
#include <sys/stat.h>
#include <unistd.h>

#include "gf.h"
#include "control.h"
#include "internal.h"
#include "kernels.h"

#define MAGIC 0x4654524d41560001ull
#define BLOCK FTRMA_BLOCK
#define MAX_MEMBERS 255 /* of a group: k + m elements of GF(2^8) */

struct header {
    uint64_t magic;
    uint64_t capacity;      /* blocks of copy, and of stage */
    uint64_t used;          /* blocks of the copy for which memory is taken */
    uint64_t stage_room;    /* blocks of the stage for which memory is taken */
    struct ftrma_vault_words words;
    uint64_t stage_version; /* version being staged or summed; 0: nothing is */
    size_t ndirty;
    uint64_t npending[MAX_MEMBERS]; /* parity: blocks of each member in the sum */
};
_Static_assert(sizeof(struct header) <= BLOCK, "the header fills at most one block");

struct ftrma_vault {
    struct header *header;
    uint32_t *dirty;     /* [capacity] blocks that the stage holds, in its order */
    uint32_t *crc;       /* lists of [capacity]: of the copy; see list() for those of a parity */
    unsigned char *copy;
    unsigned char *stage;
    unsigned char *touched; /* [capacity] parity: 1 where the block is in the sum */
    size_t file_bytes;
    int fd;
    uint64_t copy_at, stage_at;
};

static uint64_t blocks_of(uint64_t bytes)
{
    return (bytes + BLOCK - 1) / BLOCK;
}

int ftrma_vault_open(const char *path, int create, uint64_t capacity, uint32_t group_size,
                     struct ftrma_vault **vault)
{
    uint64_t lists = blocks_of(capacity * 4) * BLOCK, crcs = lists * (1 + 3 * group_size);
    uint64_t touched = blocks_of(capacity) * BLOCK, head = BLOCK;
    struct ftrma_vault *v = calloc(1, sizeof *v);
    if (!v)
        return -ENOMEM;
    v->copy_at = head + lists + crcs + touched;
    v->stage_at = v->copy_at + capacity * BLOCK;
    v->file_bytes = v->stage_at + capacity * BLOCK;
    v->fd = ftrma_open(path, O_RDWR | (create ? O_CREAT | O_TRUNC : 0));
    struct stat st;
    int error = v->fd < 0 ? -v->fd : 0;
    if (!error && create && ftruncate(v->fd, (off_t)v->file_bytes))
        error = errno;
    /* A process killed while it made its vault leaves a shorter file: reading it would be fatal. */
    if (!error && !create)
        error = fstat(v->fd, &st) ? errno : (uint64_t)st.st_size < v->file_bytes ? EINVAL : 0;
    char *map = MAP_FAILED;
    if (!error) {
        map = mmap(NULL, v->file_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, v->fd,
                   0);
        error = map == MAP_FAILED ? errno : 0;
    }
    if (error) {
        if (v->fd >= 0)
            close(v->fd);
        free(v);
        return -error;
    }
    v->header = (struct header *)(void *)map;
    v->dirty = (uint32_t *)(void *)(map + head);
    v->crc = (uint32_t *)(void *)(map + head + lists);
    v->touched = (unsigned char *)map + head + lists + crcs;
    v->copy = (unsigned char *)map + v->copy_at;
    v->stage = (unsigned char *)map + v->stage_at;
    if (create) {
        v->header->capacity = capacity;
        v->header->magic = MAGIC;
    } else if (v->header->magic != MAGIC || v->header->capacity != capacity) {
        ftrma_vault_close(v);
        return -EINVAL;
    }
    *vault = v;
    return 0;
}

void ftrma_vault_close(struct ftrma_vault *v)
{
    munmap(v->header, v->file_bytes);
    close(v->fd);
    free(v);
}

static int take(struct ftrma_vault *v, uint64_t *room, uint64_t area, uint64_t blocks)
{
    uint64_t have = __atomic_load_n(room, __ATOMIC_ACQUIRE);
    if (blocks <= have)
        return 0;
    if (blocks > v->header->capacity)
        return -ENOSPC;
    int error = posix_fallocate(v->fd, (off_t)(area + have * BLOCK),
                                (off_t)((blocks - have) * BLOCK));
    if (!error)
        __atomic_store_n(room, blocks, __ATOMIC_RELEASE);
    return -error;
}

int ftrma_vault_reserve(struct ftrma_vault *v, uint64_t blocks, uint64_t staging)
{
    int error = take(v, &v->header->used, v->copy_at, blocks);
    return error ? error : take(v, &v->header->stage_room, v->stage_at, staging);
}

int ftrma_vault_stand_by(struct ftrma_vault *v, uint64_t blocks)
{
    uint64_t room = 0; /* not `used`: the vault is empty as before */
    int error = take(v, &room, v->copy_at, blocks);
    if (!error && madvise(v->copy, blocks * BLOCK, MADV_POPULATE_WRITE) && errno != EINVAL)
        error = -errno; /* kernels before 5.14 do not know this and fault later */
    return error;
}

void ftrma_vault_map(struct ftrma_vault *v)
{
    madvise(v->copy, ftrma_vault_used(v) * BLOCK, MADV_POPULATE_READ);
}

uint64_t ftrma_vault_used(const struct ftrma_vault *v)
{
    return __atomic_load_n(&v->header->used, __ATOMIC_ACQUIRE);
}

struct ftrma_vault_words *ftrma_vault_words(struct ftrma_vault *v)
{
    return &v->header->words;
}

void *ftrma_vault_block(struct ftrma_vault *v, uint64_t block)
{
    return v->copy + block * BLOCK;
}

void *ftrma_vault_stage_block(struct ftrma_vault *v, uint64_t index)
{
    return v->stage + index * BLOCK;
}

const uint32_t *ftrma_vault_dirty(const struct ftrma_vault *v, uint64_t *count)
{
    *count = v->header->ndirty;
    return v->dirty;
}

/* ---- a slot's side -------------------------------------------------------------------------- */

void ftrma_stage_begin(struct ftrma_vault *v, uint64_t version)
{
    v->header->ndirty = 0;
    __atomic_store_n(&v->header->stage_version, version, __ATOMIC_SEQ_CST);
}

uint64_t ftrma_stage(struct ftrma_vault *v, const void *now, uint64_t size_bytes, uint64_t block)
{
    size_t corrupt = 0;
    ftrma_delta_stage(now, v->copy + block * BLOCK, size_bytes, (uint32_t)block, v->stage, v->dirty,
                      &v->header->ndirty, v->crc + block, &corrupt);
    return corrupt;
}

uint64_t ftrma_stage_end(struct ftrma_vault *v)
{
    return v->header->ndirty;
}

uint64_t ftrma_write(struct ftrma_vault *v, const void *now, uint64_t size_bytes, uint64_t block)
{
    enum { BLOCKS = 4 }; /* at once: they stay in the nearest cache, and are read only once */
    _Alignas(64) unsigned char once[BLOCKS * BLOCK];
    uint64_t changed = 0;
    for (uint64_t at = 0; at < size_bytes; at += sizeof once, block += BLOCKS) {
        uint64_t n = size_bytes - at < sizeof once ? size_bytes - at : sizeof once;
        uint64_t before = changed, blocks = blocks_of(n);
        unsigned char *copy = v->copy + block * BLOCK;
        memcpy(once, (const char *)now + at, n);
        memset(once + n, 0, blocks * BLOCK - n);
        for (uint64_t b = 0; b < blocks; b++) {
            const unsigned char *from = once + b * BLOCK;
            uint32_t crc = ftrma_block_crc(from);
            changed += crc != v->crc[block + b] || memcmp(copy + b * BLOCK, from, BLOCK);
            v->crc[block + b] = crc;
        }
        if (changed > before)
            ftrma_copy_past(copy, once, blocks * BLOCK, NULL, 0);
    }
    return changed;
}

/* The process was killed while it staged one more block, perhaps: then the block's front is new, and
   its checksum is still that of the old one.  (If it had not begun, the block matches already.) */
static void undo_torn(struct ftrma_vault *v)
{
    const uint64_t *delta = (const uint64_t *)(const void *)(v->stage + v->header->ndirty * BLOCK);
    if (v->header->ndirty >= v->header->stage_room)
        return;
    uint32_t b = v->dirty[v->header->ndirty];
    if (b >= ftrma_vault_used(v) || ftrma_block_crc(v->copy + (uint64_t)b * BLOCK) == v->crc[b])
        return;
    uint64_t block[BLOCK / sizeof(uint64_t)];
    memcpy(block, v->copy + (uint64_t)b * BLOCK, BLOCK);
    for (size_t i = 0; i < BLOCK / sizeof *block; i++) {
        block[i] ^= delta[i];
        if (ftrma_block_crc(block) == v->crc[b]) {
            memcpy(v->copy + (uint64_t)b * BLOCK, block, BLOCK);
            return;
        }
    }
}

void ftrma_stage_undo(struct ftrma_vault *v, uint64_t version)
{
    struct header *h = v->header;
    if (h->stage_version > version) {
        undo_torn(v);
        ftrma_delta_undo(v->copy, v->stage, v->dirty, h->ndirty, 0);
        for (uint64_t d = 0; d < h->ndirty; d++) {
            uint32_t b = v->dirty[d];
            /* Of the last block the checksum may not have been brought up to date yet. */
            if (d + 1 < h->ndirty || ftrma_block_crc(v->copy + (uint64_t)b * BLOCK) != v->crc[b])
                v->crc[b] ^= ftrma_block_crc(v->stage + d * BLOCK);
        }
        h->ndirty = 0;
        __atomic_store_n(&h->stage_version, 0, __ATOMIC_SEQ_CST);
    }
}

/* ---- the parity's side ---------------------------------------------------------------------- */

/* Lists beside the parity: its own checksums, then for each member its checksums, and which blocks
   of it are in the sum with the checksums that they will have. */
enum list { CRC, PENDING_BLOCK, PENDING_CRC };

static uint32_t *list(struct ftrma_vault *parity, int member, enum list which)
{
    uint64_t stride = blocks_of(parity->header->capacity * 4) * BLOCK / 4;
    return parity->crc + (member < 0 ? 0 : 1 + 3 * (uint64_t)member + which) * stride;
}

static uint32_t *crc_of(struct ftrma_vault *parity, int member)
{
    return list(parity, member, CRC);
}

uint32_t *ftrma_vault_crc(struct ftrma_vault *v, int member)
{
    return crc_of(v, member);
}

/* to += g * from */
static void add(void *to, const void *from, uint8_t g, size_t n)
{
    if (g == 1)
        ftrma_xor_into(to, from, n);
    else
        ftrma_gf_fold(&to, 1, &from, 1, &g, n);
}

/* to = g * from */
static void set(void *to, const void *from, uint8_t g, size_t n)
{
    if (g == 1)
        memcpy(to, from, n);
    else
        ftrma_gf_encode(&to, 1, &from, 1, &g, n);
}

int ftrma_parity_expect(struct ftrma_vault *p, int i, uint64_t used, uint64_t ndirty,
                        uint32_t **block, uint32_t **crc)
{
    int error = ftrma_vault_reserve(p, used, used);
    if (error)
        return error;
    *block = list(p, i, PENDING_BLOCK);
    *crc = list(p, i, PENDING_CRC);
    p->header->npending[i] = ndirty;
    return 0;
}

/* Sums lie at the block's own place, so that members can differ in what changed. */
void ftrma_parity_add(struct ftrma_vault *p, int i, uint8_t g, uint64_t first, uint64_t count,
                      const void *deltas)
{
    const uint32_t *block = list(p, i, PENDING_BLOCK);
    for (uint64_t d = first; d < first + count; d++) {
        uint32_t b = block[d];
        const unsigned char *delta = (const unsigned char *)deltas + (d - first) * BLOCK;
        unsigned char *sum = p->stage + (uint64_t)b * BLOCK;
        if (p->touched[b]) {
            add(sum, delta, g, BLOCK);
            continue;
        }
        p->dirty[p->header->ndirty++] = b; /* first of all, for ftrma_parity_drop */
        set(sum, delta, g, BLOCK);
        p->touched[b] = 1;
    }
}

int ftrma_parity_sum(struct ftrma_vault *p, struct ftrma_vault *const *members, const uint8_t *g,
                     int n)
{
    for (int i = 0; i < n; i++) {
        struct ftrma_vault *m = members[i];
        uint32_t *block, *crc;
        int error = ftrma_parity_expect(p, i, ftrma_vault_used(m), m->header->ndirty, &block, &crc);
        if (error)
            return error;
        for (uint64_t d = 0; d < m->header->ndirty; d++) {
            block[d] = m->dirty[d];
            crc[d] = m->crc[block[d]];
        }
        ftrma_parity_add(p, i, g[i], 0, m->header->ndirty, m->stage);
    }
    return 0;
}

void ftrma_parity_drop(struct ftrma_vault *p)
{
    for (uint64_t d = 0; d < p->header->ndirty; d++)
        p->touched[p->dirty[d]] = 0;
    p->header->ndirty = 0;
    memset(p->header->npending, 0, sizeof p->header->npending);
}

void ftrma_parity_fold(struct ftrma_vault *p, uint64_t version)
{
    uint32_t *crc = crc_of(p, -1);
    __atomic_store_n(&p->header->words.folding, version, __ATOMIC_SEQ_CST);
    for (uint64_t d = 0; d < p->header->ndirty; d++) {
        uint32_t b = p->dirty[d];
        unsigned char *to = p->copy + (uint64_t)b * BLOCK;
        if (!p->touched[b])
            continue; /* folded before the process was killed */
        ftrma_xor_into(to, p->stage + (uint64_t)b * BLOCK, BLOCK);
        crc[b] = ftrma_block_crc(to);
        p->touched[b] = 0;
    }
    p->header->ndirty = 0;
    for (int i = 0; i < MAX_MEMBERS; i++) {
        for (uint64_t d = 0; d < p->header->npending[i]; d++)
            crc_of(p, i)[list(p, i, PENDING_BLOCK)[d]] = list(p, i, PENDING_CRC)[d];
        p->header->npending[i] = 0;
    }
    __atomic_store_n(&p->header->words.version, version, __ATOMIC_SEQ_CST);
}

void ftrma_parity_unstage(struct ftrma_vault *p, struct ftrma_vault *member, int i, uint8_t g)
{
    for (uint64_t d = 0; d < member->header->ndirty; d++) {
        uint32_t b = member->dirty[d];
        const unsigned char *delta = member->stage + d * BLOCK;
        add(p->copy + (uint64_t)b * BLOCK, delta, g, BLOCK);
        crc_of(p, -1)[b] = ftrma_block_crc(p->copy + (uint64_t)b * BLOCK);
        crc_of(p, i)[b] ^= ftrma_block_crc(delta);
    }
}

uint64_t ftrma_parity_version(const struct ftrma_vault *p)
{
    return __atomic_load_n(&p->header->words.version, __ATOMIC_ACQUIRE);
}

/* Block b of `to` = sum of the sources' blocks, each times its coefficient; a source that is shorter
   counts as zeros. */
static void combine(struct ftrma_vault *to, uint64_t b, struct ftrma_vault *const *sources,
                    const uint8_t *g, int n)
{
    const void *from[MAX_MEMBERS];
    uint8_t coefficient[MAX_MEMBERS];
    void *out = to->copy + b * BLOCK;
    size_t k = 0, ones = 0;
    for (int i = 0; i < n; i++)
        if (b < ftrma_vault_used(sources[i])) {
            from[k] = sources[i]->copy + b * BLOCK;
            ones += g[i] == 1;
            coefficient[k++] = g[i];
        }
    if (ones == k)
        ftrma_xor_many(out, from, k, BLOCK);
    else
        ftrma_gf_encode(&out, 1, from, k, coefficient, BLOCK);
}

int64_t ftrma_parity_rebuild(struct ftrma_vault *p, struct ftrma_vault *const *members,
                             const uint8_t *g, int n, uint64_t version)
{
    uint64_t most = 0;
    for (int i = 0; i < n; i++)
        if (ftrma_vault_used(members[i]) > most)
            most = ftrma_vault_used(members[i]);
    int error = ftrma_vault_reserve(p, most, 0);
    if (error)
        return -2 + error;
    for (uint64_t b = 0; b < most; b++) {
        combine(p, b, members, g, n);
        p->crc[b] = ftrma_block_crc(p->copy + b * BLOCK);
        for (int i = 0; i < n; i++) {
            if (b >= ftrma_vault_used(members[i]))
                continue;
            crc_of(p, i)[b] = ftrma_block_crc(members[i]->copy + b * BLOCK);
            if (crc_of(p, i)[b] != members[i]->crc[b])
                return (int64_t)b;
        }
    }
    __atomic_store_n(&p->header->words.version, version, __ATOMIC_SEQ_CST);
    return -1;
}

int64_t ftrma_check(struct ftrma_vault *v, struct ftrma_vault *parity, int member, uint64_t first,
                    uint64_t end)
{
    const uint32_t *crc = crc_of(parity, member);
    uint64_t used = ftrma_vault_used(v);
    for (uint64_t b = first; b < end && b < used; b++)
        if (ftrma_block_crc(v->copy + b * BLOCK) != crc[b])
            return (int64_t)b;
    return -1;
}

int64_t ftrma_rebuild(struct ftrma_vault *to, struct ftrma_vault *parity, int member,
                      struct ftrma_vault *const *sources, const uint8_t *g, int n, uint64_t first,
                      uint64_t end)
{
    const uint32_t *crc = crc_of(parity, member);
    uint64_t used = ftrma_vault_used(parity);
    end = end < used ? end : used;
    int error = ftrma_vault_reserve(to, end, 0);
    if (error)
        return -2 + error;
    for (uint64_t b = first; b < end; b++) {
        combine(to, b, sources, g, n);
        to->crc[b] = crc[b];
        if (ftrma_block_crc(to->copy + b * BLOCK) != crc[b])
            return (int64_t)b;
    }
    return -1;
}

void ftrma_vault_add(struct ftrma_vault *v, uint8_t g, uint64_t first, uint64_t count,
                     const void *blocks)
{
    add(v->copy + first * BLOCK, blocks, g, count * BLOCK);
}

void ftrma_vault_seal(struct ftrma_vault *v)
{
    uint64_t used = ftrma_vault_used(v);
    for (uint64_t b = 0; b < used; b++)
        v->crc[b] = ftrma_block_crc(v->copy + b * BLOCK);
}

uint64_t ftrma_copy_out(struct ftrma_vault *v, uint64_t block, void *to, uint64_t size_bytes)
{
    return ftrma_copy_changed(to, v->copy + block * BLOCK, size_bytes);
}

uint64_t ftrma_clear(void *to, uint64_t size_bytes)
{
    static const unsigned char zeros[BLOCK];
    uint64_t written = 0;
    for (uint64_t at = 0; at < size_bytes; at += BLOCK) {
        uint64_t n = size_bytes - at < BLOCK ? size_bytes - at : BLOCK;
        written += ftrma_copy_changed((char *)to + at, zeros, n);
    }
    return written;
}
