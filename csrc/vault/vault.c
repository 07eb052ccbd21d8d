/* The file of a vault: its map, its memory, its blocks and their checksums; and blocks that are
 * computed from other vaults. See vault_state.h. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22 /* Linux 5.14; on older kernels the call does nothing, and pages are
                                 mapped by faults */
#endif
#include <sys/stat.h>
#include <unistd.h>

#include "ahead.h"
#include "control.h"
#include "vault_state.h"

#define MAGIC 0x4654524d41560001ull
#define MOST (1ull << 40) /* blocks of a vault: no machine has so many, and no size below
                             overflows */

/* Each block has an element in `dirty`, in each list and in `touched`, a block of the copy and
   one of the stage. */
uint64_t ftrma_vault_block_bytes(uint32_t group_size)
{
    return 4 * (2 + 3 * (uint64_t)group_size) + 1 + 2 * BLOCK;
}

uint64_t ftrma_vault_capacity(const void *header)
{
    struct vault_header h;
    memcpy(&h, header, sizeof h);
    return h.magic == MAGIC ? h.capacity : 0;
}

/* 1 if all the blocks that a header counts have room in a vault of its capacity. */
static int fits(const struct vault_header *h)
{
    int all = h->used <= h->capacity && h->stage_room <= h->capacity && h->ndirty <= h->capacity;
    for (int i = 0; i < MAX_MEMBERS; i++)
        all &= h->npending[i] <= h->capacity;
    return all;
}

/* The capacity according to the file's header; 0 if the header is impossible. */
static uint64_t capacity_of(int fd)
{
    struct vault_header h;
    struct stat st;
    if (fstat(fd, &st) || pread(fd, &h, sizeof h, 0) != (ssize_t)sizeof h || !fits(&h))
        return 0;
    uint64_t capacity = ftrma_vault_capacity(&h);
    return capacity < (uint64_t)st.st_size / BLOCK ? capacity : 0;
}

/* Set where each area begins, in the file and, once it is mapped, in this process. */
static void lay_out(struct ftrma_vault *v, uint64_t capacity, char *map)
{
    uint64_t lists = blocks_of(capacity * 4) * BLOCK, crcs = lists * (1 + 3 * v->group_size);
    uint64_t touched = blocks_of(capacity) * BLOCK, head = BLOCK;
    v->copy_at = head + lists + crcs + touched;
    v->stage_at = v->copy_at + capacity * BLOCK;
    v->file_bytes = v->stage_at + capacity * BLOCK;
    if (!map)
        return;
    v->header = (struct vault_header *)(void *)map;
    v->dirty = (uint32_t *)(void *)(map + head);
    v->crc = (uint32_t *)(void *)(map + head + lists);
    v->touched = (unsigned char *)map + head + lists + crcs;
    v->copy = (unsigned char *)map + v->copy_at;
    v->stage = (unsigned char *)map + v->stage_at;
}

/* Give a new file its size, or check that an old one has it: a process that is killed while it
   makes its vault leaves a shorter file, and reading that would be fatal. Returns 0 or an errno
   value. */
static int size_file(const struct ftrma_vault *v, int create)
{
    struct stat st;
    if (create)
        return ftruncate(v->fd, (off_t)v->file_bytes) ? errno : 0;
    if (fstat(v->fd, &st))
        return errno;
    return (uint64_t)st.st_size < v->file_bytes ? EINVAL : 0;
}

int ftrma_vault_open(const char *path, int create, uint64_t capacity, uint32_t group_size,
                     struct ftrma_vault **vault)
{
    struct ftrma_vault *v = calloc(1, sizeof *v);
    if (!v)
        return -ENOMEM;
    v->fd = ftrma_open(path, O_RDWR | (create ? O_CREAT | O_TRUNC : 0));
    v->group_size = group_size;
    int error = v->fd < 0 ? -v->fd : 0;
    if (!error && !create && !(capacity = capacity_of(v->fd)))
        error = EINVAL;
    if (!error && (capacity > MOST || group_size > MAX_MEMBERS))
        error = EINVAL;
    if (!error) {
        lay_out(v, capacity, NULL);
        error = size_file(v, create);
    }
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
    lay_out(v, capacity, map);
    if (create) {
        v->header->capacity = capacity;
        v->header->magic = MAGIC;
    }
    pthread_mutex_init(&v->ahead.lock, NULL);
    *vault = v;
    return 0;
}

void ftrma_vault_close(struct ftrma_vault *v)
{
    ftrma_ahead_close(v);
    pthread_mutex_destroy(&v->ahead.lock);
    munmap(v->header, v->file_bytes);
    close(v->fd);
    free(v);
}

/* Allocate memory for blocks of an area. taken: blocks that are allocated already, though not in
   use. Returns 0 or an errno value. */
static int take(struct ftrma_vault *v, uint64_t *room, uint64_t area, uint64_t blocks,
                uint64_t taken)
{
    uint64_t have = __atomic_load_n(room, __ATOMIC_ACQUIRE);
    if (blocks <= have)
        return 0;
    if (blocks > v->header->capacity)
        return -ENOSPC;
    uint64_t from = have > taken ? have : taken;
    int error = from < blocks ? posix_fallocate(v->fd, (off_t)(area + from * BLOCK),
                                                (off_t)((blocks - from) * BLOCK))
                              : 0;
    if (!error)
        __atomic_store_n(room, blocks, __ATOMIC_RELEASE);
    return -error;
}

int ftrma_vault_reserve(struct ftrma_vault *v, uint64_t blocks, uint64_t staging)
{
    struct vault_header *h = v->header;
    ftrma_ahead_stop(v);
    for (int again = 0;; again = 1) {
        int error = take(v, &h->used, v->copy_at, blocks, v->ahead.taken[0]);
        if (!error)
            error = take(v, &h->stage_room, v->stage_at, staging, v->ahead.taken[1]);
        if (error != -ENOSPC || again)
            return error;
        ftrma_ahead_give_back(v, blocks, staging); /* one area may have allocated memory that the
                                                      other one needs */
    }
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

uint32_t *ftrma_vault_crc(struct ftrma_vault *v, int member)
{
    return crc_of(v, member);
}

uint64_t ftrma_parity_version(const struct ftrma_vault *p)
{
    return __atomic_load_n(&p->header->words.version, __ATOMIC_ACQUIRE);
}

/* ---- of a vault that is somewhere else ------------------------------------------------------- */

void *ftrma_vault_area(struct ftrma_vault *v, int area, int member, uint64_t *offset)
{
    if (member < -1 || member >= (int)v->group_size || (member >= 0 && area != FTRMA_VAULT_CRC))
        return NULL;
    char *head = (char *)v->header, *at = NULL;
    switch (area) {
    case FTRMA_VAULT_HEAD:
        at = head;
        break;
    case FTRMA_VAULT_DIRTY:
        at = (char *)v->dirty;
        break;
    case FTRMA_VAULT_CRC:
        at = (char *)crc_of(v, member);
        break;
    case FTRMA_VAULT_COPY:
        at = (char *)v->copy;
        break;
    case FTRMA_VAULT_STAGE:
        at = (char *)v->stage;
        break;
    default:
        return NULL;
    }
    *offset = (uint64_t)(at - head);
    return at;
}

int ftrma_vault_adopt(struct ftrma_vault *v, const void *header)
{
    struct vault_header h;
    memcpy(&h, header, sizeof h);
    if (h.magic != MAGIC || h.capacity != v->header->capacity || !fits(&h))
        return -EINVAL;
    memcpy(v->header, &h, sizeof h);
    return 0;
}

int ftrma_vault_drop(struct ftrma_vault *v)
{
    char *behind = (char *)v->header + BLOCK;
    return madvise(behind, v->file_bytes - BLOCK, MADV_REMOVE) ? -errno : 0;
}

/* ---- what is in the copy -------------------------------------------------------------------- */

uint64_t ftrma_write(struct ftrma_vault *v, const void *now, uint64_t size_bytes, uint64_t block)
{
    enum { BLOCKS = 4 }; /* blocks at once: they stay in the nearest cache, and are read only
                            once */
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
            ftrma_copy_past(copy, once, blocks * BLOCK, NULL, 0, NULL);
    }
    return changed;
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

/* ---- computed from other vaults ------------------------------------------------------------- */

/* Set block b of `to` to the sum of the sources' blocks, each times its coefficient. Beyond its end
   a shorter source counts as zeros. */
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
                             const uint8_t *g, int n, uint64_t version, uint64_t first,
                             uint64_t end)
{
    uint64_t most = 0;
    for (int i = 0; i < n; i++)
        if (ftrma_vault_used(members[i]) > most)
            most = ftrma_vault_used(members[i]);
    int error = ftrma_vault_reserve(p, most, 0);
    if (error)
        return -2 + error;
    for (uint64_t b = first; b < end && b < most; b++) {
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
    if (end >= most)
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

int64_t ftrma_first_damaged(const void *data, uint64_t blocks, const uint32_t *crc)
{
    for (uint64_t b = 0; b < blocks; b++)
        if (ftrma_block_crc((const char *)data + b * BLOCK) != crc[b])
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
