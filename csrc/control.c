/* The control file: membership, detection, named places.
 *
 * Detection does not go through MPI.  A thread of every process sleeps in poll() on one pidfd per
 * process of the job; the kernel makes it readable the moment the process is gone, whatever it was
 * doing.  The thread then does three things that are safe from any thread and idempotent over
 * processes: marks the death, raises the alarm, and revokes the user's communicators so that
 * whoever is blocked inside MPI comes back.
 *
 * Rounds.  The alarm is the number of the newest repair round asked for.  A death is marked DEAD
 * *before* the alarm is read and raised; a repair round looks at the marks *after* reading the
 * alarm and again just before it ends.  So either the round sees the mark, or the death is
 * numbered with a later round: none is lost, and two processes that notice the same death agree
 * on its number because the first to write death_round wins.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "log.h"

_Static_assert(sizeof(struct ftrma_slot) % 128 == 0, "slots share no cache lines");

#define MAGIC 0x4654524d41000003ull /* "FTRMA", layout 3 */

/* A waiter spins this often before it yields; measured: longer only helps when every process has
   a core of its own, and costs the others their time slice when not. */
#define SPINS 64
#define YIELDS 256
#define NAP_NS 1000000L

struct ftrma_ctl *ftrma_ctl;
int ftrma_me = -1;
const char *ftrma_directory;
uint64_t ftrma_round;
uint32_t ftrma_armed;
int ftrma_link = -1;

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
    c->entry = 1;
    for (uint32_t s = 0; s < nslots; s++) /* there are no logs yet */
        c->slots[s].marks[0].version = c->slots[s].marks[1].version = UINT64_MAX;
    for (uint32_t p = nslots + c->nchecksums; p < nprocs; p++)
        c->proc[p].spare = (int32_t)(p - nslots - c->nchecksums);
    struct ftrma_roles *roles = &c->roles[0];
    for (uint32_t s = 0; s < nslots; s++)
        roles->slot_proc[s] = (int32_t)s;
    for (uint32_t k = 0; k < c->nchecksums; k++)
        roles->checksum_proc[k] = (int32_t)(nslots + k);
    STORE(&c->magic, MAGIC);
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
    return error ? error : LOAD(&(*ctl)->magic) == MAGIC ? 0 : -EINVAL;
}

#define STORY_BYTES (1 << 18) /* some thousand events, and one more even if memory is full */

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

int ftrma_join(struct ftrma_ctl *ctl, int proc, const char *directory)
{
    if (proc < 0 || proc >= (int)ctl->nprocs)
        return -EINVAL;
    char *copy = strdup(directory);
    if (!copy)
        return -ENOMEM;
    /* Windows from Create are read and written across processes by process_vm_readv; where the
       kernel restricts that to descendants, this lets the job's other processes in. It fails
       harmlessly where there is no such restriction. */
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
    ftrma_die_with_parent(); /* nobody is left behind when the launcher is killed */
    ftrma_directory = copy;
    ftrma_me = proc;
    ftrma_ctl = ctl;
    ftrma_round = LOAD(&ctl->alarm);
    ctl->proc[proc].pid = (int32_t)getpid();
    ctl->proc[proc].leaving = 0;
    STORE(&ctl->proc[proc].state, FTRMA_ALIVE);
    ftrma_watch_own_end();
    ftrma_arm();
    return 0;
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
    /* A supervisor that is gone ends this process anyway; there is nobody else to tell. */
    if (n > 0 && n < (int)sizeof line)
        (void)!send(ftrma_link, line, (size_t)n, MSG_NOSIGNAL);
}

uint64_t ftrma_load(const uint64_t *word)
{
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

int ftrma_claim_error(void)
{
    int32_t nobody = 0;
    return __atomic_compare_exchange_n(&ftrma_ctl->error_owner, &nobody, ftrma_me + 1, 0,
                                       __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}

uint64_t ftrma_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* ---- waiting -------------------------------------------------------------------------------- */

/* The sleeper counts itself, then the kernel compares the word; the waker changes the word, then
   looks for sleepers: one of the two sees the other.  A process killed asleep stays counted, which
   costs later wakers a system call each and nothing else. */
static void nap(struct ftrma_bell *bell, uint32_t seen, uint64_t ns)
{
    struct timespec t = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
    int32_t *waiting = &ftrma_ctl->proc[ftrma_me].waiting;
    __atomic_store_n(waiting, 1, __ATOMIC_RELAXED);
    __atomic_add_fetch(&bell->sleepers, 1, __ATOMIC_SEQ_CST);
    syscall(SYS_futex, &bell->word, FUTEX_WAIT, seen, &t, NULL, 0);
    __atomic_sub_fetch(&bell->sleepers, 1, __ATOMIC_SEQ_CST);
    __atomic_store_n(waiting, 0, __ATOMIC_RELAXED);
}

void ftrma_wake(struct ftrma_bell *bell)
{
    __atomic_add_fetch(&bell->word, 1, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&bell->sleepers, __ATOMIC_SEQ_CST))
        syscall(SYS_futex, &bell->word, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

void ftrma_wait_step(unsigned *step, struct ftrma_bell *bell, uint32_t seen)
{
    if (*step < SPINS) {
#if defined(__x86_64__)
        __builtin_ia32_pause();
#endif
    } else if (*step < SPINS + YIELDS) {
        sched_yield();
    } else {
        nap(bell, seen, NAP_NS);
        return;
    }
    ++*step;
}

void ftrma_ring(void)
{
    ftrma_wake(&ftrma_ctl->bell);
}

void ftrma_sleep(uint32_t seen, uint64_t timeout_us)
{
    nap(&ftrma_ctl->bell, seen, timeout_us * 1000);
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

/* ---- detection ------------------------------------------------------------------------------ */

static void raise_to(uint64_t round)
{
    uint64_t seen = LOAD(&ftrma_ctl->alarm);
    while (seen < round && !ftrma_cas(&ftrma_ctl->alarm, seen, round))
        seen = LOAD(&ftrma_ctl->alarm);
    ftrma_ring();
}

void ftrma_raise(uint64_t round)
{
    raise_to(round + 1);
}

/* A checksum rank is gone and nobody can take its seat.  While this looks, spares may be taking
   seats: a rank found dead may have been followed by what was the last spare, so it looks again. */
static int seat_stays_vacant(void)
{
    uint64_t seats;
    uint32_t vacant, spares;
    int index;
    do {
        seats = LOAD(&ftrma_ctl->roles_seq);
        const struct ftrma_roles *roles = ftrma_roles(ftrma_ctl);
        vacant = spares = 0;
        for (uint32_t k = 0; k < ftrma_ctl->nchecksums; k++)
            vacant += LOAD(&ftrma_ctl->proc[roles->checksum_proc[k]].state) == FTRMA_DEAD;
        for (uint32_t p = 0; p < ftrma_ctl->nprocs; p++)
            spares += LOAD(&ftrma_ctl->proc[p].state) == FTRMA_ALIVE
                      && ftrma_role_of(ftrma_ctl, (int)p, &index) == FTRMA_ROLE_SPARE;
    } while (seats != LOAD(&ftrma_ctl->roles_seq));
    return vacant > 0 && spares == 0;
}

/* A rule that struck since the last death was noticed struck this one. */
static uint64_t when_it_died(void)
{
    uint64_t killed = LOAD(&ftrma_ctl->kill_ns), before = LOAD(&ftrma_ctl->death_ns);
    return killed > before ? killed : ftrma_now_ns();
}

void ftrma_note_death(int proc)
{
    if (LOAD(&ftrma_ctl->alarm) == FTRMA_ENDED || LOAD(&ftrma_ctl->request))
        return; /* everybody is ending */
    struct ftrma_proc *p = &ftrma_ctl->proc[proc];
    int32_t alive = FTRMA_ALIVE;
    if (__atomic_compare_exchange_n(&p->state, &alive, FTRMA_DEAD, 0, __ATOMIC_SEQ_CST,
                                    __ATOMIC_SEQ_CST))
        STORE(&ftrma_ctl->death_ns, when_it_died());
    uint64_t alarm = LOAD(&ftrma_ctl->alarm);
    int index;
    int repairing = alarm != LOAD(&ftrma_ctl->repaired), leaving = LOAD(&p->leaving);
    int slot = ftrma_role_of(ftrma_ctl, proc, &index) == FTRMA_ROLE_SLOT;
    /* No failure: the supervisor ends the job. */
    if (slot && LOAD(&ftrma_ctl->supervisor)
        && (leaving & FTRMA_LEFT_BY_STATUS
            || (leaving & (FTRMA_LEFT_BY_SIGNAL | FTRMA_LEFT_BY_EXIT) && !repairing))) {
        ftrma_ring();
        return;
    }
    if (!slot && !repairing && !seat_stays_vacant() && !LOAD(&ftrma_ctl->partitioned)) {
        ftrma_ring(); /* the others can go on: a server's seat is filled by the servers */
        return;
    }
    ftrma_cas(&p->death_round, 0, alarm + 1);
    raise_to(LOAD(&p->death_round));
}

/* Without its supervisor or launcher the job is at its end: all processes are being killed, and that
   is no failure to be repaired, which would put vaults aside that the next launch needs. */
static void left_alone(void)
{
    uint32_t nothing = FTRMA_NOTHING;
    __atomic_compare_exchange_n(&ftrma_ctl->request, &nothing, FTRMA_RELAUNCH, 0,
                                __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}

static void *watch(void *unused)
{
    (void)unused;
    int n = (int)ftrma_ctl->nprocs, strike = -1;
    const int32_t keepers[] = {ftrma_ctl->supervisor, ftrma_ctl->launcher};
    struct pollfd *fds = calloc((size_t)n + 2, sizeof *fds);
    if (!fds)
        return NULL;
    /* Behind the processes: whoever died because of them is looked at before, so that the cause is
       seen with the consequence. */
    for (int k = 0; k < 2; k++) {
        fds[n + k].events = POLLIN;
        fds[n + k].fd = keepers[k] ? (int)syscall(SYS_pidfd_open, keepers[k], 0) : -1;
        if (keepers[k] && fds[n + k].fd < 0 && errno == ESRCH)
            left_alone();
    }
    for (int i = 0; i < n; i++) {
        fds[i].events = POLLIN;
        fds[i].fd = i == ftrma_me ? -1
                                  : (int)syscall(SYS_pidfd_open, ftrma_ctl->proc[i].pid, 0);
        if (fds[i].fd < 0 && i != ftrma_me && errno == ESRCH)
            ftrma_note_death(i);
    }
    uint64_t revoked = LOAD(&ftrma_ctl->alarm), last_seq = 0;
    for (;;) {
        /* Deaths wake the thread; the timeout serves alarms raised for another reason, and rules
           for a time. Rare, because a program is to feel nothing of it. */
        int timeout_ms = ftrma_armed & (1u << FTRMA_PLACE_TIME) ? 5 : 200;
        if (ftrma_pending())
            timeout_ms = LOAD(&ftrma_ctl->alarm) == revoked ? 20 : 1;
        strike = poll(fds, (nfds_t)n + 2, timeout_ms);
        if (LOAD(&ftrma_ctl->alarm) == FTRMA_ENDED)
            break;
        for (int k = n; strike > 0 && k < n + 2; k++)
            if (fds[k].fd >= 0 && fds[k].revents) {
                left_alone();
                close(fds[k].fd);
                fds[k].fd = -1;
            }
        for (int i = 0; strike > 0 && i < n; i++)
            if (fds[i].fd >= 0 && fds[i].revents) {
                close(fds[i].fd);
                fds[i].fd = -1;
                ftrma_note_death(i);
            }
        uint64_t alarm = LOAD(&ftrma_ctl->alarm);
        if (alarm != revoked && ftrma_revoke_all())
            revoked = alarm;
        uint64_t seq = LOAD(&ftrma_ctl->proc[ftrma_me].call_seq);
        if (ftrma_pending() && seq & 1 && seq == last_seq)
            ftrma_jolt();
        last_seq = seq;
        ftrma_place(FTRMA_PLACE_TIME);
    }
    free(fds);
    return NULL;
}

int ftrma_watch(void)
{
    pthread_t thread;
    sigset_t all, old;
    sigfillset(&all); /* signals belong to Python's main thread, but for errors in this one */
    for (const int *error = (const int[]){SIGSEGV, SIGBUS, SIGFPE, SIGILL, 0}; *error; error++)
        sigdelset(&all, *error);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int error = pthread_create(&thread, NULL, watch, NULL);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (!error)
        pthread_detach(thread);
    return -error;
}

void ftrma_set_round(uint64_t round)
{
    STORE(&ftrma_round, round);
}

int ftrma_alarmed(void)
{
    return ftrma_pending();
}

int ftrma_must_unwind(void)
{
    return ftrma_unwinding();
}

/* ---- named places --------------------------------------------------------------------------- */

static int rule_is_mine(const struct ftrma_rule *rule)
{
    int index, role = ftrma_my_role(&index);
    return !LOAD(&rule->fired) && rule->role == role && rule->index == index;
}

void ftrma_arm(void)
{
    uint32_t armed = 0;
    for (uint32_t i = 0; i < ftrma_ctl->nrules; i++)
        if (rule_is_mine(&ftrma_ctl->rules[i]))
            armed |= 1u << ftrma_ctl->rules[i].place;
    __atomic_store_n(&ftrma_armed, armed, __ATOMIC_RELAXED);
}

void ftrma_visit(int place)
{
    /* What is only replayed was visited before. */
    if (ftrma_tape.mode && place <= FTRMA_PLACE_STAGED)
        return;
    for (uint32_t i = 0; i < ftrma_ctl->nrules; i++) {
        struct ftrma_rule *rule = &ftrma_ctl->rules[i];
        if (rule->place != place || !rule_is_mine(rule))
            continue;
        uint64_t n;
        if (place == FTRMA_PLACE_TIME) {
            uint64_t start = LOAD(&ftrma_ctl->start_ns);
            n = start ? (ftrma_now_ns() - start) / 1000000u : 0;
        } else {
            n = __atomic_add_fetch(&rule->visits, 1, __ATOMIC_SEQ_CST);
        }
        if (n >= rule->at) {
            STORE(&rule->fired, 1);
            STORE(&ftrma_ctl->kill_ns, ftrma_now_ns());
            if (ftrma_link >= 0)
                ftrma_tell("{\"event\": \"strike\", \"rule\": %u}\n", i);
            kill(getpid(), SIGKILL);
        }
    }
}
