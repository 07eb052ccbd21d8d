/* A checkpoint from version v to v + 1, as the vaults (vault.h) see it:
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
 */
#include <string.h>

#include "vault.h"

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
    struct vault_header *h = v->header;
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
        if (!m)
            continue; /* it is added in steps */
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
