/* The file of the ledger, its bell, and the clocks of targets.  See ledger.h. */
#define _GNU_SOURCE
#include "ledger.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAGIC 0x4654524d41570002ull
#define BELL ".bell"
#define LINE 64
#define MOST_SLOTS 4096

/* Lay out the areas of the file. [out] at: where each begins. Returns the bytes of the file. */
static uint64_t layout(const struct ftrma_ledger_header *h, uint64_t at[5])
{
    uint64_t sizes[5] = {
        h->targets * sizeof(struct ftrma_ledger_target), h->origins * sizeof(uint64_t),
        h->parts * sizeof(struct ftrma_ledger_part),
        (uint64_t)h->origins * h->targets * sizeof(struct ftrma_ledger_pair),
        (uint64_t)h->parts * h->origins};
    uint64_t next = (sizeof *h + LINE - 1) / LINE * LINE;
    for (int i = 0; i < 5; i++) {
        at[i] = next;
        next = (next + sizes[i] + LINE - 1) / LINE * LINE;
    }
    return next;
}

/* Join a path and `end`. Returns 0 or -ENAMETOOLONG. */
static int name_beside(char *name, size_t room, const char *path, const char *end)
{
    return snprintf(name, room, "%s%s", path, end) < (int)room ? 0 : -ENAMETOOLONG;
}

int ftrma_ledger_make(const char *path, uint32_t origins, uint32_t targets, uint32_t parts)
{
    struct ftrma_ledger_header h = {
        .magic = MAGIC, .origins = origins, .targets = targets, .parts = parts};
    char bell[PATH_MAX];
    uint64_t at[5];
    if (!origins || origins > MOST_SLOTS || !targets || targets > MOST_SLOTS || !parts
        || parts > (1u << 20))
        return -EINVAL;
    if (name_beside(bell, sizeof bell, path, BELL))
        return -ENAMETOOLONG;
    h.file_bytes = layout(&h, at);
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return -errno;
    /* The header is written last: nobody takes a file without it for a ledger. */
    int failed = (mkfifo(bell, 0600) && errno != EEXIST) || ftruncate(fd, (off_t)h.file_bytes)
                 || pwrite(fd, &h, sizeof h, 0) != (ssize_t)sizeof h;
    int error = failed ? errno : 0;
    close(fd);
    return -error;
}

/* Check that a file is a whole ledger of this user. Returns 0 or -errno. */
static int examine(int fd, struct ftrma_ledger_header *h)
{
    struct stat st;
    uint64_t at[5];
    if (fstat(fd, &st))
        return -errno;
    if (!S_ISREG(st.st_mode) || st.st_uid != geteuid() || (st.st_mode & 077))
        return -EPERM;
    if (pread(fd, h, sizeof *h, 0) != (ssize_t)sizeof *h || h->magic != MAGIC
        || h->origins > MOST_SLOTS || h->targets > MOST_SLOTS || h->parts > (1u << 20)
        || layout(h, at) != h->file_bytes
        || (uint64_t)st.st_size < h->file_bytes)
        return -EINVAL;
    return 0;
}

int ftrma_ledger_beside(const char *path)
{
    char *name = strdup(path), *slash = name ? strrchr(name, '/') : NULL;
    if (slash)
        slash[slash == name] = 0;
    int fd = name ? open(slash ? name : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    free(name);
    return fd;
}

/* Open the bell for both reading and writing, so that neither end waits for the other. */
static int open_bell(const char *path)
{
    char bell[PATH_MAX];
    struct stat st;
    int error = name_beside(bell, sizeof bell, path, BELL);
    int fd = error ? error : open(bell, O_RDWR | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW);
    if (fd >= 0 && (fstat(fd, &st) || !S_ISFIFO(st.st_mode) || st.st_uid != geteuid())) {
        close(fd);
        errno = EPERM;
        return -1;
    }
    return fd;
}

int ftrma_ledger_open(const char *path, struct ftrma_ledger **ledger)
{
    struct ftrma_ledger_header h;
    struct ftrma_ledger *l = calloc(1, sizeof *l);
    if (!l)
        return -ENOMEM;
    l->fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    l->directory = l->fd < 0 ? -1 : ftrma_ledger_beside(path);
    l->bell = l->directory < 0 ? -1 : open_bell(path);
    int error = l->bell < 0 ? -errno : examine(l->fd, &h);
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
    uint64_t at[5];
    layout(&h, at);
    l->header = (void *)map;
    l->targets = (void *)(map + at[0]);
    l->incarnations = (void *)(map + at[1]);
    l->parts = (void *)(map + at[2]);
    l->pairs = (void *)(map + at[3]);
    l->holds = (void *)(map + at[4]);
    *ledger = l;
    return 0;
}

void ftrma_ledger_unmap(struct ftrma_mapped *m)
{
    if (m->map)
        munmap(m->map, m->map_bytes);
    m->map = NULL;
}

void ftrma_ledger_close(struct ftrma_ledger *l)
{
    for (uint32_t i = 0; l->header && i < l->header->parts; i++)
        ftrma_ledger_unmap(&l->mapped[i]);
    if (l->clocks)
        munmap(l->clocks, l->clocks_bytes);
    if (l->header)
        munmap(l->header, l->header->file_bytes);
    if (l->fd >= 0)
        close(l->fd);
    if (l->directory >= 0)
        close(l->directory);
    if (l->bell >= 0)
        close(l->bell);
    free(l->mapped);
    free(l);
}

int ftrma_ledger_lock(const struct ftrma_ledger *l)
{
    return flock(l->fd, LOCK_EX | LOCK_NB) ? -errno : 0;
}

/* ---- the bell ---- */

void ftrma_ledger_ring(struct ftrma_ledger *l)
{
    while (write(l->bell, "", 1) < 0 && errno == EINTR)
        ; /* EAGAIN: the bell is full of rings */
}

void ftrma_ledger_drain_bell(struct ftrma_ledger *l)
{
    char rung[4096];
    while (read(l->bell, rung, sizeof rung) == (ssize_t)sizeof rung)
        ;
}

/* ---- clocks ---- */

int ftrma_ledger_clocks(struct ftrma_ledger *l, const char *file, uint32_t n, uint64_t at,
                        uint64_t step)
{
    if (!n || n > l->header->targets || strlen(file) >= sizeof l->header->clock_file || at % 8
        || step % 8 || strchr(file, '/'))
        return -EINVAL;
    strcpy(l->header->clock_file, file);
    l->header->clock_at = at;
    l->header->clock_step = step;
    __atomic_store_n(&l->header->clocks, n, __ATOMIC_SEQ_CST);
    return 0;
}

/* Map the file of the clocks, which is made before the first request. Returns 0 if that is
   impossible. */
static int map_clocks(struct ftrma_ledger *l)
{
    const struct ftrma_ledger_header *h = l->header;
    uint64_t end;
    if (__builtin_mul_overflow((uint64_t)h->clocks - 1, h->clock_step, &end)
        || __builtin_add_overflow(end, h->clock_at, &end)
        || __builtin_add_overflow(end, sizeof(uint64_t), &end))
        return 0;
    int fd = openat(l->directory, h->clock_file, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    struct stat st;
    int bad = fd < 0 || fstat(fd, &st) || st.st_uid != geteuid() || (uint64_t)st.st_size < end;
    void *map = bad ? MAP_FAILED : mmap(NULL, end, PROT_READ, MAP_SHARED, fd, 0);
    if (fd >= 0)
        close(fd);
    if (map == MAP_FAILED)
        return 0;
    l->clocks = map;
    l->clocks_bytes = end;
    return 1;
}

uint64_t ftrma_ledger_clock(struct ftrma_ledger *l, uint32_t target)
{
    const struct ftrma_ledger_header *h = l->header;
    if (target >= LOAD(&h->clocks) || (!l->clocks && !map_clocks(l)))
        return LOAD(&l->targets[target].clock);
    return LOAD((uint64_t *)(void *)(l->clocks + h->clock_at + target * h->clock_step));
}

/* ---- numbers ---- */

struct ftrma_ledger_target *ftrma_ledger_target(struct ftrma_ledger *l, uint32_t target)
{
    return target < l->header->targets ? &l->targets[target] : NULL;
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

int ftrma_ledger_agent(const struct ftrma_ledger *l)
{
    return LOAD(&l->header->agent);
}
