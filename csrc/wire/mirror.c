/* The state of a mirror: its file, and the regions of the mirrored file. See mirror.h. */
#define _GNU_SOURCE
#include "mirror.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAGIC 0x4654524d414d0001ull
#define MOST_REGIONS (1u << 20)
#define MOST_BYTES (1ull << 32) /* of a mirrored file */

/* ---- regions ---- */

static uint64_t hash_of(const struct ftrma_mirror_region *regions, uint64_t n)
{
    uint64_t hash = 0xcbf29ce484222325ull; /* FNV-1a; 0 means that nothing is mirrored */
    const unsigned char *bytes = (const void *)regions;
    for (size_t i = 0; i < n * sizeof *regions; i++)
        hash = (hash ^ bytes[i]) * 0x100000001b3ull;
    return hash ? hash : 1;
}

/* Count regions, words and bytes. Returns 0, or -EINVAL if a region is impossible, or two share a
   word. */
static int measure(const struct ftrma_mirror_region *regions, uint64_t n,
                   struct ftrma_mirror_header *h)
{
    uint64_t kinds[FTRMA_MIRROR_KINDS] = {0};
    h->regions = n;
    h->words = h->mirrored_bytes = 0;
    for (uint64_t i = 0; i < n; i++) {
        const struct ftrma_mirror_region *r = &regions[i];
        if (r->kind >= FTRMA_MIRROR_KINDS || r->offset % 8 || r->bytes % 8 || !r->bytes
            || r->offset > MOST_BYTES || r->bytes > MOST_BYTES
            || (r->kind > FTRMA_MIRROR_HOT && r->bytes != 8))
            return -EINVAL;
        kinds[r->kind]++;
        h->words += r->kind == FTRMA_MIRROR_BELL ? 0 : r->bytes / 8;
        uint64_t end = r->offset + r->bytes;
        h->mirrored_bytes = end > h->mirrored_bytes ? end : h->mirrored_bytes;
    }
    if (!h->words || kinds[FTRMA_MIRROR_ALARM] > 1
        || kinds[FTRMA_MIRROR_CALM] != kinds[FTRMA_MIRROR_ALARM])
        return -EINVAL;
    unsigned char *used = calloc(h->mirrored_bytes / 8, 1);
    int error = used ? 0 : -ENOMEM;
    for (uint64_t i = 0; i < n && !error; i++)
        for (uint64_t o = 0; o < regions[i].bytes; o += 8)
            if (used[(regions[i].offset + o) / 8]++)
                error = -EINVAL;
    free(used);
    return error;
}

/* ---- the state's file ---- */

/* Lay out the areas of the state. [out] at: where each begins. Returns the bytes of the file. */
static uint64_t layout(const struct ftrma_mirror_header *h, uint64_t at[5])
{
    uint64_t sizes[5] = {h->regions * sizeof(struct ftrma_mirror_region),
                         FTRMA_WIRE_NODES * sizeof(uint64_t), h->words * sizeof(uint64_t),
                         h->words * sizeof(uint64_t), FTRMA_WIRE_PAYLOAD_BYTES};
    uint64_t next = sizeof *h;
    for (int i = 0; i < 5; i++) {
        at[i] = next;
        next += sizes[i];
    }
    return next;
}

/* Map a whole file of this user. private: nobody else may have access to it. Returns 0 or
   -errno. */
static int map_file(int directory, const char *name, int private, char **map, uint64_t *bytes)
{
    struct stat st;
    int fd = openat(directory, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return -errno;
    int error = fstat(fd, &st) ? -errno
                : !S_ISREG(st.st_mode) || st.st_uid != geteuid() || (private && st.st_mode & 077)
                    ? -EPERM
                : st.st_size < (off_t)sizeof(uint64_t) ? -EINVAL : 0;
    if (!error) {
        *bytes = (uint64_t)st.st_size;
        char *mapped = mmap(NULL, *bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        error = mapped == MAP_FAILED ? -errno : 0;
        *map = error ? NULL : mapped;
    }
    close(fd);
    return error;
}

static void place(struct ftrma_mirror *m, char *map, const uint64_t at[5])
{
    m->header = (void *)map;
    m->regions = (void *)(map + at[0]);
    m->taken = (void *)(map + at[1]);
    m->shadow = (void *)(map + at[2]);
    m->pending = (void *)(map + at[3]);
    m->journal = (void *)(map + at[4]);
}

/* Fill a state that is all zeros. The present words of the file count as known to all nodes. */
static void fill(char *map, const struct ftrma_mirror_header *h, const uint64_t at[5],
                 const struct ftrma_mirror_region *regions, const char *file)
{
    struct ftrma_mirror m;
    place(&m, map, at);
    memcpy(m.regions, regions, h->regions * sizeof *regions);
    uint64_t w = 0;
    for (uint64_t i = 0; i < h->regions; i++)
        for (uint64_t o = 0; regions[i].kind != FTRMA_MIRROR_BELL && o < regions[i].bytes; o += 8)
            m.shadow[w++] = LOAD((const uint64_t *)(const void *)(file + regions[i].offset + o));
    *m.header = *h;
    STORE(&m.header->magic, MAGIC);
}

int ftrma_mirror_make(const char *path, const char *file, const struct ftrma_mirror_region *regions,
                      uint32_t n)
{
    struct ftrma_mirror_header h = {0};
    uint64_t at[5], bytes = 0;
    char *map = NULL;
    int directory = ftrma_ledger_beside(path);
    if (directory < 0)
        return -errno;
    int error = n > MOST_REGIONS || strchr(file, '/')
                        || snprintf(h.file, sizeof h.file, "%s", file) >= (int)sizeof h.file
                    ? -EINVAL
                    : measure(regions, n, &h);
    if (!error)
        error = map_file(directory, file, 0, &map, &bytes);
    close(directory);
    if (!error && bytes < h.mirrored_bytes)
        error = -EINVAL;
    h.file_bytes = layout(&h, at);
    h.hash = hash_of(regions, n);
    int fd = error ? -1 : open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    char *state = MAP_FAILED;
    if (!error && (fd < 0 || ftruncate(fd, (off_t)h.file_bytes)
                   || (state = mmap(NULL, h.file_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0))
                          == MAP_FAILED))
        error = -errno;
    if (!error) {
        fill(state, &h, at, regions, map);
        munmap(state, h.file_bytes);
    }
    if (fd >= 0)
        close(fd);
    if (map)
        munmap(map, bytes);
    return error;
}

int ftrma_mirror_scans(const char *path, const uint64_t **scans, const uint64_t **ordered)
{
    int directory = ftrma_ledger_beside(path);
    const char *name = strrchr(path, '/');
    uint64_t bytes = 0;
    char *map = NULL;
    if (directory < 0)
        return -errno;
    int error = map_file(directory, name ? name + 1 : path, 0, &map, &bytes);
    close(directory);
    const struct ftrma_mirror_header *h = (const void *)map;
    if (!error && (bytes < sizeof *h || h->magic != MAGIC))
        error = -EINVAL;
    if (!error) {
        *scans = &h->scans;
        *ordered = &h->ordered;
    }
    return error;
}

/* ---- in an agent ---- */

/* Check that a file is the whole state of a mirror. Returns 0 or -errno. */
static int examine(struct ftrma_mirror *m, char *map, uint64_t bytes)
{
    struct ftrma_mirror_header *h = (void *)map, counted = {0};
    uint64_t at[5];
    if (bytes < sizeof *h || h->magic != MAGIC || h->regions > MOST_REGIONS
        || h->words > MOST_BYTES / 8 || layout(h, at) != h->file_bytes || bytes < h->file_bytes
        || !memchr(h->file, 0, sizeof h->file) || strchr(h->file, '/'))
        return -EINVAL;
    int error = measure((void *)(map + at[0]), h->regions, &counted);
    if (error)
        return error;
    if (counted.words != h->words || counted.mirrored_bytes != h->mirrored_bytes
        || h->hash != hash_of((void *)(map + at[0]), h->regions)
        || h->count > FTRMA_MIRROR_MESSAGE_WORDS || h->done > h->count
        || h->from >= FTRMA_WIRE_NODES)
        return -EINVAL;
    place(m, map, at);
    return 0;
}

/* Find the address and kind of each word. Returns 0 or -ENOMEM. */
static int find_words(struct ftrma_mirror *m, uint32_t node)
{
    const struct ftrma_mirror_header *h = m->header;
    m->at = calloc(h->words, sizeof *m->at);
    m->kinds = calloc(h->words, 1);
    m->found = calloc(h->words, sizeof *m->found);
    if (!m->at || !m->kinds || !m->found)
        return -ENOMEM;
    uint64_t w = 0;
    for (uint64_t i = 0; i < h->regions; i++) {
        const struct ftrma_mirror_region *r = &m->regions[i];
        for (uint64_t o = 0; r->kind != FTRMA_MIRROR_BELL && o < r->bytes; o += 8, w++) {
            m->at[w] = (uint64_t *)(void *)(m->file + r->offset + o);
            m->kinds[w] = (unsigned char)r->kind;
        }
        if (r->kind == FTRMA_MIRROR_ECHO && m->echoes++ == 0)
            m->first_echo = w - 1;
        if (r->kind == FTRMA_MIRROR_ALARM)
            m->alarm = m->at[w - 1];
        if (r->kind == FTRMA_MIRROR_CALM)
            m->calm = m->at[w - 1];
    }
    m->echo = node < m->echoes ? m->at[m->first_echo + node] : NULL;
    return 0;
}

int ftrma_mirror_lost(const struct ftrma_mirror *m, uint32_t node)
{
    return node < m->echoes && LOAD(m->at[m->first_echo + node]) == FTRMA_MIRROR_LOST;
}

int ftrma_mirror_open(const char *path, uint32_t node, struct ftrma_mirror **mirror)
{
    struct ftrma_mirror *m = calloc(1, sizeof *m);
    int directory = m ? ftrma_ledger_beside(path) : -1;
    int error = !m ? -ENOMEM : directory < 0 ? -errno : 0;
    const char *name = strrchr(path, '/');
    char *map = NULL;
    uint64_t bytes = 0;
    if (!error)
        error = map_file(directory, name ? name + 1 : path, 1, &map, &bytes);
    if (!error && (error = examine(m, map, bytes)))
        munmap(map, bytes);
    if (!error)
        error = map_file(directory, m->header->file, 0, &m->file, &m->bytes);
    if (!error && m->bytes < m->header->mirrored_bytes)
        error = -EINVAL;
    if (!error)
        error = find_words(m, node);
    if (directory >= 0)
        close(directory);
    if (error) {
        if (m)
            ftrma_mirror_close(m);
        return error;
    }
    *mirror = m;
    return 0;
}

void ftrma_mirror_close(struct ftrma_mirror *m)
{
    if (m->file)
        munmap(m->file, m->bytes);
    if (m->header)
        munmap(m->header, m->header->file_bytes);
    free(m->at);
    free(m->kinds);
    free(m->found);
    free(m);
}
