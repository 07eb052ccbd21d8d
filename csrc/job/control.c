/* The control file, and this process's place in the job: words, bells, roles. */
#define _GNU_SOURCE
#include "control.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

_Static_assert(sizeof(struct ftrma_slot) % 128 == 0, "slots share no cache lines");

/* Checks that a waiter makes before it yields, and before it sleeps. Measured: more of them help
   only if every process has a core of its own; otherwise they cost the others their time slice. */
#define SPINS 64
#define YIELDS 256
#define NAP_NS 1000000L

struct ftrma_ctl *ftrma_ctl;
int ftrma_me = -1;
const char *ftrma_directory;
int ftrma_link = -1;
int ftrma_agent_bell = -1;

int ftrma_open(const char *path, int flags)
{
    int fd = open(path, flags | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return -errno;
    struct stat st;
    int error = fstat(fd, &st) ? errno : 0;
    if (!error && (!S_ISREG(st.st_mode) || st.st_uid != geteuid() || st.st_mode & 077))
        error = EPERM;
    if (!error)
        return fd;
    close(fd);
    return -error;
}

static int map_ctl(int fd, struct ftrma_ctl **ctl)
{
    void *p = mmap(NULL, sizeof **ctl, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    int error = p == MAP_FAILED ? -errno : 0;
    close(fd);
    if (!error)
        *ctl = p;
    return error;
}

int ftrma_ctl_create(const char *path, uint32_t nprocs, uint32_t nslots, uint32_t ngroups,
                     uint32_t strength, uint32_t group_size, uint64_t capacity_blocks,
                     struct ftrma_ctl **ctl)
{
    if (nprocs > FTRMA_MAX_PROCS)
        return -E2BIG;
    int fd = ftrma_open(path, O_RDWR | O_CREAT | O_EXCL);
    if (fd < 0)
        return fd;
    int error = posix_fallocate(fd, 0, sizeof **ctl);
    if (error) {
        close(fd);
        return -error;
    }
    error = map_ctl(fd, ctl);
    if (error)
        return error;
    struct ftrma_ctl *c = *ctl;
    c->nprocs = nprocs;
    c->nslots = nslots;
    c->ngroups = ngroups;
    c->strength = strength;
    c->nchecksums = ngroups * strength;
    c->group_size = group_size;
    c->capacity_blocks = capacity_blocks;
    c->attempt = c->nodes = 1;
    for (uint32_t s = 0; s < nslots; s++) /* there are no logs yet, so no marks */
        c->slots[s].marks[0].version = c->slots[s].marks[1].version = UINT64_MAX;
    for (uint32_t p = nslots + c->nchecksums; p < nprocs; p++)
        c->proc[p].spare = (int32_t)(p - nslots - c->nchecksums);
    struct ftrma_roles *roles = &c->roles[0];
    for (uint32_t s = 0; s < nslots; s++)
        roles->slot_proc[s] = (int32_t)s;
    for (uint32_t k = 0; k < c->nchecksums; k++)
        roles->checksum_proc[k] = (int32_t)(nslots + k);
    STORE(&c->magic, FTRMA_CONTROL_MAGIC);
    return 0;
}

int ftrma_ctl_open(const char *path, struct ftrma_ctl **ctl)
{
    int fd = ftrma_open(path, O_RDWR);
    if (fd < 0)
        return fd;
    struct stat st;
    if (fstat(fd, &st) || (size_t)st.st_size < sizeof **ctl) {
        close(fd);
        return -EINVAL;
    }
    int error = map_ctl(fd, ctl);
    return error ? error : LOAD(&(*ctl)->magic) == FTRMA_CONTROL_MAGIC ? 0 : -EINVAL;
}

#define STORY_BYTES (1 << 18) /* room for some thousand events, and for one more even if memory is
                                 full */

int ftrma_story_create(const char *path)
{
    int fd = ftrma_open(path, O_WRONLY | O_CREAT);
    if (fd < 0)
        return fd;
    int error = fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, STORY_BYTES) ? -errno : 0;
    close(fd);
    return error == -EOPNOTSUPP ? 0 : error;
}

void ftrma_die_with_parent(void)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
}

void ftrma_set_link(int fd)
{
    ftrma_link = fd;
}

void ftrma_tell(const char *format, ...)
{
    char line[128];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    /* If the supervisor is gone, this process ends anyway, and there is nobody else to tell. */
    if (n > 0 && n < (int)sizeof line)
        (void)!send(ftrma_link, line, (size_t)n, MSG_NOSIGNAL);
}

/* All earlier reads and writes of this process come before the load, even those of words that are
   not atomic. Therefore a reader that finds the number of a table unchanged has read no newer
   table, and a writer writes no table before the number of the last one is stored. On x86 this
   costs nothing. */
uint64_t ftrma_load(const uint64_t *word)
{
    __atomic_thread_fence(__ATOMIC_ACQ_REL);
    return LOAD(word);
}

void ftrma_store(uint64_t *word, uint64_t value)
{
    STORE(word, value);
}

int ftrma_cas(uint64_t *word, uint64_t expected, uint64_t desired)
{
    return __atomic_compare_exchange_n(word, &expected, desired, 0, __ATOMIC_SEQ_CST,
                                       __ATOMIC_SEQ_CST);
}

/* 1 if the process is dead and has been replaced, or has ended well: its error does not end the
   job. */
static int is_without_error(const struct ftrma_proc *p)
{
    int how = LOAD(&p->leaving), well = how == FTRMA_LEFT_BY_STATUS || how == FTRMA_LEFT_BY_EXIT;
    return LOAD(&p->state) == FTRMA_DEAD && (LOAD(&p->reported) || well);
}

int ftrma_ended_itself(int proc)
{
    int index, how = LOAD(&ftrma_ctl->proc[proc].leaving);
    int slot = ftrma_role_of(ftrma_ctl, proc, &index) == FTRMA_ROLE_SLOT;
    int told = LOAD(&ftrma_ctl->claim) & FTRMA_CLAIM_TOLD && index;
    int well = how == FTRMA_LEFT_BY_STATUS || how == FTRMA_LEFT_BY_EXIT;
    int repairing = LOAD(&ftrma_ctl->alarm) != LOAD(&ftrma_ctl->repaired);
    return slot && LOAD(&ftrma_ctl->supervisor) && !(told && well)
           && (how & FTRMA_LEFT_BY_STATUS
               || (how & (FTRMA_LEFT_BY_SIGNAL | FTRMA_LEFT_BY_EXIT) && !repairing));
}

int ftrma_claim_error(void)
{
    int32_t owner = 0, *word = &ftrma_ctl->error_owner;
    while (!__atomic_compare_exchange_n(word, &owner, ftrma_me + 1, 0, __ATOMIC_SEQ_CST,
                                        __ATOMIC_SEQ_CST))
        if (owner == ftrma_me + 1 || (owner && !is_without_error(&ftrma_ctl->proc[owner - 1])))
            return owner == ftrma_me + 1;
    return 1;
}

static int64_t clock_ahead_ns;

void ftrma_set_clock(int64_t ahead_ns)
{
    clock_ahead_ns = ahead_ns;
}

uint64_t ftrma_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)((int64_t)t.tv_sec * 1000000000 + t.tv_nsec + clock_ahead_ns);
}

/* ---- waiting -------------------------------------------------------------------------------- */

/* Sleep until the bell is rung or the time is over. The sleeper counts itself, then the kernel
   compares the word; the waker changes the word, then looks for sleepers: so one of the two sees
   the other. A process that is killed asleep stays counted, which costs later wakers a system
   call each and nothing else. */
void ftrma_nap(struct ftrma_bell *bell, uint32_t seen, uint64_t ns, uint64_t awaits)
{
    struct timespec t = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
    int32_t unseen, *waiting = ftrma_ctl ? &ftrma_ctl->proc[ftrma_me].waiting : &unseen;
    if (ftrma_ctl)
        __atomic_store_n(&ftrma_ctl->proc[ftrma_me].awaits, awaits, __ATOMIC_RELAXED);
    __atomic_store_n(waiting, 1, __ATOMIC_RELAXED);
    __atomic_add_fetch(&bell->sleepers, 1, __ATOMIC_SEQ_CST);
    syscall(SYS_futex, &bell->word, FUTEX_WAIT, seen, &t, NULL, 0);
    __atomic_sub_fetch(&bell->sleepers, 1, __ATOMIC_SEQ_CST);
    __atomic_store_n(waiting, 0, __ATOMIC_RELAXED);
}

void ftrma_tell_agent(void)
{
    while (ftrma_agent_bell >= 0 && write(ftrma_agent_bell, "", 1) < 0 && errno == EINTR)
        ; /* EAGAIN: the FIFO is full, so it has been rung often enough */
}

static int in_control(const void *p)
{
    return (const char *)p >= (const char *)ftrma_ctl && (const char *)p < (const char *)(ftrma_ctl + 1);
}

void ftrma_wake(struct ftrma_bell *bell)
{
    if (unlikely(ftrma_agent_bell >= 0) && in_control(bell))
        ftrma_tell_agent();
    __atomic_add_fetch(&bell->word, 1, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&bell->sleepers, __ATOMIC_SEQ_CST))
        syscall(SYS_futex, &bell->word, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

/* Yield, or sleep; count the time as time that the process has waited. */
static void give_way(unsigned step, struct ftrma_bell *bell, uint32_t seen, uint64_t awaits)
{
    struct ftrma_proc alone, *me = ftrma_ctl ? &ftrma_ctl->proc[ftrma_me] : &alone;
    uint64_t began = ftrma_now_ns();
    alone.waited_ns = 0;
    if (step < SPINS + YIELDS)
        sched_yield();
    else
        ftrma_nap(bell, seen, NAP_NS, awaits);
    __atomic_store_n(&me->waited_ns, me->waited_ns + (ftrma_now_ns() - began), __ATOMIC_RELAXED);
}

void ftrma_wait_step(unsigned *step, struct ftrma_bell *bell, uint32_t seen, uint64_t awaits)
{
    if (*step < SPINS) {
#if defined(__x86_64__)
        __builtin_ia32_pause();
#endif
    } else {
        give_way(*step, bell, seen, awaits);
    }
    *step += *step < SPINS + YIELDS;
}

void ftrma_ring(void)
{
    ftrma_wake(&ftrma_ctl->bell);
}

void ftrma_sleep(uint32_t seen, uint64_t timeout_us)
{
    ftrma_nap(&ftrma_ctl->bell, seen, timeout_us * 1000, ftrma_awaits(FTRMA_WHAT_COMMIT, -1));
}

/* ---- roles ---------------------------------------------------------------------------------- */

int ftrma_role_of(struct ftrma_ctl *ctl, int proc, int *index)
{
    const struct ftrma_roles *roles = ftrma_roles(ctl);
    for (uint32_t s = 0; s < ctl->nslots; s++)
        if (roles->slot_proc[s] == proc) {
            *index = (int)s;
            return FTRMA_ROLE_SLOT;
        }
    for (uint32_t k = 0; k < ctl->nchecksums; k++)
        if (roles->checksum_proc[k] == proc) {
            *index = (int)k;
            return FTRMA_ROLE_CHECKSUM;
        }
    *index = ctl->proc[proc].spare;
    return FTRMA_ROLE_SPARE;
}

int ftrma_my_role(int *index)
{
    return ftrma_role_of(ftrma_ctl, ftrma_me, index);
}
