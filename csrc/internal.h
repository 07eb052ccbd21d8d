/* What the C files share among themselves and show to nobody else. */
#ifndef FTRMA_INTERNAL_H
#define FTRMA_INTERNAL_H

#include <mpi.h>
#include <stdatomic.h>
#include <stdint.h>

#include "ftrma.h"

#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

/* This process's place in the job.  Zero until ftrma_join. */
extern struct ftrma_ctl *ftrma_ctl;
extern int ftrma_me;
extern const char *ftrma_directory;
extern uint64_t ftrma_round;      /* repair round last left */
extern uint32_t ftrma_armed;      /* bit per place where a --kill rule waits for this process */
extern MPI_Comm ftrma_user_world; /* what MPI_COMM_WORLD means to the user's program */
extern int ftrma_code_unwind;     /* error code that Python turns into Rollback */
extern int ftrma_finalized;       /* the program has called MPI_Finalize */
extern int ftrma_link;            /* socket to the supervisor of a job over several nodes, or -1 */

#define LOAD(p) __atomic_load_n((p), __ATOMIC_ACQUIRE)
#define STORE(p, v) __atomic_store_n((p), (v), __ATOMIC_SEQ_CST)

/* A failure is waiting to be handled: calls of the user's program go no further. */
static inline int ftrma_pending(void)
{
    if (ftrma_ctl == NULL)
        return 0;
    uint64_t alarm = LOAD(&ftrma_ctl->alarm);
    return unlikely(alarm != ftrma_round) && alarm != FTRMA_ENDED;
}

/* What a thread knows of failures; see attempt.c. */
struct ftrma_thread {
    uint64_t round;   /* alarm that its calls need not heed */
    uint64_t attempt; /* of the program that it belongs to; 0: not known yet */
};
extern _Thread_local struct ftrma_thread ftrma_thread __attribute__((tls_model("initial-exec")));
extern uint64_t ftrma_attempt; /* the program's current one in this process, from 1 on */

/* This thread was begun in an earlier attempt: its calls have no effect. */
static inline int ftrma_stale(void)
{
    return ftrma_thread.attempt && ftrma_thread.attempt != LOAD(&ftrma_attempt);
}

/* attempt.c: this thread's call goes on (0), perhaps after a repair in place, or unwinds (1). */
int ftrma_interrupted(void);

static inline int ftrma_unwinding(void)
{
    return ftrma_ctl && unlikely(LOAD(&ftrma_ctl->alarm) != ftrma_thread.round)
           && ftrma_interrupted();
}

static inline void ftrma_place(int place)
{
    if (unlikely(ftrma_armed & (1u << place)))
        ftrma_visit(place);
}

/* The same place at a window of the library's own, which only a job over several nodes protects. */
static inline void ftrma_native_place(int place)
{
    if (unlikely(ftrma_link >= 0))
        ftrma_place(place);
}

static inline const struct ftrma_roles *ftrma_roles(const struct ftrma_ctl *ctl)
{
    return &ctl->roles[LOAD(&ctl->roles_seq) & 1];
}

/* communicator.c: what the library knows the program's communicators by (comm.h). */
extern int ftrma_nderived, ftrma_nstale;
extern MPI_Comm ftrma_world_face;
MPI_Comm ftrma_live(MPI_Comm comm);
MPI_Comm ftrma_face(MPI_Comm comm);

static inline MPI_Comm ftrma_comm(MPI_Comm comm)
{
    if (comm == MPI_COMM_WORLD || comm == ftrma_world_face)
        return ftrma_user_world != MPI_COMM_NULL ? ftrma_user_world : comm;
    return ftrma_nderived || ftrma_nstale ? ftrma_live(comm) : comm;
}

/* The program uses a communicator in a way that no replay can repeat, unless nobody else is in it. */
void ftrma_foreign_on(MPI_Comm comm, const char *call);

/* Brackets around an MPI call that may block: the watchdog reads call_seq. */
static inline void ftrma_enter_call(void)
{
    if (ftrma_ctl)
        STORE(&ftrma_ctl->proc[ftrma_me].call_seq, ftrma_ctl->proc[ftrma_me].call_seq + 1);
}
#define ftrma_leave_call ftrma_enter_call

/* One line to the supervisor of a job over several nodes, past Python; printf-like. */
void ftrma_tell(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* leave.c: from now on an end of this process's own making is noted. */
void ftrma_watch_own_end(void);
/* MPI_Win_set_errhandler, whose fatal handler ends the job in words. */
int ftrma_win_set_errhandler(MPI_Win win, MPI_Errhandler handler);

/* Open a file of the job: a regular one of this user's alone, and no link.  An fd or -errno. */
int ftrma_open(const char *path, int flags);

/* What an error of the library means: an error of the program's, or a failure. */
int ftrma_judge(int rc);

/* The error of a call that others would have to join after MPI_Finalize. */
int ftrma_after_finalize(void);

/* Turn the result of an MPI call into what the user's program sees. */
static inline int ftrma_result(int rc)
{
    return likely(rc == MPI_SUCCESS) ? rc : ftrma_judge(rc);
}

/* An MPI call that may block, bracketed for the watchdog and with its result turned. */
#define GUARDED(call)                                                                             \
    ({                                                                                            \
        int guarded_rc = ftrma_code_unwind;                                                       \
        if (unlikely(ftrma_finalized)) {                                                          \
            guarded_rc = ftrma_after_finalize();                                                  \
        } else if (!ftrma_unwinding()) {                                                          \
            ftrma_enter_call();                                                                   \
            guarded_rc = (call);                                                                  \
            ftrma_leave_call();                                                                   \
            guarded_rc = ftrma_result(guarded_rc);                                                \
        }                                                                                         \
        guarded_rc;                                                                               \
    })

/* One step of a wait: spin, then yield, then sleep until the bell is rung; seen: bell->word as it
   was before the condition was looked at. */
void ftrma_wait_step(unsigned *step, struct ftrma_bell *bell, uint32_t seen);
void ftrma_wake(struct ftrma_bell *bell);

/* Slot of a group's rank, whatever process held it when the group was made; or MPI_UNDEFINED. */
int ftrma_slot_in(MPI_Group group, int rank);
void ftrma_register_comm(MPI_Comm comm);
/* The same for one that the program has from the library itself, by this call. */
void ftrma_register_foreign(MPI_Comm comm, const char *call);
/* The same for one that the program gets later; NULL: there is none any more. */
void ftrma_foreign_later(const char *call);
const char *ftrma_foreign_maker(void); /* the call that has made some such; NULL: there is none */
void ftrma_unregister_comm(MPI_Comm comm);
int ftrma_revoke_all(void); /* 0: later, something must be finished first */
void ftrma_jolt(void);

#endif
