/* A checkpoint from version v to v + 1, as the vaults (vault_state.h) see it:
 *
 *   stage   every slot: stage = window ^ copy, copy = window, in one pass over memory
 *   sum     every checksum rank: stage = sum of its members' stages; the parity is still at v
 *   commit  one compare-and-swap by whoever sees all groups summed (ftrma/protocol/server.py)
 *   fold    every checksum rank: parity ^= stage; the parity is at v + 1
 *
 * Before the commit a slot goes back to v by copy ^= stage, and a lost slot is computed from the
 * parity at v and the other members' copies, which have gone back to v. After the commit everything
 * needed for v + 1 is in place. Each step is finished by the process that began it or undone by its
 * repair, so at every instant one version can be rebuilt completely, and all groups agree on which.
 *
 * A process can also be killed while it undoes or folds; the one that takes over the vault then
 * does this again. Adding a delta twice would cancel it. So the header names the delta that is
 * being added, by its place in the dirty list, and the checksum that its block will have: they show
 * how far the addition has come. A slot that stages in steps may stage a block several times, with
 * one delta each time.
 */
#include <errno.h>
#include <string.h>

#include "vault_state.h"

#define WORDS ((long)(BLOCK / sizeof(uint64_t)))
#define CACHE_LINE 64 /* bytes */

/* ---- a slot's side -------------------------------------------------------------------------- */

void ftrma_stage_begin(struct ftrma_vault *v, uint64_t version)
{
    v->header->ndirty = 0;
    v->header->torn = 0;
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

/* Count the words of a block's front that an addition of `delta` had reached when its process was
   killed. For the right count the block has this checksum when the delta is added to the other
   words (rest), or removed from the front again (not rest). Returns -1 if no count is right, so
   that the block is damaged. */
static long torn_words(const unsigned char *at, const unsigned char *delta, uint32_t crc, int rest)
{
    uint64_t block[WORDS], add[WORDS];
    memcpy(block, at, BLOCK);
    memcpy(add, delta, BLOCK);
    for (long i = 0; rest && i < WORDS; i++)
        block[i] ^= add[i];
    for (long i = 0; i <= WORDS; i++) {
        if (ftrma_block_crc(block) == crc)
            return i;
        if (i < WORDS)
            block[i] ^= add[i];
    }
    return -1;
}

/* Add the words [first, end) of a delta to a block in this order, or down from `first` if `end` is
   smaller: even if the process is killed during this, the changed words are a front. */
static void add_words(unsigned char *at, const unsigned char *delta, long first, long end)
{
    volatile uint64_t *block = (volatile uint64_t *)(void *)at;
    const uint64_t *add = (const uint64_t *)(const void *)delta;
    for (long i = first; i < end; i++)
        block[i] ^= add[i];
    for (long i = first; i-- > end;)
        block[i] ^= add[i];
}

/* Add the delta at place d of the dirty list to its block, which then has the checksum `crc`;
   continue the addition if a process was killed during it. The caller stores the checksum, removes
   the delta from its list, and only then begins another one. */
static void add_once(struct ftrma_vault *v, uint64_t d, const unsigned char *delta, uint32_t crc)
{
    struct vault_header *h = v->header;
    unsigned char *at = v->copy + (uint64_t)v->dirty[d] * BLOCK;
    if (__atomic_load_n(&h->torn, __ATOMIC_ACQUIRE) == d + 1) {
        long front = torn_words(at, delta, (uint32_t)h->torn_crc, 1);
        if (front >= 0)
            add_words(at, delta, front, WORDS);
        return;
    }
    h->torn_crc = crc;
    __atomic_store_n(&h->torn, d + 1, __ATOMIC_RELEASE);
    ftrma_xor_into(at, delta, BLOCK);
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
}

/* Prefetch a block, which is loaded while the checksum of its delta is computed. */
static void fetch(const unsigned char *at)
{
    for (size_t i = 0; i < BLOCK; i += CACHE_LINE)
        __builtin_prefetch(at + i, 1);
}

/* Undo a block that a process was perhaps staging when it was killed: the block's front is new
   then, and its checksum is still that of the old block. (If the process had not begun, the block
   matches already.) */
static void undo_torn(struct ftrma_vault *v)
{
    const unsigned char *delta = v->stage + v->header->ndirty * BLOCK;
    if (v->header->ndirty >= v->header->stage_room)
        return;
    uint32_t b = v->dirty[v->header->ndirty];
    if (b >= ftrma_vault_used(v))
        return;
    unsigned char *at = v->copy + (uint64_t)b * BLOCK;
    long front = torn_words(at, delta, v->crc[b], 0);
    if (front > 0)
        add_words(at, delta, front, 0);
}

/* Undo the newest block first, so that the list always has the blocks that are still to be
   undone. */
void ftrma_stage_undo(struct ftrma_vault *v, uint64_t version)
{
    struct vault_header *h = v->header;
    if (h->stage_version <= version)
        return;
    if (!h->torn)
        undo_torn(v);
    for (int newest = 1; h->ndirty; newest = 0) {
        uint64_t d = h->ndirty - 1;
        uint32_t b = v->dirty[d], was = v->crc[b] ^ ftrma_block_crc(v->stage + d * BLOCK);
        const unsigned char *at = v->copy + (uint64_t)b * BLOCK;
        if (h->torn == d + 1)
            was = (uint32_t)h->torn_crc;
        /* The checksum of the newest block may not have been updated yet. */
        else if (newest && ftrma_block_crc(at) == was)
            was = v->crc[b];
        add_once(v, d, v->stage + d * BLOCK, was);
        v->crc[b] = was;
        __atomic_store_n(&h->ndirty, d, __ATOMIC_RELEASE);
    }
    __atomic_store_n(&h->stage_version, 0, __ATOMIC_SEQ_CST);
    __atomic_store_n(&h->torn, 0, __ATOMIC_SEQ_CST);
}

/* ---- the parity's side ---------------------------------------------------------------------- */

/* Set to = g * from. */
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
    int error = ndirty > p->header->capacity ? -EINVAL : ftrma_vault_reserve(p, used, used);
    if (error)
        return error;
    *block = list(p, i, PENDING_BLOCK);
    *crc = list(p, i, PENDING_CRC);
    p->header->npending[i] = ndirty;
    return 0;
}

/* A sum lies at its block's own place, so that members can differ in the blocks that changed. */
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
        p->dirty[p->header->ndirty++] = b; /* before all else, for ftrma_parity_drop */
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
        if (!m)
            continue; /* its delta is added in steps */
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
    if (p->header->words.folding != version) /* otherwise the folding was begun before, and is
                                                continued */
        p->header->torn = 0;
    __atomic_store_n(&p->header->words.folding, version, __ATOMIC_SEQ_CST);
    for (uint64_t d = 0; d < p->header->ndirty; d++) {
        uint32_t b = p->dirty[d];
        const unsigned char *delta = p->stage + (uint64_t)b * BLOCK;
        if (!p->touched[b])
            continue; /* folded before the process was killed */
        fetch(p->copy + (uint64_t)b * BLOCK);
        uint32_t now = p->header->torn == d + 1 ? (uint32_t)p->header->torn_crc
                                                : crc[b] ^ ftrma_block_crc(delta);
        add_once(p, d, delta, now);
        crc[b] = now;
        __atomic_store_n(&p->touched[b], 0, __ATOMIC_RELEASE);
    }
    p->header->ndirty = 0;
    p->header->torn = 0;
    for (int i = 0; i < MAX_MEMBERS; i++) {
        for (uint64_t d = 0; d < p->header->npending[i]; d++)
            crc_of(p, i)[list(p, i, PENDING_BLOCK)[d]] = list(p, i, PENDING_CRC)[d];
        p->header->npending[i] = 0;
    }
    __atomic_store_n(&p->header->words.version, version, __ATOMIC_SEQ_CST);
}

void ftrma_parity_unstage(struct ftrma_vault *p, int i, uint8_t g, const uint32_t *blocks,
                          uint64_t count, const void *deltas)
{
    for (uint64_t d = 0; d < count; d++) {
        uint32_t b = blocks[d];
        const unsigned char *delta = (const unsigned char *)deltas + d * BLOCK;
        add(p->copy + (uint64_t)b * BLOCK, delta, g, BLOCK);
        crc_of(p, -1)[b] = ftrma_block_crc(p->copy + (uint64_t)b * BLOCK);
        crc_of(p, i)[b] ^= ftrma_block_crc(delta);
    }
}
