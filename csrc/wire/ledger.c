/* The ledger's file: its layout, the parts it speaks of, what a new agent finds. See ledger.h. */
#define _GNU_SOURCE
#include "ledger.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define MAGIC 0x4654524d41570001ull
#define BELL ".bell"
#define LINE 64
#define MOST_SLOTS 4096

/* Bytes of the file up to and with each area; [out] where each begins, in the order of the struct. */
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

/* Beside the ledger, `end` behind its name. 0 or -ENAMETOOLONG. */
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
    /* The header goes last: who finds a file without it does not take it for a ledger. */
    int failed = (mkfifo(bell, 0600) && errno != EEXIST) || ftruncate(fd, (off_t)h.file_bytes)
                 || pwrite(fd, &h, sizeof h, 0) != (ssize_t)sizeof h;
    int error = failed ? errno : 0;
    close(fd);
    return -error;
}

/* Whether the file is a ledger, whole and this user's. 0 or -errno. */
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

/* An end of the bell that neither waits for the other nor is told that it is gone. */
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
    l->directory = l->fd < 0 ? -1 : open_beside(path);
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

static void unmap(struct ftrma_mapped *m)
{
    if (m->map)
        munmap(m->map, m->map_bytes);
    m->map = NULL;
}

void ftrma_ledger_close(struct ftrma_ledger *l)
{
    for (uint32_t i = 0; l->header && i < l->header->parts; i++)
        unmap(&l->mapped[i]);
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

/* ---- parts ---- */

int ftrma_ledger_place(struct ftrma_ledger *l, uint32_t index, const struct ftrma_wire_part *place)
{
    uint64_t words_end = place->words + sizeof(struct ftrma_wire_words);
    if (index >= l->header->parts || place->target >= l->header->targets || !place->generation
        || !*place->file || !memchr(place->file, 0, sizeof place->file)
        || strchr(place->file, '/') || (!place->pid && place->at % 8) || place->words % 8
        || words_end < place->words || place->head < 2 * sizeof(struct ftrma_bell))
        return -EINVAL;
    struct ftrma_ledger_part *part = &l->parts[index];
    STORE(&part->taken, 1);
    STORE(&part->place.generation, 0);
    __atomic_add_fetch(&part->placed, 1, __ATOMIC_SEQ_CST);
    size_t before = offsetof(struct ftrma_wire_part, generation);
    size_t behind = before + sizeof place->generation;
    memcpy(&part->place, place, before);
    memcpy((char *)&part->place + behind, (const char *)place + behind, sizeof *place - behind);
    STORE(&part->place.generation, place->generation);
    return 0;
}

/* Where to look for a part first. */
static uint32_t first_place(const struct ftrma_ledger *l, uint32_t window, uint32_t target)
{
    uint64_t h = ((uint64_t)window << 32 | target) * 0x9e3779b97f4a7c15ull;
    return (uint32_t)((h >> 32) % l->header->parts);
}

int ftrma_ledger_choose(struct ftrma_ledger *l, uint32_t window, uint32_t target)
{
    uint32_t n = l->header->parts, at = first_place(l, window, target);
    for (uint32_t i = 0; i < n; i++, at = at + 1 == n ? 0 : at + 1) {
        uint64_t free = 0;
        if (!__atomic_compare_exchange_n(&l->parts[at].taken, &free, 1, 0, __ATOMIC_SEQ_CST,
                                         __ATOMIC_RELAXED))
            continue;
        memset(ftrma_ledger_hold(l, at, 0), FTRMA_HOLDS_NOTHING, l->header->origins);
        STORE(&l->parts[at].undo.number, 0);
        return (int)at;
    }
    return -ENOSPC;
}

void ftrma_ledger_leave(struct ftrma_ledger *l, uint32_t index)
{
    STORE(&l->parts[index].place.generation, 0);
    STORE(&l->parts[index].taken, 0);
    __atomic_add_fetch(&l->header->left, 1, __ATOMIC_SEQ_CST);
    ftrma_ledger_ring(l);
}

static int is_part(const struct ftrma_ledger_part *part, uint32_t window, uint32_t target,
                   uint32_t generation)
{
    return generation && LOAD(&part->place.generation) == generation
           && part->place.window == window && part->place.target == target;
}

int ftrma_ledger_find(struct ftrma_ledger *l, uint32_t window, uint32_t target, uint32_t generation)
{
    if (is_part(&l->parts[l->found], window, target, generation))
        return (int)l->found;
    uint32_t n = l->header->parts, at = first_place(l, window, target);
    for (uint32_t i = 0; i < n; i++, at = at + 1 == n ? 0 : at + 1)
        if (is_part(&l->parts[at], window, target, generation)) {
            l->found = at;
            return (int)at;
        }
    return -1;
}

void ftrma_ledger_tidy(struct ftrma_ledger *l)
{
    uint64_t left = LOAD(&l->header->left);
    for (uint32_t i = 0; left != l->left && i < l->header->parts; i++)
        if (!LOAD(&l->parts[i].place.generation))
            unmap(&l->mapped[i]);
    l->left = left;
}

char *ftrma_ledger_map(struct ftrma_ledger *l, uint32_t index)
{
    const struct ftrma_wire_part *place = &l->parts[index].place;
    struct ftrma_mapped *m = &l->mapped[index];
    uint64_t placed = LOAD(&l->parts[index].placed);
    if (m->map && m->placed == placed)
        return m->map;
    unmap(m);
    /* Less than was said would be fatal to read. */
    struct stat st;
    uint64_t end = place->words + sizeof(struct ftrma_wire_words), part_end = 0;
    int fd = openat(l->directory, place->file, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    int wrapped = !place->pid && __builtin_add_overflow(place->at, place->bytes, &part_end);
    end = end > place->head ? end : place->head;
    end = end > part_end ? end : part_end;
    if (fd < 0 || wrapped || fstat(fd, &st) || st.st_uid != geteuid() || (uint64_t)st.st_size < end) {
        if (fd >= 0)
            close(fd);
        return NULL;
    }
    char *map = mmap(NULL, end, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (map == MAP_FAILED)
        return NULL;
    *m = (struct ftrma_mapped){map, end, placed};
    return map;
}

/* ---- what lies there ---- */

/* Between `local` and the memory of another process of this node. 0 or -errno. */
static int move_private(const struct ftrma_wire_part *place, uint64_t offset, void *local, size_t n,
                        int write)
{
    for (size_t done = 0; done < n;) {
        struct iovec here = {(char *)local + done, n - done};
        struct iovec there = {(void *)(uintptr_t)(place->at + offset + done), n - done};
        ssize_t moved = write ? process_vm_writev(place->pid, &here, 1, &there, 1, 0)
                              : process_vm_readv(place->pid, &here, 1, &there, 1, 0);
        if (moved <= 0)
            return moved < 0 ? -errno : -EFAULT;
        done += (size_t)moved;
    }
    return 0;
}

int ftrma_ledger_read(struct ftrma_ledger *l, uint32_t part, uint64_t offset, void *to, size_t n)
{
    const struct ftrma_wire_part *place = &l->parts[part].place;
    if (place->pid)
        return move_private(place, offset, to, n, 0);
    memcpy(to, l->mapped[part].map + place->at + offset, n);
    return 0;
}

int ftrma_ledger_write(struct ftrma_ledger *l, uint32_t part, uint64_t offset, const void *from,
                       size_t n)
{
    const struct ftrma_wire_part *place = &l->parts[part].place;
    if (place->pid)
        return move_private(place, offset, (void *)(uintptr_t)from, n, 1);
    memcpy(l->mapped[part].map + place->at + offset, from, n);
    return 0;
}

struct ftrma_wire_words *ftrma_ledger_words(struct ftrma_ledger *l, uint32_t part)
{
    char *map = part < l->header->parts ? ftrma_ledger_map(l, part) : NULL;
    return map ? (struct ftrma_wire_words *)(void *)(map + l->parts[part].place.words) : NULL;
}

void ftrma_ledger_put_back(struct ftrma_ledger *l)
{
    for (uint32_t i = 0; i < l->header->parts; i++) {
        struct ftrma_ledger_part *part = &l->parts[i];
        struct ftrma_undo *undo = &part->undo;
        struct ftrma_wire_words *words = part->place.generation ? ftrma_ledger_words(l, i) : NULL;
        uint64_t number = LOAD(&undo->number);
        if (!words)
            continue; /* the part is gone, and what was inside of it */
        if (number && part->place.generation == undo->generation
            && LOAD(&ftrma_ledger_pair(l, undo->origin, part->place.target)->number) < number)
            (void)ftrma_ledger_write(l, i, undo->offset, undo->old, undo->bytes);
        STORE(&undo->number, 0);
        if (LOAD(&words->owner) == -1)
            STORE(&words->owner, 0);
        ftrma_ledger_settle(l, i);
    }
}

/* ---- roles ---- */

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
    for (uint32_t i = 0; i < h->parts; i++) {
        struct ftrma_ledger_part *part = &l->parts[i];
        struct ftrma_wire_words *words = part->place.generation ? ftrma_ledger_words(l, i) : NULL;
        STORE(&part->undo.number, 0);
        if (words && LOAD(&words->owner) < 0)
            STORE(&words->owner, 0);
        if (words)
            ftrma_ledger_settle(l, i);
    }
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

/* ---- processes of the node ---- */

/* Those who wait for anything of a window sleep at one of the two bells that its file begins with. */
static struct ftrma_bell *bells(struct ftrma_ledger *l, uint32_t part)
{
    return (struct ftrma_bell *)(void *)l->mapped[part].map;
}

int ftrma_ledger_sleepers(struct ftrma_ledger *l, uint32_t part)
{
    struct ftrma_bell *bell = bells(l, part);
    return LOAD(&bell[0].sleepers) || LOAD(&bell[1].sleepers);
}

void ftrma_ledger_wake(struct ftrma_ledger *l, uint32_t part)
{
    for (struct ftrma_bell *bell = bells(l, part); bell < bells(l, part) + 2; bell++) {
        __atomic_add_fetch(&bell->word, 1, __ATOMIC_SEQ_CST);
        if (__atomic_load_n(&bell->sleepers, __ATOMIC_SEQ_CST))
            syscall(SYS_futex, &bell->word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
    }
}

void ftrma_ledger_ring(struct ftrma_ledger *l)
{
    while (write(l->bell, "", 1) < 0 && errno == EINTR)
        ; /* EAGAIN: it has been rung often enough */
}

void ftrma_ledger_hush(struct ftrma_ledger *l)
{
    char rung[4096];
    while (read(l->bell, rung, sizeof rung) == (ssize_t)sizeof rung)
        ;
}

void ftrma_ledger_set(struct ftrma_ledger *l, uint32_t part, uint64_t word, uint64_t value)
{
    uint64_t *at = (uint64_t *)(void *)(l->mapped[part].map + word), now = LOAD(at);
    while (now < value
           && !__atomic_compare_exchange_n(at, &now, value, 0, __ATOMIC_SEQ_CST, __ATOMIC_ACQUIRE))
        ;
    ftrma_ledger_wake(l, part);
}

void ftrma_ledger_settle(struct ftrma_ledger *l, uint32_t part)
{
    struct ftrma_wire_words *words = ftrma_ledger_words(l, part);
    uint64_t exclusive = 0, shared = 0, word = words ? LOAD(&words->lock) : 0, next;
    if (!words)
        return; /* its file is gone, and who waited there */
    for (uint32_t o = 0; o < l->header->origins; o++) {
        exclusive |= *ftrma_ledger_hold(l, part, o) == FTRMA_HOLDS_EXCLUSIVE;
        shared |= *ftrma_ledger_hold(l, part, o) == FTRMA_HOLDS_SHARED;
    }
    do {
        next = word;
        if (!exclusive && (word & FTRMA_LOCK_OWNER) == FTRMA_LOCK_OWNER)
            next &= ~(uint64_t)FTRMA_LOCK_OWNER;
        if (!shared)
            next &= ~FTRMA_LOCK_SHARED;
    } while (!__atomic_compare_exchange_n(&words->lock, &word, next, 0, __ATOMIC_SEQ_CST,
                                          __ATOMIC_ACQUIRE));
    if (next != word)
        ftrma_ledger_wake(l, part);
}

/* ---- what others look at ---- */

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
