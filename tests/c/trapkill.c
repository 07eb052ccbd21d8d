/* Deaths at chosen instructions: loaded before all other libraries into each process of a job.
 *
 * TRAP_LIBRARY is a name that the path of a library of ftrma's ends with, such as "_native.so"; once
 * the process has opened it, breakpoints stand at instructions of it. A thread that comes to one counts
 * the visit, executes the instruction alone with the processor's trap flag, and the breakpoint
 * stands again. The tests write the file TRAP_FILE, which all processes of the job map:
 *
 * - TRAP_MODE=kill: an array of struct breakpoint. The process that comes to one for the nth time in
 *   the role that is named there, counted over all processes, ends by SIGKILL before the instruction.
 * - TRAP_MODE=hold: an array of struct breakpoint, of which at and count are used. The thread that comes
 *   to one waits there until the program has ended, or for HOLD_S seconds.
 * - TRAP_MODE=survey: struct survey, then size bytes each for the instructions and for each role. A
 *   breakpoint stands at each instruction, until the process has passed it MOST times; the byte of a
 *   role is the most visits of a process that had it at the last of them.
 *
 * Visits of a thread that passes while another one executes the same instruction are not counted. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include "ftrma.h"

#define NATIVE "/_native.so" /* knows the role of its process */
#define INT3 0xcc
#define TRAP_FLAG 0x100
#define MOST 3         /* visits that a survey counts, in each process */
#define IN_VAIN 100000 /* visits of a process in another role; a breakpoint then stands no more */
#define HOLD_S 20
#define NOBODY 3       /* role of a process without a place in the job: its agent, its guardian */

struct breakpoint {
    uint64_t at;    /* of the instruction, from the beginning of the library */
    uint64_t nth;   /* visit that ends the process */
    uint64_t count; /* visits so far */
    int32_t role;   /* FTRMA_ROLE_*, NOBODY */
    int32_t index;  /* number of the slot, checksum rank or spare; -1: any */
    int32_t struck; /* pid of the process that has ended here */
    int32_t first;  /* it stands once this many others have struck */
};

struct survey {
    uint64_t begin, size; /* of the code, from the beginning of the library */
    uint8_t bytes[];      /* size bytes, not 0 where an instruction begins; then size bytes a role */
};

static uint8_t *base;     /* where the library is */
static uint8_t *original; /* the library's code, as it was */
static uint64_t code_begin, code_size;
static uint8_t *passed; /* for each byte of the code: visits of this process in a survey */
static uint32_t *vain;  /* for each breakpoint: visits in another role */
static struct breakpoint *breakpoints;
static uint64_t nbreakpoints;
static struct survey *survey;
static int holds; /* 1: a breakpoint is a place to wait at */
static int (*role_of_me)(int *index);
static void **control;
static __thread uint8_t *stepping; /* the instruction that this thread executes alone */

static int my_role(int *index)
{
    *index = 0;
    return role_of_me && control && *control ? role_of_me(index) : NOBODY;
}

static int all_struck_before(int32_t first)
{
    int32_t n = 0;
    for (uint64_t i = 0; i < nbreakpoints; i++)
        n += __atomic_load_n(&breakpoints[i].struck, __ATOMIC_SEQ_CST) != 0;
    return n >= first;
}

/* 1 if the breakpoint shall stand again. */
static int visit_breakpoint(uint64_t at)
{
    int index, role = my_role(&index), stands = 0;
    for (uint64_t i = 0; i < nbreakpoints; i++) {
        struct breakpoint *b = &breakpoints[i];
        if (b->at != at || __atomic_load_n(&b->struck, __ATOMIC_SEQ_CST))
            continue;
        if (b->role != role || (b->index >= 0 && b->index != index)) {
            stands |= ++vain[i] < IN_VAIN;
            continue;
        }
        stands = 1;
        int32_t nobody = 0;
        if (!all_struck_before(b->first)
            || __atomic_add_fetch(&b->count, 1, __ATOMIC_SEQ_CST) < b->nth)
            continue;
        if (__atomic_compare_exchange_n(&b->struck, &nobody, getpid(), 0, __ATOMIC_SEQ_CST,
                                        __ATOMIC_SEQ_CST))
            kill(getpid(), SIGKILL);
    }
    return stands;
}

static int has_ended(void)
{
    const struct ftrma_ctl *ctl = control ? *control : NULL;
    return ctl && __atomic_load_n(&ctl->alarm, __ATOMIC_SEQ_CST) == FTRMA_ENDED;
}

static int visit_hold(uint64_t at)
{
    const struct timespec ms = {.tv_nsec = 1000000};
    for (uint64_t i = 0; i < nbreakpoints; i++)
        if (breakpoints[i].at == at)
            __atomic_add_fetch(&breakpoints[i].count, 1, __ATOMIC_SEQ_CST);
    for (int n = 0; n < HOLD_S * 1000 && !has_ended(); n++)
        nanosleep(&ms, NULL);
    return 1;
}

static int visit_survey(uint64_t at)
{
    int index, role = my_role(&index);
    uint8_t *count = survey->bytes + (1 + (uint64_t)role) * survey->size + at - survey->begin;
    uint8_t visits = ++passed[at - survey->begin];
    if (*count < visits)
        *count = visits;
    return visits < MOST;
}

static void on_trap(int number, siginfo_t *info, void *context)
{
    (void)number;
    greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    uint8_t *now = (uint8_t *)registers[REG_RIP];
    /* A breakpoint is SI_KERNEL. The trap flag's is TRAP_TRACE, but TRAP_BRKPT if a virtual machine
       that was interrupted here has lost the reason (DR6): Linux takes that for an ICEBP. */
    if (info->si_code != SI_KERNEL) {
        if (stepping && now == stepping)
            return; /* one turn of an instruction that repeats itself */
        if (stepping)
            __atomic_store_n(stepping, INT3, __ATOMIC_SEQ_CST);
        stepping = NULL;
        registers[REG_EFL] &= ~TRAP_FLAG;
        return;
    }
    uint8_t *at = now - 1;
    if (at < base + code_begin || at >= base + code_begin + code_size)
        return; /* not one of these */
    if (stepping && stepping != at)
        __atomic_store_n(stepping, INT3, __ATOMIC_SEQ_CST); /* another thread has set this one */
    stepping = NULL;
    registers[REG_EFL] &= ~TRAP_FLAG;
    uint64_t offset = (uint64_t)(at - base);
    int stands = survey ? visit_survey(offset)
                        : holds ? visit_hold(offset)
                                : visit_breakpoint(offset);
    __atomic_store_n(at, original[offset - code_begin], __ATOMIC_SEQ_CST);
    registers[REG_RIP] = (greg_t)at;
    if (stands) {
        stepping = at;
        registers[REG_EFL] |= TRAP_FLAG;
    }
}

static int ends_with(const char *path, const char *end)
{
    size_t all = strlen(path), most = strlen(end);
    return all >= most && !strcmp(path + all - most, end);
}

/* Find the code of the library: its segment that may be executed. */
static int find(struct dl_phdr_info *info, size_t size, void *name)
{
    (void)size;
    if (!ends_with(info->dlpi_name, name))
        return 0;
    for (int i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_LOAD && info->dlpi_phdr[i].p_flags & PF_X) {
            base = (uint8_t *)info->dlpi_addr;
            code_begin = info->dlpi_phdr[i].p_vaddr;
            code_size = info->dlpi_phdr[i].p_memsz;
            return 1;
        }
    return 0;
}

static void *map_file(const char *path, uint64_t *size)
{
    struct stat status;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &status))
        return NULL;
    *size = (uint64_t)status.st_size;
    void *found = mmap(NULL, *size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    return found == MAP_FAILED ? NULL : found;
}

static void set(uint64_t at)
{
    __atomic_store_n(base + at, INT3, __ATOMIC_SEQ_CST);
}

static void arm(void)
{
    const char *name = getenv("TRAP_LIBRARY"), *path = getenv("TRAP_FILE"), *mode = getenv("TRAP_MODE");
    uint64_t size, page = (uint64_t)sysconf(_SC_PAGESIZE);
    void *file = path && mode ? map_file(path, &size) : NULL;
    if (!file || !dl_iterate_phdr(find, (void *)name) || !(original = malloc(code_size)))
        return;
    memcpy(original, base + code_begin, code_size);
    uint8_t *first = base + code_begin / page * page;
    if (mprotect(first, (size_t)(base + code_begin + code_size - first),
                 PROT_READ | PROT_WRITE | PROT_EXEC))
        return;
    if (!strcmp(mode, "survey")) {
        survey = file;
        passed = calloc(survey->size, 1);
        for (uint64_t i = 0; i < survey->size; i++)
            if (survey->bytes[i])
                set(survey->begin + i);
    } else {
        holds = !strcmp(mode, "hold");
        breakpoints = file;
        nbreakpoints = size / sizeof *breakpoints;
        vain = calloc(nbreakpoints, sizeof *vain);
        for (uint64_t i = 0; i < nbreakpoints; i++)
            if (!breakpoints[i].struck)
                set(breakpoints[i].at);
    }
}

typedef void *(*opener)(const char *, int);

static __attribute__((noinline)) void *open_ours(opener real, const char *path, int flags)
{
    void *library = real(path, flags);
    if (library && ends_with(path, NATIVE)) {
        role_of_me = (int (*)(int *))dlsym(library, "ftrma_my_role");
        control = dlsym(library, "ftrma_ctl");
    }
    if (library && !base && ends_with(path, getenv("TRAP_LIBRARY")))
        arm();
    return library;
}

static __attribute__((noinline)) int is_ours(const char *path)
{
    const char *name = getenv("TRAP_LIBRARY");
    return path && name && (ends_with(path, name) || ends_with(path, NATIVE));
}

void *dlopen(const char *path, int flags)
{
    static opener real;
    if (!real)
        real = (opener)dlsym(RTLD_NEXT, "dlopen");
    if (is_ours(path))
        return open_ours(real, path, flags);
    return real(path, flags); /* a jump: the library looks at who has called */
}

/* No thread may block the signal of a breakpoint. */
int pthread_sigmask(int how, const sigset_t *mask, sigset_t *before)
{
    static int (*real)(int, const sigset_t *, sigset_t *);
    sigset_t others;
    if (!real)
        real = (int (*)(int, const sigset_t *, sigset_t *))dlsym(RTLD_NEXT, "pthread_sigmask");
    if (mask && how != SIG_UNBLOCK) {
        others = *mask;
        sigdelset(&others, SIGTRAP);
        mask = &others;
    }
    return real(how, mask, before);
}

__attribute__((constructor)) static void begin(void)
{
    struct sigaction action = {.sa_sigaction = on_trap, .sa_flags = SA_SIGINFO | SA_RESTART};
    /* The handler of a signal that comes with a breakpoint's would run before `on_trap`, while
       SIGTRAP is blocked, and the next breakpoint would end the process. */
    sigfillset(&action.sa_mask);
    if (getenv("TRAP_LIBRARY"))
        sigaction(SIGTRAP, &action, NULL);
}
