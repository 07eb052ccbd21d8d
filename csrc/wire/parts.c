/* The parts of a node's windows: their places, bytes, words and locks.  See ledger.h. */
#define _GNU_SOURCE
#include "parts.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

/* ---- places ---- */

/* 1 if there is room for two bells in the head of the part's file. */
static int has_bells(const struct ftrma_wire_part *place)
{
    uint64_t bytes = 2 * sizeof(struct ftrma_bell);
    return place->head >= bytes && place->bells <= place->head - bytes && place->bells % 8 == 0;
}

int ftrma_parts_place(struct ftrma_ledger *l, uint32_t index, const struct ftrma_wire_part *place)
{
    int plain = place->words == FTRMA_WIRE_PLAIN;
    uint64_t words_end = place->words + sizeof(struct ftrma_wire_words);
    if (index >= l->header->parts || place->target >= l->header->targets || !place->generation
        || !*place->file || !memchr(place->file, 0, sizeof place->file)
        || strchr(place->file, '/') || (!place->pid && place->at % 8)
        || (!plain && (place->words % 8 || words_end < place->words))
        || (!has_bells(place) && !(plain && !place->head)))
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

/* The index at which the search for a part begins. */
static uint32_t first_place(const struct ftrma_ledger *l, uint32_t window, uint32_t target)
{
    uint64_t h = ((uint64_t)window << 32 | target) * 0x9e3779b97f4a7c15ull;
    return (uint32_t)((h >> 32) % l->header->parts);
}

int ftrma_parts_reserve(struct ftrma_ledger *l, uint32_t window, uint32_t target)
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

void ftrma_parts_release(struct ftrma_ledger *l, uint32_t index)
{
    STORE(&l->parts[index].place.generation, 0);
    __atomic_add_fetch(&l->parts[index].placed, 1, __ATOMIC_SEQ_CST);
    STORE(&l->parts[index].taken, 0);
    __atomic_add_fetch(&l->header->released, 1, __ATOMIC_SEQ_CST);
    ftrma_ledger_ring(l);
}

static int is_part(const struct ftrma_ledger_part *part, uint32_t window, uint32_t target,
                   uint32_t generation)
{
    return generation && LOAD(&part->place.generation) == generation
           && part->place.window == window && part->place.target == target;
}

/* 1 if there is a part with the window, target and generation of a place. [out] other: 1 if such a
   part lies in another file. An index that was never used ends the search. */
static int is_there(const struct ftrma_ledger *l, const struct ftrma_wire_part *place, int *other)
{
    uint32_t n = l->header->parts, at = first_place(l, place->window, place->target);
    int found = *other = 0;
    for (uint32_t i = 0; i < n; i++, at = at + 1 == n ? 0 : at + 1) {
        const struct ftrma_ledger_part *part = &l->parts[at];
        if (!LOAD(&part->taken) && !LOAD(&part->placed))
            break;
        if (!is_part(part, place->window, place->target, place->generation))
            continue;
        found = 1;
        *other |= strncmp(part->place.file, place->file, sizeof place->file) != 0;
    }
    return found;
}

/* Two processes that share a part at once may both place it, which does no harm. Each searches once
   more after it has placed the part, so that of two different files at least one is refused. */
int ftrma_parts_share(struct ftrma_ledger *l, const struct ftrma_wire_part *place)
{
    int other, found = is_there(l, place, &other);
    if (found)
        return other ? -EEXIST : 0;
    int at = ftrma_parts_reserve(l, place->window, place->target);
    if (at < 0)
        return at;
    int error = ftrma_parts_place(l, (uint32_t)at, place);
    if (!error && is_there(l, place, &other) && other)
        error = -EEXIST;
    if (error)
        ftrma_parts_release(l, (uint32_t)at);
    return error;
}

int ftrma_parts_find(struct ftrma_ledger *l, uint32_t window, uint32_t target, uint32_t generation)
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

void ftrma_parts_unshare(struct ftrma_ledger *l, uint32_t window, uint32_t target,
                         uint32_t generation)
{
    for (int at; (at = ftrma_parts_find(l, window, target, generation)) >= 0;)
        ftrma_parts_release(l, (uint32_t)at);
}

void ftrma_parts_unmap_released(struct ftrma_ledger *l)
{
    uint64_t left = LOAD(&l->header->released);
    for (uint32_t i = 0; left != l->released && i < l->header->parts; i++)
        if (l->mapped[i].map && l->mapped[i].placed != LOAD(&l->parts[i].placed))
            ftrma_ledger_unmap(&l->mapped[i]);
    l->released = left;
}

char *ftrma_parts_map(struct ftrma_ledger *l, uint32_t index)
{
    const struct ftrma_wire_part *place = &l->parts[index].place;
    struct ftrma_mapped *m = &l->mapped[index];
    uint64_t placed = LOAD(&l->parts[index].placed);
    if (m->map && m->placed == placed)
        return m->map;
    ftrma_ledger_unmap(m);
    /* Reading beyond the end of a file would be fatal, so its length is checked. */
    struct stat st;
    int plain = place->words == FTRMA_WIRE_PLAIN;
    uint64_t end = plain ? 0 : place->words + sizeof(struct ftrma_wire_words), part_end = 0;
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

/* ---- bytes ---- */

/* Copy between `local` and the memory of another process of this node. Returns 0 or -errno. */
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

int ftrma_parts_read(struct ftrma_ledger *l, uint32_t part, uint64_t offset, void *to, size_t n)
{
    const struct ftrma_wire_part *place = &l->parts[part].place;
    if (place->pid)
        return move_private(place, offset, to, n, 0);
    memcpy(to, l->mapped[part].map + place->at + offset, n);
    return 0;
}

int ftrma_parts_write(struct ftrma_ledger *l, uint32_t part, uint64_t offset, const void *from,
                      size_t n)
{
    const struct ftrma_wire_part *place = &l->parts[part].place;
    if (place->pid)
        return move_private(place, offset, (void *)(uintptr_t)from, n, 1);
    char *to = l->mapped[part].map + place->at + offset;
    if (n == sizeof(uint64_t) && (uintptr_t)to % sizeof(uint64_t) == 0) {
        uint64_t word; /* others read it without a lock, and then read words that were stored before
                          it */
        memcpy(&word, from, sizeof word);
        STORE((uint64_t *)(void *)to, word);
    } else {
        memcpy(to, from, n);
    }
    return 0;
}

struct ftrma_wire_words *ftrma_parts_words(struct ftrma_ledger *l, uint32_t part)
{
    if (part >= l->header->parts || l->parts[part].place.words == FTRMA_WIRE_PLAIN)
        return NULL;
    char *map = ftrma_parts_map(l, part);
    return map ? (struct ftrma_wire_words *)(void *)(map + l->parts[part].place.words) : NULL;
}

void ftrma_parts_undo_unfinished(struct ftrma_ledger *l)
{
    for (uint32_t i = 0; i < l->header->parts; i++) {
        struct ftrma_ledger_part *part = &l->parts[i];
        struct ftrma_undo *undo = &part->undo;
        struct ftrma_wire_words *words = part->place.generation ? ftrma_parts_words(l, i) : NULL;
        uint64_t number = LOAD(&undo->number);
        if (!words)
            continue; /* the part is gone, or plain */
        if (number && part->place.generation == undo->generation
            && LOAD(&ftrma_ledger_pair(l, undo->origin, part->place.target)->number) < number)
            (void)ftrma_parts_write(l, i, undo->offset, undo->old, undo->bytes);
        STORE(&undo->number, 0);
        if (LOAD(&words->owner) == -1)
            STORE(&words->owner, 0);
        ftrma_parts_refresh_lock(l, i);
    }
}

/* ---- roles ---- */

/* Fill an area with zeros. Most of it has no memory yet, and gets none by this. */
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
        struct ftrma_wire_words *words = part->place.generation ? ftrma_parts_words(l, i) : NULL;
        STORE(&part->undo.number, 0);
        if (words && LOAD(&words->owner) < 0)
            STORE(&words->owner, 0);
        if (words)
            ftrma_parts_refresh_lock(l, i);
    }
    STORE(&h->forgetting, 0);
}

void ftrma_parts_roles(struct ftrma_ledger *l, uint64_t roles_number, int forgets,
                       void (*between)(void *arg), void *arg)
{
    if (roles_number <= l->header->roles_number)
        return;
    if (forgets)
        STORE(&l->header->forgetting, roles_number);
    STORE(&l->header->roles_number, roles_number);
    between(arg);
    if (forgets)
        forget(l);
}

void ftrma_parts_finish_roles(struct ftrma_ledger *l)
{
    if (l->header->forgetting && l->header->forgetting <= l->header->roles_number)
        forget(l);
    STORE(&l->header->forgetting, 0);
}

/* ---- processes of the node ---- */

/* The two bells at which processes of the node sleep. */
static struct ftrma_bell *bells(struct ftrma_ledger *l, uint32_t part)
{
    return (struct ftrma_bell *)(void *)(l->mapped[part].map + l->parts[part].place.bells);
}

int ftrma_parts_sleepers(struct ftrma_ledger *l, uint32_t part)
{
    struct ftrma_bell *bell = bells(l, part);
    return LOAD(&bell[0].sleepers) || LOAD(&bell[1].sleepers);
}

void ftrma_parts_ring(struct ftrma_bell *bell)
{
    __atomic_add_fetch(&bell->word, 1, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&bell->sleepers, __ATOMIC_SEQ_CST))
        syscall(SYS_futex, &bell->word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void ftrma_parts_wake(struct ftrma_ledger *l, uint32_t part)
{
    for (struct ftrma_bell *bell = bells(l, part); bell < bells(l, part) + 2; bell++)
        ftrma_parts_ring(bell);
}

void ftrma_parts_set(struct ftrma_ledger *l, uint32_t part, uint64_t word, uint64_t value)
{
    uint64_t *at = (uint64_t *)(void *)(l->mapped[part].map + word), now = LOAD(at);
    while (now < value
           && !__atomic_compare_exchange_n(at, &now, value, 0, __ATOMIC_SEQ_CST, __ATOMIC_ACQUIRE))
        ;
    ftrma_parts_wake(l, part);
}

void ftrma_parts_refresh_lock(struct ftrma_ledger *l, uint32_t part)
{
    struct ftrma_wire_words *words = ftrma_parts_words(l, part);
    uint64_t exclusive = 0, shared = 0, word = words ? LOAD(&words->lock) : 0, next;
    if (!words)
        return; /* its file is gone, or the part is plain */
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
        ftrma_parts_wake(l, part);
}
