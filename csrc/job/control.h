/* The control file and this process's place in the job (control.c). */
#ifndef FTRMA_CONTROL_H
#define FTRMA_CONTROL_H

#include "attempt.h"
#include "internal.h"

/* Written once, by ftrma_join and ftrma_set_link; NULL and -1 until then. */
extern struct ftrma_ctl *ftrma_ctl;
extern int ftrma_me;
extern const char *ftrma_directory;
extern int ftrma_link; /* socket to the supervisor of a job over several nodes, or -1 */
extern int ftrma_agent_bell; /* the bell of the node's agent, or -1; written once, by
                                ftrma_set_agent */

static inline const struct ftrma_roles *ftrma_roles(const struct ftrma_ctl *ctl)
{
    return &ctl->roles[LOAD(&ctl->roles_seq) & 1];
}

/* Brackets around an MPI call that may block: `calls` tells the watching thread and the
   supervisor. */
#define CALLS_STEP ((uint64_t)FTRMA_CALLS_INSIDE + 1)

static inline void ftrma_enter_call(void)
{
    if (!ftrma_ctl)
        return;
    ftrma_thread.calls++;
    __atomic_add_fetch(&ftrma_ctl->proc[ftrma_me].calls, CALLS_STEP + 1, __ATOMIC_SEQ_CST);
}

static inline void ftrma_leave_call(void)
{
    if (!ftrma_ctl)
        return;
    ftrma_thread.calls--;
    __atomic_add_fetch(&ftrma_ctl->proc[ftrma_me].calls, CALLS_STEP - 1, __ATOMIC_SEQ_CST);
}

/* Note the name of the library's call that this process enters. */
static inline void ftrma_name_call(const char *name)
{
    if (ftrma_ctl)
        __atomic_store_n(&ftrma_ctl->proc[ftrma_me].call, (uint64_t)(uintptr_t)name, __ATOMIC_RELAXED);
}

/* 1 if other threads of this process than the calling one are inside such a call. */
static inline int ftrma_others_inside(void)
{
    return (LOAD(&ftrma_ctl->proc[ftrma_me].calls) & FTRMA_CALLS_INSIDE) > ftrma_thread.calls;
}

/* Send one line to the supervisor of a job over several nodes, past Python; printf-like. */
void ftrma_tell(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Open a file of the job: a regular file that only this user can access, and no link. An fd or
   -errno. */
int ftrma_open(const char *path, int flags);

/* The value of ftrma_proc.awaits for a wait of this kind of event for this slot. */
static inline uint64_t ftrma_awaits(enum ftrma_what what, int slot)
{
    return (uint64_t)what << 32 | (uint32_t)(slot + 1);
}

/* One step of a wait: spin, then yield, then sleep until the bell is rung; seen: bell->word as it
   was before the condition was checked; awaits: see ftrma_awaits. */
void ftrma_wait_step(unsigned *step, struct ftrma_bell *bell, uint32_t seen, uint64_t awaits);
void ftrma_wake(struct ftrma_bell *bell);
/* Sleep until the bell is rung or the time is over; `seen` and `awaits` as above. */
void ftrma_nap(struct ftrma_bell *bell, uint32_t seen, uint64_t ns, uint64_t awaits);
/* Wake the node's agent: something was stored in the control file that other nodes must see.
   Ringing a bell there also does this. */
void ftrma_tell_agent(void);

#endif
