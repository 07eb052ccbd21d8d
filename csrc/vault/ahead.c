/* Memory of a vault, allocated while the program computes.
 *
 * A page of shared memory is found, filled with zeros and mapped when it is first touched, which
 * takes several times as long as staging it: a first checkpoint that has to do this delays the
 * program for seconds. So a thread does it in advance, from the moment at which the needed size is
 * known.
 *
 * It is a thread of C, which never holds Python's lock. It has the lowest priority, so that it gets
 * the time that the program leaves: next to nothing of a processor that computes all the time. A
 * caller that needs the memory before the thread has finished allocates the rest itself. The
 * thread's lock is held while pages are found, some tenths of a millisecond, and not while they are
 * mapped. Each page is mapped by a fault of its own: one call for many would hold the lock of the
 * process's address space, and delay the program where it asks the kernel for memory.
 *
 * Pages that are allocated here are not in use yet: `used` and `stage_room` count the pages in use,
 * and do not change here.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "ahead.h"

enum {
    NICE = 19,     /* the lowest: 1.5 % of a processor that computes all the time */
    AT_ONCE = 64,  /* blocks that are found while the lock is held */
    LEFT_FREE = 16 /* one part in so many of the shared memory is left to others */
};

/* 1 if enough memory stays free when the next blocks are allocated. */
static int is_room(const struct ftrma_vault *v)
{
    struct statvfs room;
    if (fstatvfs(v->fd, &room))
        return 0;
    uint64_t need = (uint64_t)AT_ONCE * BLOCK / room.f_frsize + room.f_blocks / LEFT_FREE;
    return room.f_blocks == 0 || room.f_bavail > need; /* 0 if it has no limit */
}

/* Allocate the next blocks: [out] their place. Returns 0 if there are none to allocate; then the
   thread ends. */
static uint64_t take_next(struct ftrma_vault *v, unsigned char **begin)
{
    struct ahead *a = &v->ahead;
    uint64_t count = 0;
    pthread_mutex_lock(&a->lock);
    for (int i = 0; i < 2 && count == 0 && !a->stopped; i++) {
        count = a->wanted[i] > a->taken[i] ? a->wanted[i] - a->taken[i] : 0;
        count = count < AT_ONCE ? count : AT_ONCE;
        uint64_t at = (i ? v->stage_at : v->copy_at) + a->taken[i] * BLOCK;
        if (count > 0
            && (!is_room(v) || posix_fallocate(v->fd, (off_t)at, (off_t)(count * BLOCK)))) {
            a->stopped = 1; /* the caller that needs the memory finds none either, and reports it */
            count = 0;
        }
        *begin = (unsigned char *)v->header + at;
        a->taken[i] += count;
    }
    a->working = count > 0;
    pthread_mutex_unlock(&a->lock);
    return count;
}

static void *work(void *vault)
{
    struct ftrma_vault *v = vault;
    unsigned char *begin = NULL;
    setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), NICE); /* the priority of this thread
                                                                   alone */
    for (uint64_t count; (count = take_next(v, &begin)) > 0;)
        for (uint64_t b = 0; b < count; b++) {
            /* The page is written to without being changed, since a checkpoint may have begun. */
            unsigned char zero = 0;
            __atomic_compare_exchange_n(begin + b * BLOCK, &zero, 0, 0, __ATOMIC_RELAXED,
                                        __ATOMIC_RELAXED);
        }
    return NULL;
}

/* Begin the thread, which does not take the program's signals. */
static int begin(struct ftrma_vault *v)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&v->ahead.thread, NULL, work, v);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

void ftrma_vault_ahead(struct ftrma_vault *v, uint64_t blocks, uint64_t staging)
{
    struct ahead *a = &v->ahead;
    const uint64_t wanted[2] = {blocks, staging};
    const uint64_t have[2] = {v->header->used, v->header->stage_room};
    int more = 0;
    pthread_mutex_lock(&a->lock);
    for (int i = 0; i < 2; i++) {
        if (wanted[i] > a->wanted[i] && wanted[i] <= v->header->capacity)
            a->wanted[i] = wanted[i];
        if (have[i] > a->taken[i])
            a->taken[i] = have[i];
        more |= a->wanted[i] > a->taken[i];
    }
    a->stopped = 0;
    const int idle = more && !a->working;
    a->working |= more;
    pthread_mutex_unlock(&a->lock);
    if (!idle)
        return;
    if (a->begun)
        pthread_join(a->thread, NULL); /* the thread has ended, or is about to */
    a->begun = begin(v) == 0;
    if (!a->begun)
        a->working = 0; /* no other thread uses it */
}

void ftrma_ahead_stop(struct ftrma_vault *v)
{
    pthread_mutex_lock(&v->ahead.lock);
    v->ahead.stopped = 1;
    pthread_mutex_unlock(&v->ahead.lock);
}

void ftrma_ahead_give_back(struct ftrma_vault *v, uint64_t blocks, uint64_t staging)
{
    const uint64_t need[2] = {blocks, staging};
    const uint64_t have[2] = {v->header->used, v->header->stage_room};
    ftrma_ahead_close(v); /* the thread would crash on memory that is given back */
    for (int i = 0; i < 2; i++) {
        const uint64_t keep = need[i] > have[i] ? need[i] : have[i], taken = v->ahead.taken[i];
        const uint64_t at = (i ? v->stage_at : v->copy_at) + keep * BLOCK;
        if (taken > keep
            && fallocate(v->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)at,
                         (off_t)((taken - keep) * BLOCK)) == 0)
            v->ahead.taken[i] = keep;
    }
}

void ftrma_ahead_close(struct ftrma_vault *v)
{
    ftrma_ahead_stop(v);
    if (v->ahead.begun)
        pthread_join(v->ahead.thread, NULL);
    v->ahead.begun = 0;
}
