/* The data plane of ftrma: everything that C and Python share.
 *
 * A job on one node shares one directory of memory files:
 *
 *   control        struct ftrma_ctl: roles, life and death, the committed version (shared.h)
 *   vault-<proc>   the committed copy and the staged deltas of one process (vault/vault_state.h)
 *   window-<id>-<k> the k-th window that was made on a communicator (interpose/winfile.c)
 *   comm-<id>      bytes of the members of a communicator, in collectives (job/board.c)
 *   log-<s>        the accesses of slot s to others, and its results (log/chunks.c)
 *   room-<s>       memory for log-<s>: while that is made, and between two launches
 *   demand-<s>-0/1 a vault with a checkpoint that slot s took alone (log/demand.c)
 *
 * In a job over several nodes each node has such a directory. It has a control file, which the
 * nodes' agents keep equal to those of the other nodes (wire/mirror.c), the files of the node's
 * processes and slots, and a file for each window, with the parts of the node's members. Other
 * nodes reach these files through the agent.
 *
 * A *slot* is a logical rank of the user's program and survives failures; a *process* (proc) is a
 * position in the MPI world of this launch.  Roles tie the two together and change only in repair.
 *
 * Functions return MPI codes, negative errno values, or one of the FTRMA_* results below, and
 * Python decides what to do about them. C decides itself if an access cannot wait for Python: which
 * records of a log can be freed (log/chunks.c), which slot is asked for a demand checkpoint
 * (log/compact.c), and whether a replay is refused. It prints two errors: one that the program has
 * made fatal (interpose/errhandler.c), and a call of MPI after MPI_Finalize (job/errors.c). The
 * former also ends the process, as do a --kill rule (job/killrules.c) and MPI_Abort
 * (interpose/ends.c).
 *
 * The part between the two CFFI marks is also read by cffi; keep it free of macros with bodies.
 */
#ifndef FTRMA_H
#define FTRMA_H

#include <stddef.h>
#include <stdint.h>

#include "shared.h"

/* CFFI-BEGIN */
/* ---- job/: control.c, watch.c, alarm.c, killrules.c, attempt.c, interrupt.c, leave.c, rewind.c - */

/* Create the control file `path` for nprocs processes, with roles in their order and `strength`
   checksum ranks per group; [out] *ctl is mapped; the caller fills in slot_group. 0 or -errno. */
int ftrma_ctl_create(const char *path, uint32_t nprocs, uint32_t nslots, uint32_t ngroups,
                     uint32_t strength, uint32_t group_size, uint64_t capacity_blocks,
                     struct ftrma_ctl **ctl);
/* Make the file of the job's story, with memory allocated ahead. 0 or -errno. */
int ftrma_story_create(const char *path);
/* Map an existing control file. 0 or -errno. */
int ftrma_ctl_open(const char *path, struct ftrma_ctl **ctl);

/* Join the job as process `proc`, and publish its pid. Local. */
int ftrma_join(struct ftrma_ctl *ctl, int proc, const char *directory);
/* Have this process killed when its parent dies. For use between fork and exec. */
void ftrma_die_with_parent(void);
/* Start the thread that watches all processes and revokes communicators when one dies. */
int ftrma_watch(void);
/* Note that `proc` died; raise the alarm if its role matters (a slot, or anybody in a repair). */
void ftrma_note_death(int proc);
/* job/control.c: 1: a slot's process has ended itself: this is no failure, and the supervisor ends
   the job. If a framework is told of deaths, an end with status 0 counts as a death. */
int ftrma_ended_itself(int proc);
/* Note that a node is lost, with its memory, its agent and all its processes. */
void ftrma_note_lost(int node);

/* Make this a process of a job over several nodes: kills and aborts are told to the supervisor
   on the socket `fd`. */
void ftrma_set_link(int fd);
/* Set the descriptors by which this process and its node's agent wake each other: the agent's
   bell, the FIFO to which the agent writes, and the alarms of two origins (-1: there is none).
   Called before ftrma_watch. */
void ftrma_set_agent(int bell, int fifo, int origin, int service);

/* Set two words of this node's agent: the number of its scans for changes in the control file, and
   the newest scan whose words all nodes see, or will see, in the same order. Called before
   ftrma_watch. */
void ftrma_set_scans(const void *scans, const void *ordered);
/* Wait until everything that this process has stored has its place in the order of all stores:
   another process that calls this, and comes later in that order, sees it. FTRMA_OK or FTRMA_ALARM.
   On one node this does not wait. */
int ftrma_synchronize(void);

/* Get this process's role now: [out] *index is the number of its slot, checksum rank or spare. */
int ftrma_my_role(int *index);
int ftrma_role_of(struct ftrma_ctl *ctl, int proc, int *index);

uint64_t ftrma_load(const uint64_t *word);
void ftrma_store(uint64_t *word, uint64_t value);
int ftrma_cas(uint64_t *word, uint64_t expected, uint64_t desired); /* 1 if it was exchanged */
/* The monotonic clock of the job: this machine's clock, plus ahead_ns over several nodes. */
uint64_t ftrma_now_ns(void);
void ftrma_set_clock(int64_t ahead_ns);
/* Note that this process is about to end itself with this status. */
void ftrma_note_exit(int status);
/* Claim the right to report the error that ends the job: 1 for only one process. */
int ftrma_claim_error(void);

/* Ask for the repair round after `round`, unless it was already asked for. */
void ftrma_raise(uint64_t round);
/* Set the round that this process has left last; its calls unwind while the alarm is ahead of
   it. */
void ftrma_set_round(uint64_t round);
int ftrma_alarmed(void);

/* The attempt to which the calling thread belongs; 0: not known yet. Every call of MPI by a thread
   of an earlier attempt unwinds. A new thread gets its creator's attempt. */
uint64_t ftrma_attempt_of_thread(void);
void ftrma_set_attempt_of_thread(uint64_t attempt);
/* 1 if the calling thread must unwind: a failure cannot be repaired in place, or the thread
   belongs to an earlier attempt. */
int ftrma_must_unwind(void);
/* 1 if threads other than the program's were in calls of MPI, which end with the failure. Asked
   in a repair by the program's thread. */
int ftrma_loses_threads(void);

/* Use a signal to bring the program's thread to a repair when it waits outside of MPI (wake.c);
   function: tells Python that the signal has come (PyErr_SetInterruptEx). Called by the program's
   thread at each entry: a handler that is set after that is the program's own. patience_ns: if the
   thread waits for longer although the signal has come, the supervisor of a job over several nodes
   is told. 0 or -errno. */
typedef void (*ftrma_wake_function)(int number);
int ftrma_wake_by(int number, ftrma_wake_function function, uint64_t patience_ns);
void ftrma_wake_allow(int allowed); /* 1: the program runs */
int ftrma_wake_inside(void);        /* 1: the calling thread is in a call of MPI */

void ftrma_ring(void);
/* Sleep until the bell is rung or the time is over. [in] seen: bell.word looked at before. */
void ftrma_sleep(uint32_t seen, uint64_t timeout_us);

/* Visit a failpoint: count the visit, and kill this process if a --kill rule says so. */
void ftrma_failpoint_visit(int failpoint);
/* Visit a failpoint of a framework, by its name. */
void ftrma_failpoint_visit_named(const char *name);
void ftrma_arm(void); /* find out which rules concern this process: its role has changed */

/* End the attempt in a rollback: its threads unwind from now on, and only the slots' world is left,
   as at the start. */
void ftrma_attempt_end(void);
/* Enter the program: the calling thread belongs to the current attempt from now on, and there are
   no windows. */
void ftrma_attempt_begin(void);

/* ---- job/mail.c: for a framework that is told of deaths ----------------------------------------- */

struct ftrma_mail; /* as one process has opened it */

/* Results of ftrma_mail_append, beside FTRMA_OK. */
#define FTRMA_MAIL_FULL 1 /* the ring has no room now */
#define FTRMA_MAIL_DEAD 2 /* the receiver is dead */

/* Create the file of the mail between so many processes, with rings of ring_bytes (a multiple of
   4096) and so many words, all 0. 0 or -errno. */
int ftrma_mail_create(const char *path, int procs, uint64_t ring_bytes, uint64_t words);
/* Offsets in such a file, in bytes, for processes of other nodes that write there. The words of
   each process lie place_bytes after those of the process before. The words of the ring `to` *
   procs + `from` lie pair_bytes after those of the ring before, and its data ring_bytes after that
   ring's data. All words in front of `data` may be SET (wire.h). */
struct ftrma_mail_spots {
    uint64_t generation, deaths;
    uint64_t bells, dead, joined, place_bytes;
    uint64_t written, read, pair_bytes;
    uint64_t data, words, file_bytes;
};
void ftrma_mail_find(int procs, uint64_t ring_bytes, uint64_t words, struct ftrma_mail_spots *spots);
/* Map it, as process `me`. 0 or -errno. */
int ftrma_mail_open(const char *path, int me, struct ftrma_mail **mail);
/* Add deaths that this process notices to this mail from now on, and earlier ones, too. */
void ftrma_mail_attach(struct ftrma_mail *mail);
/* Append a message for `to`, completely or not at all. FTRMA_OK, FTRMA_MAIL_*, -EMSGSIZE, -EINVAL.
   Only one thread at a time may call this and the functions below. */
int ftrma_mail_append(struct ftrma_mail *mail, int to, uint32_t kind, const void *data,
                      uint64_t bytes);
/* Most bytes of a message. */
uint64_t ftrma_mail_limit(const struct ftrma_mail *mail);
/* Take the oldest message of the next source that has one, sources in turn: 1, or 0 if there is
   none. [out] data is valid until ftrma_mail_release. */
int ftrma_mail_take(struct ftrma_mail *mail, int *from, uint32_t *kind, const void **data,
                    uint64_t *bytes);
void ftrma_mail_release(struct ftrma_mail *mail);
/* 1 if there is a message of this source. */
int ftrma_mail_holds(const struct ftrma_mail *mail, int from);
/* Wait until this process's bell differs from `seen`, or the time is over. Messages, rings, deaths
   and alarms change the bell. */
void ftrma_mail_wait(struct ftrma_mail *mail, uint32_t seen, uint64_t timeout_us);
uint32_t ftrma_mail_bell(const struct ftrma_mail *mail);
void ftrma_mail_ring(struct ftrma_mail *mail, int to);
/* The number of processes that were started later; their own numbers follow those of the launch.
   Only one process stores this. */
void ftrma_mail_start(struct ftrma_mail *mail, uint64_t started);
uint64_t ftrma_mail_started(const struct ftrma_mail *mail);
/* Note that this process takes its mail from now on; tell whether another process has done so. */
void ftrma_mail_join(struct ftrma_mail *mail);
int ftrma_mail_joined(const struct ftrma_mail *mail, int proc);
/* Add a death to the list, once; any process may. */
void ftrma_mail_note_death(struct ftrma_mail *mail, int proc);
/* The number of deaths, the process of a death by its number from 0, and whether one is dead. */
uint64_t ftrma_mail_generation(const struct ftrma_mail *mail);
int ftrma_mail_death(const struct ftrma_mail *mail, uint64_t number);
int ftrma_mail_dead(const struct ftrma_mail *mail, int proc);
/* The words; [out] their number. */
uint64_t *ftrma_mail_words(struct ftrma_mail *mail, uint64_t *count);
/* Add to a word of which the caller is the only writer; returns the new value. */
uint64_t ftrma_word_add(uint64_t *word, uint64_t n);
/* Copy words in order, each as it is at some moment. */
void ftrma_words_read(const uint64_t *words, uint64_t count, uint64_t *copy);
/* 1: two rows of words, of which the first is read before the second, are equal; 0: they are not, or
 * count is more than FTRMA_ROW_WORDS. */
#define FTRMA_ROW_WORDS 4096
int ftrma_words_equal(const uint64_t *first, const uint64_t *second, uint64_t count);

/* ---- job/meet.c; log/event.c: ftrma_slots_barrier, ftrma_end ---------------------------------- */

/* Wait for all living processes at `phase` of repair `round`: FTRMA_OK or FTRMA_ALARM (start over).
   All processes of a node get the same answer. check_holders: a plan is published, and every holder
   in it must be alive. */
int ftrma_meet(uint64_t round, int phase, int check_holders);
/* Barrier of all slots outside of windows: FTRMA_OK or FTRMA_ALARM. */
int ftrma_slots_barrier(void);
/* Wait for all slots at the end of the program, and end it: FTRMA_OK, or FTRMA_ALARM if a failure
   came first. All slots get the same answer. */
int ftrma_end(void);
/* Wait for all slots to arrive at safepoint `ordinal`. targeted: stop when ctl->target moves on.
   FTRMA_OK, FTRMA_ALARM, or FTRMA_TIMEOUT: the checkpoint is off (the target moved, or a slot
   ended without arriving). */
int ftrma_arrive(uint64_t ordinal, int targeted);
/* Wait for all slots to have staged `version`: FTRMA_OK or FTRMA_ALARM. */
int ftrma_await_staged(uint64_t version);
/* Announce the staging of `version`, once every parity is at version - 1 and none is being
   computed: FTRMA_OK. With `wait`, wait until then, or until FTRMA_ALARM. Without it: FTRMA_TIMEOUT
   if it is not so now. */
int ftrma_admit(uint64_t version, int wait);

/* ---- job/world.c, job/board.c, job/errors.c; interpose/ends.c, interpose/partitioned.c ---------- */

/* Get rank and size of MPI_COMM_WORLD, and the number of its processes on this node. */
int ftrma_mpi_world(int *rank, int *size, int *on_node);
/* Broadcast bytes from rank 0 of the MPI world. Collective. */
int ftrma_mpi_bcast(void *buffer, int size_bytes);
/* Duplicate the world for later repairs. Collective over all processes. */
int ftrma_comm_prepare(void);
/* The handle of this duplicate, as mpi4py's fromhandle takes it. */
uint64_t ftrma_comm_parent(void);
/* Build the user's world from the holders of all slots, in repair `round` (0: at the start).
   Collective over the living. 0, FTRMA_ALARM (another failure), or an MPI code. */
int ftrma_comm_build(uint64_t round);
/* Postpone building it until a process asks for it, see ctl.connect. Local. An MPI code. */
int ftrma_comm_defer(void);
/* Forget the backing communicators, which repair `round` makes anew, after threads that wait in
   them have come back. Main thread only. */
void ftrma_comm_forget(uint64_t round);
/* Remove all boards but that of the slots' world; one process does this. 0 or -errno. */
int ftrma_boards_clear(void);
/* Take this server's part in the program's partitioned communication; 1 as long as there is any. */
int ftrma_partitioned_help(void);
/* The error code by which C tells Python to unwind (0 before ftrma_comm_prepare). */
int ftrma_unwind_code(void);
/* 1 if calls of MPI by the program and its libraries reach this library. */
int ftrma_interposed(void);
/* Name of one of the calls of MPI that this library defines, by number; NULL after the last. */
const char *ftrma_intercepted(unsigned which);
/* 1 if communicators can be revoked and shrunk; without that, a failure means a relaunch. */
int ftrma_has_ulfm(void);
int ftrma_mpi_abort(int status);
int ftrma_mpi_finalize(void);

/* ---- job/window.c; interpose/winfile.c, create.c, exchange.c, origin_lock.c, far*.c ------------- */

struct ftrma_window_info {
    int32_t ordinal;      /* number of this window in this slot's program order */
    int32_t allocated;    /* 1 from Allocate, 0 from Create */
    void *base;           /* this slot's part */
    uint64_t size_bytes;
    uint64_t gnc, gc;     /* counters of section 4.1 */
    uint64_t lock_count;  /* LC: locks held */
};
/* Protected windows in use, by index 0..; returns 0, or -1 past the last. */
int ftrma_window_at(int index, struct ftrma_window_info *info);
/* Get EC toward a target, and SC of the last lock on it; -1 past the last target. SC is in no
   log: in a replay it is as it was at the death. */
int ftrma_window_counters(int index, int target, uint64_t *ec, uint64_t *sc);
/* Note that the job runs over several nodes: the ledger of this node, and an origin, NULL for a
   process that holds no slot. Called before the first window. */
void ftrma_set_nodes(void *origin, void *ledger);
/* Open the board of the slots' world, so that slots on other nodes can write to it. 0 or -errno. */
int ftrma_world_open(void);
/* Wait until everything that this process has written to windows has arrived. An MPI code. */
int ftrma_windows_flush(void);
/* Reserve the origin of this process's slot for this thread (1), to change the roles that it knows,
   or give it back to all threads (0). */
void ftrma_originlock_hold(int mine);
/* Wait, in a repair and before the first meeting of its round, until all puts of this slot are
   acknowledged, so that its log is complete. FTRMA_OK, or FTRMA_ALARM: another round was asked
   for. */
int ftrma_far_quiet(uint64_t round);
/* Log the atomic that this slot waits for, if it was done before the target's agent began to
   refuse. FTRMA_OK or FTRMA_ALARM, as above. */
int ftrma_far_answers(uint64_t round);
/* A function that restores a part: called when the part is mapped, before the window is handed
   out. */
typedef int (*ftrma_fill_function)(int ordinal, int allocated, void *base, uint64_t size_bytes);
void ftrma_set_fill(ftrma_fill_function fill);
/* A function that warns: called with the name of a call that makes a window which cannot be
   protected. */
typedef void (*ftrma_warn_function)(const char *call);
void ftrma_set_warn(ftrma_warn_function warn);
uint64_t ftrma_exclusive_locks(void); /* exclusive locks held by this slot, over all windows */

/* ---- log/: see event.h and chunks.h; job/event_clock.c: ftrma_refuse; interpose/settle.c -------- */

/* The least budget of a slot's logs, bytes. */
uint64_t ftrma_log_least(void);
/* Make this slot's log file (create) or map the one it has. 0 or -errno; -ENOENT: its process
   died before it was made. */
int ftrma_log_open(int slot, int create, uint64_t budget_bytes);
/* A function that is told about the logs' budget: called with 0 when it is spent, and at the next
   checkpoint with the number of bytes that would have been logged since the checkpoint before. */
typedef void (*ftrma_full_function)(uint64_t needed_bytes);
void ftrma_set_full(ftrma_full_function full);
/* Set the accesses to log: FTRMA_LOG_PUTS or _ALL. */
void ftrma_log_configure(int what);
/* Stop logging for this attempt: there will be no replay. */
void ftrma_log_stop(void);
/* Begin the logs of an attempt that is entered live with this version: they are empty, and
   events count from 0. If this is never called, no events are counted and nothing is logged. */
void ftrma_log_start(uint64_t version);
/* Mark the place of `version` in both logs. Called by all slots between the same accesses, unless
   `alone`: then a framework has to ensure consistency, and no log is read from here. */
void ftrma_log_mark(uint64_t version, int alone);
/* End the prefix: all events so far come again in every attempt. */
void ftrma_log_prefix(void);
/* Begin a demand checkpoint of this slot (demand.c): its number, or 0 if it makes no sense now;
   [out] cut, of ftrma_cut_words(): the accesses that it will certainly hold. overwrite: the one in
   force is lost by this. */
uint64_t ftrma_cut_words(void);
uint64_t ftrma_demand_begin(int overwrite, uint64_t *cut);
/* End it: 1: it is complete and in force; 0: it must be taken again. */
int ftrma_demand_end(const uint64_t *cut);
void ftrma_demand_failed(int lost); /* it could not be taken; lost: and there is none in force */
/* Number of the demand checkpoint that a replay of the slot starts from; 0: from the version. */
uint64_t ftrma_demand_of(int slot, uint64_t version);
/* Get the reasons why a slot cannot be replayed from `version`: bits FTRMA_BROKEN_*; [out] *call
   is the MPI call to blame, or "". -1: there is no such mark. */
int ftrma_mark_broken(int slot, uint64_t version, const char **call);
/* Note that the checksum rank that held this slot's result log is gone. */
void ftrma_results_lost(int slot);

/* A function that handles a pending failure: called in the thread that sets it, the program's.
   0: the failure was repaired in place. */
typedef int (*ftrma_interrupt_function)(void);
void ftrma_set_interrupt(ftrma_interrupt_function interrupt);
/* A function that is called when a replayed slot goes live: before the accesses of others go on,
   and (`over`) when they do. */
typedef void (*ftrma_live_function)(int over);
void ftrma_set_live(ftrma_live_function live);
int ftrma_mode(void);
int ftrma_replay_over(void); /* 1 if the next event would be executed, not replayed */
int ftrma_in_prefix(void); /* 1 in a replay of the prefix, before the checkpoint */
/* Save the counters of this slot that are not in shared memory, to keep them with a checkpoint:
   [out] as many bytes as fit; returns how many are needed. The second function loads them. */
uint64_t ftrma_counters_save(uint8_t *image, uint64_t room);
int ftrma_counters_load(const uint8_t *image, uint64_t size);
/* Settle what a dead slot left half done in the windows: locks, an atomic or a put. Called by all
   surviving slots of its node. 0 or -errno; FTRMA_ALARM: the slot cannot be replayed. */
int ftrma_windows_settle(int slot);
/* Set whether the coming replay needs this slot's puts: only if the slot had entered the program
   when all met in the repair. 0 or -errno. */
int ftrma_replay_view(int slot, int wanted);
/* Become the replacement of a dead slot: replay from `version` on, or from the demand checkpoint
   with this number and cut. image: the counters that were saved with it. 0, or -errno; -EBADMSG: a
   log is damaged. */
int ftrma_replay_prepare(int slot, uint64_t version, const uint8_t *image, uint64_t size,
                         uint64_t demand, const uint64_t *cut, uint64_t cut_words);
/* Note that the program is at the place where the checkpoint was taken. */
int ftrma_replay_anchor(void);
/* Trace this process's events to a file. 0 or -errno. */
int ftrma_trace_open(const char *path);
void ftrma_trace_to(int fd); /* write to a stream, which is read as long as this process lives;
                                -1: to nothing */
/* Write a record that is no event; what: enum ftrma_what. */
void ftrma_trace_note(int what, uint64_t value, uint64_t other);
/* Write a framework's record with a text of up to FTRMA_TRACE_TEXT bytes, in consecutive pieces. A
   piece has its text in place of all fields from `seq` on; `at` is its number, `bytes` the length
   of the whole text. head: has all fields but these, and the times. */
#define FTRMA_TRACE_TEXT 1152
void ftrma_trace_text(struct ftrma_trace_record *head, const char *text, size_t n);
/* The flags of a kind, as C has them in its table; -1: there is no such kind. */
int ftrma_flags_of(int what);
/* Begin and end an event from Python. 0: do it, 1: it was done before, else an MPI code. */
int ftrma_event_begin(int what, uint64_t detail);
void ftrma_event_finish(void);
/* Give the replay of this slot up for this reason: all slots are to go back instead. */
void ftrma_refuse(const char *reason);
/* Note the reason for the duration of this repair, without asking for another round. */
void ftrma_keep_refusal(const char *reason);

/* ---- vault/: vault.c, checkpoint.c ----------------------------------------------------------- */

struct ftrma_vault;
/* The words of a vault that matter when its process is dead. A slot's copy is at `version`, or at
   `complete` if that is newer; a parity is at `version`, can go on to `complete`, and must go on to
   `folding` if that is newer. Python keeps them in jobs over several nodes, except `folding`. */
struct ftrma_vault_words {
    uint64_t version;
    uint64_t complete; /* version that is completely staged, or summed */
    uint64_t folding;  /* version whose folding has begun */
};
/* Map the vault file `path`; create: make a new, empty one, of this capacity. 0 or -errno. */
int ftrma_vault_open(const char *path, int create, uint64_t capacity_blocks,
                     uint32_t group_size, struct ftrma_vault **vault);
void ftrma_vault_close(struct ftrma_vault *vault);
/* Make sure that so many blocks of the copy and of the stage can be written (memory is allocated
   now). 0 or -errno. */
int ftrma_vault_reserve(struct ftrma_vault *vault, uint64_t blocks, uint64_t staging);
/* Have a separate thread allocate and map memory for so many blocks of the copy and of the stage
   while the program computes; ftrma_vault_reserve() allocates the rest. */
void ftrma_vault_ahead(struct ftrma_vault *vault, uint64_t blocks, uint64_t staging);
/* Map the used blocks of a vault that may have to be read in a hurry. */
void ftrma_vault_map(struct ftrma_vault *vault);
uint64_t ftrma_vault_used(const struct ftrma_vault *vault); /* blocks reserved */
struct ftrma_vault_words *ftrma_vault_words(struct ftrma_vault *vault);
void *ftrma_vault_block(struct ftrma_vault *vault, uint64_t block); /* in the committed copy */
/* Numbers of the staged blocks, in the order of the stage. */
const uint32_t *ftrma_vault_dirty(const struct ftrma_vault *vault, uint64_t *count);
/* Checksums of a vault's own blocks (member -1), or of a member's that a parity keeps. */
uint32_t *ftrma_vault_crc(struct ftrma_vault *vault, int member);
void *ftrma_vault_stage_block(struct ftrma_vault *vault, uint64_t index);
/* The areas of a vault's file, in their order; dirty list and checksums are uint32_t. */
enum ftrma_vault_area {
    FTRMA_VAULT_HEAD,
    FTRMA_VAULT_DIRTY,
    FTRMA_VAULT_CRC,
    FTRMA_VAULT_COPY,
    FTRMA_VAULT_STAGE
};
/* Get the beginning of an area in this process, and [out] in the file; that is equal in all
   vaults of a capacity. member: whose checksums; -1: the vault's own. NULL: there is no such
   area. */
void *ftrma_vault_area(struct ftrma_vault *vault, int area, int member, uint64_t *offset);
/* The bytes that a block of capacity takes in a vault's file, and in the address space of each
   process that maps it. */
uint64_t ftrma_vault_block_bytes(uint32_t group_size);
/* The capacity of a vault in blocks, by its header, FTRMA_BLOCK bytes from the beginning of its
   file; 0: it is no vault. */
uint64_t ftrma_vault_capacity(const void *header);
/* Copy the header of another vault of this capacity, parts of which are then brought here. 0, or
   -EINVAL for bytes that are no such header. */
int ftrma_vault_adopt(struct ftrma_vault *vault, const void *header);
/* Drop everything that is here except the header. 0 or -errno. */
int ftrma_vault_drop(struct ftrma_vault *vault);

void ftrma_stage_begin(struct ftrma_vault *vault, uint64_t version);
/* Make the copy and its checksums those of `now`, which cannot be undone; bytes that others write
   meanwhile are read only once. Returns the number of changed blocks. */
uint64_t ftrma_write(struct ftrma_vault *vault, const void *now, uint64_t size_bytes,
                     uint64_t block);
/* Returns the number of changed blocks whose old copy did not match its checksum. */
uint64_t ftrma_stage(struct ftrma_vault *vault, const void *now, uint64_t size_bytes,
                     uint64_t block);
uint64_t ftrma_stage_end(struct ftrma_vault *vault); /* number of dirty blocks */
/* Undo everything that is staged after `version`. */
void ftrma_stage_undo(struct ftrma_vault *vault, uint64_t version);

/* Parity side: sum the staged deltas of all members but those that are NULL, each times its coefficient
   g[i]; then, after commit, fold them in. 0 or -errno. */
int ftrma_parity_sum(struct ftrma_vault *parity, struct ftrma_vault *const *members,
                     const uint8_t *g, int n);
/* Sum in steps, for a member i whose stage is not at hand: [in] blocks that its copy uses,
   blocks that it staged; [out] lists for their numbers and checksums. Then add the deltas, in
   order. */
int ftrma_parity_expect(struct ftrma_vault *parity, int i, uint64_t used, uint64_t ndirty,
                        uint32_t **block, uint32_t **crc);
void ftrma_parity_add(struct ftrma_vault *parity, int i, uint8_t g, uint64_t first, uint64_t count,
                      const void *deltas);
void ftrma_parity_fold(struct ftrma_vault *parity, uint64_t version);
void ftrma_parity_drop(struct ftrma_vault *parity); /* forget a sum that was not committed */
uint64_t ftrma_parity_version(const struct ftrma_vault *parity);
/* Remove staged deltas of member i from a parity that was rebuilt from copies holding them. */
void ftrma_parity_unstage(struct ftrma_vault *parity, int i, uint8_t g, const uint32_t *blocks,
                          uint64_t count, const void *deltas);
/* Compute blocks first .. end-1 of a parity and all checksums afresh from the members' copies; with
   the last block it is at `version`. Returns -1, or the first block whose copy is corrupt at some
   member; -2 - errno if there is no memory. */
int64_t ftrma_parity_rebuild(struct ftrma_vault *parity, struct ftrma_vault *const *members,
                             const uint8_t *g, int n, uint64_t version, uint64_t first,
                             uint64_t end);
/* Compare blocks anywhere in memory with their checksums: CRC-32C, initial value and final XOR 0.
   Returns -1, or the first block that differs. */
int64_t ftrma_first_damaged(const void *data, uint64_t blocks, const uint32_t *crc);
/* Compare blocks first .. end-1 with the checksums that a parity keeps for a member (-1: for itself).
   Returns -1, or the first block that differs. */
int64_t ftrma_check(struct ftrma_vault *vault, struct ftrma_vault *parity, int member,
                    uint64_t first, uint64_t end);
/* Compute blocks first .. end-1 of a lost member (-1: of `parity` itself) as the sum of g[i] times
   source i. Returns -1, or the first block whose checksum shows that an input was corrupt;
   -2 - errno if memory is missing. */
int64_t ftrma_rebuild(struct ftrma_vault *lost, struct ftrma_vault *parity, int member,
                      struct ftrma_vault *const *sources, const uint8_t *g, int n, uint64_t first,
                      uint64_t end);
/* Copy to or clear memory of the user; only pages that differ are written. Returns bytes written. */
uint64_t ftrma_clear(void *to, uint64_t size_bytes);
uint64_t ftrma_copy_out(struct ftrma_vault *vault, uint64_t block, void *to, uint64_t size_bytes);

/* ---- kernels/: see kernels.h and gf.h -------------------------------------------------------- */

const char *ftrma_kernel_name(void);
int ftrma_kernel_select(const char *name);
void ftrma_xor_many(void *dst, const void *const *src, size_t nsrc, size_t n);
void ftrma_gf_encode(void *const *out, size_t nout, const void *const *in, size_t nin,
                     const uint8_t *coef, size_t n);
void ftrma_gf_encode_ref(void *const *out, size_t nout, const void *const *in, size_t nin,
                         const uint8_t *coef, size_t n);
void ftrma_gf_fold(void *const *out, size_t nout, const void *const *in, size_t nin,
                   const uint8_t *coef, size_t n);
void ftrma_gf_fold_ref(void *const *out, size_t nout, const void *const *in, size_t nin,
                       const uint8_t *coef, size_t n);
/* CFFI-END */

#endif
