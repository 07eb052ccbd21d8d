/* The ledger's file: its layout, the parts it speaks of, what a new agent finds. See ledger.h. */
#define _GNU_SOURCE
#include "ledger.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MAGIC 0x4654524d41570001ull
#define LINE 64
#define MOST_SLOTS 4096

/* Bytes of the file up to and with each area; [out] where each begins, in the order of the struct. */
static uint64_t layout(const struct ftrma_ledger_header *h, uint64_t at[6])
{
    uint64_t sizes[6] = {
        h->targets * sizeof(struct ftrma_ledger_target), h->origins * sizeof(uint64_t),
        h->words * sizeof(uint64_t), h->parts * sizeof(struct ftrma_ledger_part),
        (uint64_t)h->origins * h->targets * sizeof(struct ftrma_ledger_pair),
        (uint64_t)h->parts * h->origins};
    uint64_t next = (sizeof *h + LINE - 1) / LINE * LINE;
    for (int i = 0; i < 6; i++) {
        at[i] = next;
        next = (next + sizes[i] + LINE - 1) / LINE * LINE;
    }
    return next;
}

int ftrma_ledger_make(const char *path, uint32_t origins, uint32_t targets, uint32_t parts,
                      uint32_t words)
{
    struct ftrma_ledger_header h = {
        .magic = MAGIC, .origins = origins, .targets = targets, .parts = parts, .words = words};
    if (!origins || origins > MOST_SLOTS || !targets || targets > MOST_SLOTS || !parts
        || parts > (1u << 20) || !words || words > (1u << 20))
        return -EINVAL;
    uint64_t at[6];
    h.file_bytes = layout(&h, at);
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return -errno;
    /* The header goes last: who finds a file without it does not take it for a ledger. */
    int failed = ftruncate(fd, (off_t)h.file_bytes)
                 || pwrite(fd, &h, sizeof h, 0) != (ssize_t)sizeof h;
    int error = failed ? errno : 0;
    close(fd);
    return -error;
}

/* Whether the file is a ledger, whole and this user's. 0 or -errno. */
static int examine(int fd, struct ftrma_ledger_header *h)
{
    struct stat st;
    uint64_t at[6];
    if (fstat(fd, &st))
        return -errno;
    if (!S_ISREG(st.st_mode) || st.st_uid != geteuid() || (st.st_mode & 077))
        return -EPERM;
    if (pread(fd, h, sizeof *h, 0) != (ssize_t)sizeof *h || h->magic != MAGIC
        || h->origins > MOST_SLOTS || h->targets > MOST_SLOTS || h->parts > (1u << 20)
        || h->words > (1u << 20) || layout(h, at) != h->file_bytes
        || (uint64_t)st.st_size < h->file_bytes)
        return -EINVAL;
    return 0;
}

/* The directory that parts' files lie in. */
static int open_beside(const char *path)
{
    char *name = strdup(path), *slash = name ? strrchr(name, '/') : NULL;
    if (slash)
        slash[slash == name] = 0;
    int fd = name ? open(slash ? name : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    free(name);
    return fd;
}

int ftrma_ledger_open(const char *path, struct ftrma_ledger **ledger)
{
    struct ftrma_ledger_header h;
    struct ftrma_ledger *l = calloc(1, sizeof *l);
    if (!l)
        return -ENOMEM;
    l->fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    l->directory = open_beside(path);
    int error = l->fd < 0 || l->directory < 0 ? -errno : examine(l->fd, &h);
    if (!error && !(l->mapped = calloc(h.parts, sizeof *l->mapped)))
        error = -ENOMEM;
    char *map = MAP_FAILED;
    if (!error)
        map = mmap(NULL, h.file_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, l->fd, 0);
    if (!error && map == MAP_FAILED)
        error = -errno;
    if (error) {
        ftrma_ledger_close(l);
        return error;
    }
    uint64_t at[6];
    layout(&h, at);
    l->header = (void *)map;
    l->targets = (void *)(map + at[0]);
    l->incarnations = (void *)(map + at[1]);
    l->words = (void *)(map + at[2]);
    l->parts = (void *)(map + at[3]);
    l->pairs = (void *)(map + at[4]);
    l->holds = (void *)(map + at[5]);
    *ledger = l;
    return 0;
}

void ftrma_ledger_close(struct ftrma_ledger *l)
{
    for (uint32_t i = 0; l->header && i < l->header->parts; i++)
        if (l->mapped[i].base)
            munmap(l->mapped[i].map, l->mapped[i].map_bytes);
    if (l->header)
        munmap(l->header, l->header->file_bytes);
    if (l->fd >= 0)
        close(l->fd);
    if (l->directory >= 0)
        close(l->directory);
    free(l->mapped);
    free(l);
}

int ftrma_ledger_lock(const struct ftrma_ledger *l)
{
    return flock(l->fd, LOCK_EX | LOCK_NB) ? -errno : 0;
}

/* ---- parts ---- */

int ftrma_ledger_place(struct ftrma_ledger *l, uint32_t index, uint32_t window, uint32_t target,
                       uint32_t generation, const char *file, uint64_t at, uint64_t bytes)
{
    if (index >= l->header->parts || target >= l->header->targets || !generation || !*file
        || strlen(file) >= FTRMA_WIRE_NAME || strchr(file, '/') || at % 8)
        return -EINVAL;
    struct ftrma_ledger_part *part = &l->parts[index];
    STORE(&part->generation, 0);
    part->window = window;
    part->target = target;
    part->at = at;
    part->bytes = bytes;
    memset(part->file, 0, sizeof part->file);
    memcpy(part->file, file, strlen(file));
    STORE(&part->generation, generation);
    return 0;
}

static int is_part(const struct ftrma_ledger_part *part, uint32_t window, uint32_t target,
                   uint32_t generation)
{
    return generation && LOAD(&part->generation) == generation && part->window == window
           && part->target == target;
}

int ftrma_ledger_find(struct ftrma_ledger *l, uint32_t window, uint32_t target, uint32_t generation)
{
    if (is_part(&l->parts[l->found], window, target, generation))
        return (int)l->found;
    for (uint32_t i = 0; i < l->header->parts; i++)
        if (is_part(&l->parts[i], window, target, generation)) {
            l->found = i;
            return (int)i;
        }
    return -1;
}

unsigned char *ftrma_ledger_base(struct ftrma_ledger *l, uint32_t index)
{
    struct ftrma_ledger_part *part = &l->parts[index];
    struct ftrma_mapped *m = &l->mapped[index];
    if (m->base && m->generation == part->generation)
        return m->base;
    if (m->base)
        munmap(m->map, m->map_bytes);
    m->base = NULL;
    /* Less than was said would be fatal to read. */
    struct stat st;
    uint64_t end;
    int fd = openat(l->directory, part->file, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0 || fstat(fd, &st) || st.st_uid != geteuid()
        || __builtin_add_overflow(part->at, part->bytes, &end) || (uint64_t)st.st_size < end) {
        if (fd >= 0)
            close(fd);
        return NULL;
    }
    char *map = mmap(NULL, end, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (map == MAP_FAILED)
        return NULL;
    *m = (struct ftrma_mapped){(unsigned char *)map + part->at, map, end, part->generation};
    return m->base;
}

void ftrma_ledger_put_back(struct ftrma_ledger *l)
{
    for (uint32_t i = 0; i < l->header->parts; i++) {
        struct ftrma_ledger_part *part = &l->parts[i];
        struct ftrma_undo *undo = &part->undo;
        uint64_t number = LOAD(&undo->number);
        if (number && LOAD(&ftrma_ledger_pair(l, undo->origin, part->target)->number) < number) {
            int same = part->generation && part->generation == undo->generation;
            unsigned char *base = same ? ftrma_ledger_base(l, i) : NULL;
            if (base) /* else the part is gone, and what was inside of it */
                memcpy(base + undo->offset, undo->old, undo->bytes);
        }
        STORE(&undo->number, 0);
        if (LOAD(&part->owner) == -1)
            STORE(&part->owner, 0);
    }
}

/* ---- roles and words ---- */

/* Make an area zeros. Most of it has no memory yet, which even to read it would take. */
static void clear(struct ftrma_ledger *l, void *area, size_t bytes)
{
    off_t at = (char *)area - (char *)l->header;
    if (fallocate(l->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, at, (off_t)bytes))
        memset(area, 0, bytes);
}

static void forget(struct ftrma_ledger *l)
{
    struct ftrma_ledger_header *h = l->header;
    clear(l, l->pairs, (size_t)h->origins * h->targets * sizeof *l->pairs);
    clear(l, l->holds, (size_t)h->parts * h->origins);
    for (uint32_t i = 0; i < h->parts; i++)
        STORE(&l->parts[i].undo.number, 0);
    STORE(&h->forgetting, 0);
}

void ftrma_ledger_roles(struct ftrma_ledger *l, uint64_t epoch, int forgets,
                        void (*between)(void *arg), void *arg)
{
    if (epoch <= l->header->epoch)
        return;
    if (forgets)
        STORE(&l->header->forgetting, epoch);
    STORE(&l->header->epoch, epoch);
    between(arg);
    if (forgets)
        forget(l);
}

void ftrma_ledger_finish_roles(struct ftrma_ledger *l)
{
    if (l->header->forgetting && l->header->forgetting <= l->header->epoch)
        forget(l);
    STORE(&l->header->forgetting, 0);
}

void ftrma_ledger_set(struct ftrma_ledger *l, uint64_t word, uint64_t value)
{
    uint64_t *at = &l->words[word], now = LOAD(at);
    while (now < value
           && !__atomic_compare_exchange_n(at, &now, value, 0, __ATOMIC_SEQ_CST, __ATOMIC_ACQUIRE))
        ;
    __atomic_add_fetch(&l->header->bell, 1, __ATOMIC_SEQ_CST);
    syscall(SYS_futex, &l->header->bell, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* ---- what others look at ---- */

uint64_t *ftrma_ledger_word(struct ftrma_ledger *l, uint32_t word)
{
    return word < l->header->words ? &l->words[word] : NULL;
}

struct ftrma_ledger_target *ftrma_ledger_target(struct ftrma_ledger *l, uint32_t target)
{
    return target < l->header->targets ? &l->targets[target] : NULL;
}

int32_t *ftrma_ledger_owner(struct ftrma_ledger *l, uint32_t part)
{
    return part < l->header->parts ? &l->parts[part].owner : NULL;
}

uint64_t ftrma_ledger_number(struct ftrma_ledger *l, uint32_t origin, uint32_t target)
{
    if (origin >= l->header->origins || target >= l->header->targets)
        return 0;
    return LOAD(&ftrma_ledger_pair(l, origin, target)->number);
}

uint64_t ftrma_ledger_agents(struct ftrma_ledger *l)
{
    return LOAD(&l->header->agents);
}
