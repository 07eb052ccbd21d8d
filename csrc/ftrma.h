/* The data plane of ftrma: everything that C and Python share.
 *
 * A job on one node shares one directory of memory files:
 *
 *   control        struct ftrma_ctl: roles, life and death, the committed version
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

/* CFFI-BEGIN */
#define FTRMA_MAX_PROCS 1024
#define FTRMA_HELD_WINDOWS 8 /* windows for which a slot tells other nodes which accesses its demand
                                checkpoint holds */
#define FTRMA_MAX_RULES 32
#define FTRMA_STUMBLES 5
#define FTRMA_LAST_PHASE 6 /* last phase of a round of repair; the phases of a launch's start belong
                              to round 0 */
#define FTRMA_REASON_BYTES 4096
#define FTRMA_NAME_BYTES 32 /* a framework's name or failpoint; with the zero */
#define FTRMA_CONTROL_MAGIC 0x4654524d41000008 /* of a control file: "FTRMA", layout 8 */
#define FTRMA_LOG_MAGIC 0x4654524d414c4f47 /* of a slot's log: "FTRMALOG" */

/* In ftrma_proc.awaits: the kind of event that waits (enum ftrma_what), and the first slot that it
   waits for; -1: no slot, or it is not known which. */
#define FTRMA_AWAITED_SLOT 0xffffffff

/* States of a process, in ftrma_proc.state. */
#define FTRMA_ABSENT 0
#define FTRMA_ALIVE 1
#define FTRMA_DEAD 2

/* A process that ends itself says so in ftrma_proc.leaving: one of these, and the status or
   signal. */
#define FTRMA_LEFT_BY_STATUS 0x100
#define FTRMA_LEFT_BY_SIGNAL 0x200
#define FTRMA_LEFT_BY_EXIT 0x800 /* by exit(3), which libraries also call */
#define FTRMA_LEFT_BY_MEMORY 0x400 /* SIGBUS: there was no memory for an address; this is a
                                      failure */
#define FTRMA_LEFT_BY_ABORT 0x1000 /* by MPI_Abort: it asks for the job's end */
#define FTRMA_LEFT_VALUE 0xff
/* The threads that are inside MPI calls, in ftrma_proc.calls; the bits above count how often any
   thread entered or left one. */
#define FTRMA_CALLS_INSIDE 0xffff

/* In ftrma_ctl.alarm: the program has ended, so deaths do not matter any more. */
#define FTRMA_ENDED 0x4000000000000000

/* Results of waits. */
#define FTRMA_OK 0
#define FTRMA_ALARM 1   /* a failure was noticed: unwind, or start the repair round over */
#define FTRMA_TIMEOUT 2 /* the deadline passed */

/* Statements of a plan about a slot: bits of ftrma_plan.slots. */
#define FTRMA_SLOT_DIED 1
#define FTRMA_SLOT_REPLAYED 2 /* it died, and is replayed by its replacement */

/* A framework's claim: bits of ftrma_ctl.claim. */
#define FTRMA_CLAIM_REENTRY 1 /* after a failure all enter the program again, and the framework
                                 recovers */
#define FTRMA_CLAIM_FORFEIT 2 /* it recovers even if more is lost than can be rebuilt, without a
                                 checkpoint */
#define FTRMA_CLAIM_TOLD 4    /* it is told of deaths, which are not repaired, except that of slot
                                 0, which is a failure as usual */
#define FTRMA_CLAIM_SEATED 8  /* no spare takes a checksum rank's seat, so that all see the same
                                 members */

/* The progress of a launch in taking over the vaults of the launch before it, in
   ftrma_ctl.takeover. */
#define FTRMA_TAKEOVER_DONE 0    /* all are taken over: a vault is lost if the process that keeps it
                                    dies */
#define FTRMA_TAKEOVER_CLEARING 1 /* vaults wait under other names while old ones are removed */
#define FTRMA_TAKEOVER_NAMING 2  /* vaults are being given their names in this launch */
#define FTRMA_TAKEOVER_OFFERED 3 /* vaults are ready, and survive the death of a process before all
                                    have taken theirs */

/* The vaults from which a launch goes on, in ftrma_ctl.resume. */
#define FTRMA_RESUME_LAUNCH 1  /* those of the launch before */
#define FTRMA_RESUME_FILES 2   /* filled from files by the supervisor */
#define FTRMA_RESUME_REFUSED 3 /* filled from files, and the program says that their contents are
                                  wrong */

/* A request of the job to its supervisor, in ftrma_ctl.request. */
#define FTRMA_NOTHING 0
#define FTRMA_RELAUNCH 1
#define FTRMA_ABORT 2

/* Kinds of roles, in ftrma_rule.role and ftrma_my_role(). */
#define FTRMA_ROLE_SPARE 0
#define FTRMA_ROLE_SLOT 1
#define FTRMA_ROLE_CHECKSUM 2

/* Victims of a kill rule: the process, the agent of its node instead, or the whole node. */
#define FTRMA_VICTIM_PROCESS 0
#define FTRMA_VICTIM_AGENT 1
#define FTRMA_VICTIM_NODE 2

/* The mode of a slot's events, see ftrma_mode(). */
#define FTRMA_LIVE 0
#define FTRMA_REPLAY 1   /* up to the horizon */
#define FTRMA_PROLOGUE 2 /* between entering the program and the checkpoint's place in it */

/* The accesses that are logged. */
#define FTRMA_LOG_NONE 0
#define FTRMA_LOG_PUTS 1
#define FTRMA_LOG_ALL 2

/* The reasons why a slot cannot be replayed from a mark: bits of ftrma_mark.broken. */
#define FTRMA_BROKEN_FOREIGN 1   /* a call that no replay can repeat */
#define FTRMA_BROKEN_FULL 2      /* the logs ran over their budget */
#define FTRMA_BROKEN_RECOVERED 4 /* its put log died with its former process */
#define FTRMA_BROKEN_CHECKSUM 8  /* its result log died with the checksum rank that held it */
#define FTRMA_BROKEN_GETS 16     /* gets are not logged */
#define FTRMA_BROKEN_DEMAND 32   /* records that it needs were freed because of its own demand
                                    checkpoint */
#define FTRMA_BROKEN_SETUP 64    /* with FOREIGN: the call was made before the last protect(), so
                                    all marks have it */
#define FTRMA_BROKEN_HELD 128    /* it has an object that no log covers, made by `call` */

/* Failpoints: the places in the program where a --kill rule can strike. A replay does not visit
   those up to STAGED, since the dead process has visited them. */
enum ftrma_failpoint {
    FTRMA_FAILPOINT_START,
    FTRMA_FAILPOINT_END,
    FTRMA_FAILPOINT_PUT,
    FTRMA_FAILPOINT_PUT_LANDED, /* its bytes are in place, but its event has not ended */
    FTRMA_FAILPOINT_GET,
    FTRMA_FAILPOINT_ATOMIC,
    FTRMA_FAILPOINT_FLUSH,
    FTRMA_FAILPOINT_FENCE,
    FTRMA_FAILPOINT_LOCK_HELD,
    FTRMA_FAILPOINT_CALL,
    FTRMA_FAILPOINT_SAFEPOINT,
    FTRMA_FAILPOINT_CHECKPOINT,
    FTRMA_FAILPOINT_STAGE,
    FTRMA_FAILPOINT_STAGED,
    FTRMA_FAILPOINT_SUM,
    FTRMA_FAILPOINT_COMMIT,
    FTRMA_FAILPOINT_FOLD,
    FTRMA_FAILPOINT_FOLDED,
    FTRMA_FAILPOINT_REPAIR,
    FTRMA_FAILPOINT_RESTORE,
    FTRMA_FAILPOINT_RESET,
    FTRMA_FAILPOINT_REENTRY,
    FTRMA_FAILPOINT_TIME,
    FTRMA_FAILPOINT_REPLAY,
    FTRMA_FAILPOINT_LIVE,
    FTRMA_FAILPOINT_DEMAND,
    FTRMA_FAILPOINT_NAMED, /* a framework's own, by its name */
    FTRMA_FAILPOINTS
};

/* Kinds of events, and of a trace's records. Their order matters only to existing traces: a new
   kind goes to the end. Everything else about a kind is in its flags, below. */
enum ftrma_what {
    FTRMA_WHAT_PUT,
    FTRMA_WHAT_GET,
    FTRMA_WHAT_ACCUMULATE,
    FTRMA_WHAT_GET_ACCUMULATE,
    FTRMA_WHAT_FETCH_AND_OP,
    FTRMA_WHAT_COMPARE_AND_SWAP,
    FTRMA_WHAT_FENCE,
    FTRMA_WHAT_LOCK,
    FTRMA_WHAT_UNLOCK,
    FTRMA_WHAT_LOCK_ALL,
    FTRMA_WHAT_UNLOCK_ALL,
    FTRMA_WHAT_FLUSH,
    FTRMA_WHAT_FLUSH_ALL,
    FTRMA_WHAT_SYNC,
    FTRMA_WHAT_POST,
    FTRMA_WHAT_START,
    FTRMA_WHAT_COMPLETE,
    FTRMA_WHAT_WAIT,
    FTRMA_WHAT_PROBE,
    FTRMA_WHAT_COLLECTIVE,
    FTRMA_WHAT_WINDOW,
    FTRMA_WHAT_FREE,
    FTRMA_WHAT_SAFEPOINT,
    FTRMA_WHAT_CHECKPOINT,
    FTRMA_WHAT_COMMIT,
    FTRMA_WHAT_APPLY,
    FTRMA_WHAT_RECOVERY,
    FTRMA_WHAT_ROLLBACK,
    FTRMA_WHAT_END,
    FTRMA_WHAT_DEMAND,
    FTRMA_WHAT_REPLAY,
    FTRMA_WHAT_ACK,     /* a put to another node is acknowledged */
    FTRMA_WHAT_MADE,    /* a window was made */
    FTRMA_WHAT_PEER,    /* a Post or Start names a slot */
    FTRMA_WHAT_REQUEST, /* an access has a request */
    FTRMA_WHAT_MESSAGE, /* calls that the trace does not follow */
    FTRMA_WHAT_SPAN,    /* a framework begins something */
    FTRMA_WHAT_SPANNED, /* it ends this */
    FTRMA_WHAT_MARK,    /* it marks a moment */
    FTRMA_WHATS
};

/* Flags of a kind. Python also uses them to judge traces, races and replays. */
#define FTRMA_EVENT 1     /* the program does it, and it has a number; other kinds are done on its
                             behalf */
#define FTRMA_ACCESS 2    /* an access to a part */
#define FTRMA_TICKS 4     /* advances the clock: it may order the accesses of others */
#define FTRMA_WRITES 8    /* changes the part */
#define FTRMA_COMBINES 16 /* accumulates: its new value depends on the old one */
#define FTRMA_FETCHES 32  /* accumulates, and returns the old value */
#define FTRMA_PASSIVE 64  /* synchronizes without the target */

/* Flags that go together. */
enum ftrma_flag_groups {
    FTRMA_SYNCHRONIZES = FTRMA_EVENT | FTRMA_TICKS,
    FTRMA_ACCUMULATES = FTRMA_SYNCHRONIZES | FTRMA_ACCESS | FTRMA_WRITES | FTRMA_COMBINES
};

/* The flags of each kind. csrc/log/event_kinds.h makes a table of them. */
enum ftrma_flags {
    FTRMA_FLAGS_PUT = FTRMA_EVENT | FTRMA_ACCESS | FTRMA_WRITES,
    FTRMA_FLAGS_GET = FTRMA_EVENT | FTRMA_ACCESS,
    FTRMA_FLAGS_ACCUMULATE = FTRMA_ACCUMULATES,
    FTRMA_FLAGS_GET_ACCUMULATE = FTRMA_ACCUMULATES | FTRMA_FETCHES,
    FTRMA_FLAGS_FETCH_AND_OP = FTRMA_ACCUMULATES | FTRMA_FETCHES,
    FTRMA_FLAGS_COMPARE_AND_SWAP = FTRMA_ACCUMULATES | FTRMA_FETCHES,
    FTRMA_FLAGS_FENCE = FTRMA_SYNCHRONIZES,
    FTRMA_FLAGS_LOCK = FTRMA_SYNCHRONIZES | FTRMA_PASSIVE,
    FTRMA_FLAGS_UNLOCK = FTRMA_SYNCHRONIZES | FTRMA_PASSIVE,
    FTRMA_FLAGS_LOCK_ALL = FTRMA_SYNCHRONIZES | FTRMA_PASSIVE,
    FTRMA_FLAGS_UNLOCK_ALL = FTRMA_SYNCHRONIZES | FTRMA_PASSIVE,
    FTRMA_FLAGS_FLUSH = FTRMA_SYNCHRONIZES | FTRMA_PASSIVE,
    FTRMA_FLAGS_FLUSH_ALL = FTRMA_SYNCHRONIZES | FTRMA_PASSIVE,
    FTRMA_FLAGS_SYNC = FTRMA_SYNCHRONIZES | FTRMA_PASSIVE,
    FTRMA_FLAGS_POST = FTRMA_SYNCHRONIZES,
    FTRMA_FLAGS_START = FTRMA_SYNCHRONIZES,
    FTRMA_FLAGS_COMPLETE = FTRMA_SYNCHRONIZES,
    FTRMA_FLAGS_WAIT = FTRMA_SYNCHRONIZES,
    FTRMA_FLAGS_PROBE = FTRMA_SYNCHRONIZES,
    FTRMA_FLAGS_COLLECTIVE = FTRMA_SYNCHRONIZES,
    FTRMA_FLAGS_WINDOW = FTRMA_SYNCHRONIZES,
    FTRMA_FLAGS_FREE = FTRMA_SYNCHRONIZES,
    FTRMA_FLAGS_SAFEPOINT = FTRMA_SYNCHRONIZES,
    FTRMA_FLAGS_CHECKPOINT = 0,
    FTRMA_FLAGS_COMMIT = 0,
    FTRMA_FLAGS_APPLY = 0,
    FTRMA_FLAGS_RECOVERY = 0,
    FTRMA_FLAGS_ROLLBACK = 0,
    FTRMA_FLAGS_END = FTRMA_TICKS,
    FTRMA_FLAGS_DEMAND = 0,
    FTRMA_FLAGS_REPLAY = 0,
    FTRMA_FLAGS_ACK = 0,
    FTRMA_FLAGS_MADE = 0,
    FTRMA_FLAGS_PEER = 0,
    FTRMA_FLAGS_REQUEST = 0,
    FTRMA_FLAGS_MESSAGE = 0,
    FTRMA_FLAGS_SPAN = 0,
    FTRMA_FLAGS_SPANNED = 0,
    FTRMA_FLAGS_MARK = 0
};

/* The action of a plan after a failure, in ftrma_plan.kind; see ftrma/protocol/plan.py. */
enum ftrma_plan_kind {
    FTRMA_PLAN_NONE,         /* there is no plan yet */
    FTRMA_PLAN_CAUSAL,       /* lost slots are replayed, the others go on */
    FTRMA_PLAN_ROLLBACK,     /* all go back, in place */
    FTRMA_PLAN_REENTRY,      /* all enter the program again, in place, and a framework recovers */
    FTRMA_PLAN_RELAUNCH,     /* the supervisor launches the job again */
    FTRMA_PLAN_CATASTROPHIC, /* more is lost than can be rebuilt; this and all below end the job */
    FTRMA_PLAN_REFUSED,      /* the policy refuses the recovery that is possible */
    FTRMA_PLAN_REPEATED,     /* a slot is killed again and again */
    FTRMA_PLAN_FULL          /* no memory is left */
};

/* A record of a trace, see ftrma/trace/records.py. */
struct ftrma_trace_record {
    uint64_t begin_ns, end_ns; /* ftrma_now_ns */
    uint32_t what, mode;       /* enum ftrma_what; FTRMA_LIVE, _REPLAY, _PROLOGUE */
    int32_t slot, proc;
    uint64_t entry;            /* number of the attempt */
    uint64_t event;            /* own number */
    int32_t window, target;    /* ftrma_trace_window of its name, slot; -1: none */
    uint64_t at, bytes;        /* stretch of the target's part */
    uint64_t seq, clock;       /* at the target; in a checkpoint's record those of the own part */
    uint64_t ec, gc, sc, gnc;
    uint64_t value[2];         /* atomics up to 8 bytes: old, new; Apply: source slot, its event;
                                  Checkpoint, Commit, Rollback: version; Replay: and horizon;
                                  Checkpoint: and 1 if the slot waited for no other;
                                  of others see ftrma/trace/records.py */
    uint64_t spare;
};

/* A word to wait for. Ringing costs a system call only if somebody sleeps. */
struct ftrma_bell {
    uint32_t word;     /* futex: changes with every ring */
    uint32_t sleepers;
};

/* One --kill rule.  The count lives here, so that it goes on over repairs and relaunches. */
struct ftrma_rule {
    int32_t role;      /* FTRMA_ROLE_* of the process at the moment of the strike */
    int32_t index;     /* number of the slot, checksum rank or spare */
    int32_t failpoint; /* enum ftrma_failpoint */
    int32_t fired;     /* 1 once it has struck; it never strikes again */
    int32_t victim;    /* FTRMA_VICTIM_*: who dies when the process comes there */
    char name[FTRMA_NAME_BYTES]; /* the failpoint's name, if that is NAMED */
    uint64_t at;       /* strikes at this visit (1 is the first); milliseconds for time */
    uint64_t visits;   /* visits so far */
};

struct ftrma_proc {
    int32_t pid;
    int32_t state;          /* FTRMA_ABSENT, _ALIVE, _DEAD */
    uint64_t death_round;   /* the repair round that must handle the death; 0 while it is alive */
    uint64_t calls;         /* calls of MPI that may block, see FTRMA_CALLS_INSIDE */
    uint64_t met;           /* repair rendezvous reached: round << 8 | phase */
    uint64_t ordinal;       /* safepoints passed in this attempt */
    uint64_t step;          /* safepoints passed since the program's start, without those that were
                               undone: an attempt goes on from its checkpoint's number */
    uint64_t verdict;       /* slot: ordinal of the safepoint where its program judged its state, << 1,
                               | 1: the state is right */
    uint64_t arrived;       /* slot: ordinal of the safepoint where it waits to checkpoint */
    uint64_t staging;       /* slot: version it is staging or has staged; 0: it waits */
    uint64_t staged;        /* slot: version completely staged */
    uint64_t summed;        /* checksum: version whose deltas are summed */
    uint64_t folded;        /* checksum: version the parity is at */
    uint64_t spilled;       /* slot: newest version whose files it has written */
    uint64_t ready;         /* 1: its vault holds all that its role must hold */
    uint64_t finished;      /* slot: number of the attempt in which the program has ended */
    uint64_t blocks;        /* blocks of its vault that are in use */
    uint64_t bytes;         /* last checkpoint: bytes protected */
    uint64_t dirty_bytes;   /* last checkpoint: bytes that had changed */
    uint64_t block_ns;      /* last checkpoint: time for which the program was held up */
    uint64_t protect_hash;  /* hash of the names declared so far, to compare their order over
                               slots */
    uint64_t reported;      /* 1 once its death is in the job's story */
    int32_t spare;          /* number among the spares of the start, if it was one */
    int32_t leaving;        /* FTRMA_LEFT_BY_* | value once it ends itself; 0 before */
    int32_t waiting;        /* 1 while it sleeps, waiting for others */
    int32_t making;         /* communicators that the library is making of it and others */
    uint64_t syncs;         /* synchronizations in this attempt, if events are not counted */
    uint64_t busy_ns;       /* time when it was last seen to compute, or in MPI, while a repair
                               waits for it */
    uint64_t rebuilding;    /* 1: it reads the copies of its group's members while slots go on, for
                               the checksum rank whose seat it has taken */
    int32_t node;           /* the node on which it runs */
    int32_t pad;
    uint64_t awaits;        /* while it waits: for what and for whom, see FTRMA_AWAITED_SLOT;
                               otherwise of its last wait */
    uint64_t call;          /* address, in its memory, of the name of the library's call that it has
                               entered last; 0: none yet */
    uint64_t waited_ns;     /* time for which it has waited for others, as its waits have
                               measured */
    uint64_t busy_until_ns; /* ftrma_now_ns: until then its program computes without a call, as it
                               has said itself */
    uint64_t mails;         /* messages that it has taken from a framework's mail */
};

/* The seating: which process holds which role. There are two tables in the control file: a new
   one is written beside the one in force and published by one store, so that a death in the
   middle leaves the old one whole. */
struct ftrma_roles {
    int32_t slot_proc[FTRMA_MAX_PROCS];      /* slot -> proc */
    int32_t checksum_proc[FTRMA_MAX_PROCS];  /* checksum -> proc; c serves group c / strength */
    int32_t slot_group[FTRMA_MAX_PROCS];     /* slot -> group */
};

/* A plan: the action after a failure, which all processes and the supervisor read. */
struct ftrma_plan {
    uint64_t round;                      /* the repair round that made it; 0: none did */
    uint64_t version;                    /* version that was committed when it was made; 0: the
                                            start */
    uint32_t kind;                       /* enum ftrma_plan_kind */
    uint32_t reason_bytes;               /* of `reason` */
    uint64_t calm;                       /* 1: nobody had died */
    uint8_t slots[FTRMA_MAX_PROCS];      /* slot -> FTRMA_SLOT_DIED, _REPLAYED */
    char reason[FTRMA_REASON_BYTES];     /* in words, UTF-8 without an end mark */
};

/* A position in a log: after the first `at` bytes of a chunk. */
struct ftrma_spot {
    uint32_t chunk; /* its number + 1; 0: nothing is written yet */
    uint32_t at;
};

/* A mark: a slot's logs and counters at the moment when a version was taken, or when the program
   was entered. */
struct ftrma_mark {
    uint64_t version;
    uint64_t events, clock, hash; /* see event.h */
    uint64_t first_hash;          /* the hash after the first event after the mark */
    struct ftrma_spot spot[2];    /* put log, result log */
    uint32_t start;               /* 1: the beginning of this attempt */
    uint32_t broken;              /* FTRMA_BROKEN_*: why the slot cannot be replayed from here; 0:
                                     it can */
    char call[48];                /* the MPI call that broke it */
};

/* A slot's progress, as the others see it; on its own cache lines. */
struct ftrma_slot {
    uint64_t clock;       /* synchronization events begun */
    uint64_t arrived;     /* barriers of all slots arrived at */
    uint64_t replaying;   /* 1: being replayed; others' accesses to its parts wait */
    uint64_t entered;     /* the attempt that it has begun, and whose events it counts */
    uint64_t line1[4];
    uint64_t events;      /* the horizon: events complete */
    uint64_t hash[2];     /* hash over all events up to the horizon; [events & 1] is in force */
    uint64_t atomic_done; /* event whose accumulate or atomic has taken effect */
    uint64_t peak_bytes;  /* most that its logs have used; the budget is the size of the file */
    uint64_t put;         /* the newest put whose bytes may be in place: FTRMA_PUT_*
                             (log/putnote.h) */
    uint64_t put_record;  /* place of its record in the log's file; 0: the record may not be
                             whole */
    uint64_t put_clock;   /* the target's clock, as the put read it */
    struct ftrma_mark marks[2];  /* [version & 1] */
    struct ftrma_spot prefix;    /* result log: end of the prefix, which every attempt goes
                                    through first */
    uint64_t prefix_events;
    uint32_t prefix_broken, pad;
    char prefix_call[48];
    uint64_t prefix_hash;
    uint64_t demand;             /* number of its demand checkpoint in force; 0: none */
    uint64_t demands;            /* number of the newest one begun in this attempt */
    uint64_t asked;              /* 1: some slot's logs run short, and a checkpoint of this slot
                                    would free room in them */
    struct ftrma_mark demand_marks[2]; /* [number & 1] */
    uint64_t held[FTRMA_HELD_WINDOWS]; /* accesses to its parts that are in that checkpoint, see
                                          log/demand.c */
    uint64_t line3[3];
};

/* The beginning of a slot's log file; its chunks, of chunk_bytes each, are the end of it (log/chunks.h). */
struct ftrma_chunk {
    uint32_t next; /* next chunk of its log: number + 1, 0 at the end */
    uint32_t fill; /* bytes of whole records */
};

struct ftrma_log {
    uint64_t magic;
    uint64_t file_bytes;
    uint32_t chunk_bytes, nchunks;
    uint32_t free, used; /* first free chunk + 1; chunks in use */
    uint32_t head[2];    /* first chunk of each log + 1 */
    struct ftrma_chunk chunk[];
};

struct ftrma_ctl {
    struct ftrma_slot slots[FTRMA_MAX_PROCS]; /* first, so that they begin with a cache line */
    uint64_t magic;
    uint32_t nprocs, nslots, ngroups, group_size;
    uint32_t nchecksums;        /* of all groups */
    uint32_t strength;          /* m: checksum ranks of a group */
    uint64_t capacity_blocks;   /* of new vaults on this node */
    uint64_t replays;           /* slots being replayed */
    uint64_t causal;            /* 1: the newest plan is a causal recovery */
    uint64_t alarm;             /* number of the newest repair round asked for, or FTRMA_ENDED */
    uint64_t repaired;          /* newest round completed */
    uint64_t meeting;           /* the newest meeting decided, as in `met` of a process, << 1
                                   | 1: all go on together; 0: all turn back */
    uint64_t plan_round;        /* newest round with a published plan: stored by its leader after
                                   roles, plan and request */
    uint64_t roles_seq;         /* roles[roles_seq & 1] is in force */
    uint64_t commit;            /* committed version << 1 | frozen (a repair is under way) */
    uint64_t target;            /* ordinal of the safepoint where the next checkpoint is due */
    uint64_t attempt;           /* number of the current attempt, from 1 on */
    uint64_t stumbles;          /* rounds of a repair in which the library failed though nobody
                                   else died */
    uint64_t kill_ns;           /* ftrma_now_ns, when the newest --kill rule struck */
    uint64_t death_ns;          /* ftrma_now_ns, when the newest death was noticed or, if it was
                                   a rule's, happened */
    uint64_t start_ns;          /* ftrma_now_ns, when the program was first entered */
    uint64_t repaired_ns;       /* ftrma_now_ns, when a process of this node last left a repair */
    struct ftrma_bell bell;     /* rung whenever servers should look again */
    uint64_t request;           /* FTRMA_NOTHING, _RELAUNCH, _ABORT; stored after the reason,
                                   which stands in `plans` or `asked`, if there is one */
    int32_t exit_status;        /* of the program, once it has ended */
    int32_t error_owner;        /* proc + 1 of the one whose error is reported */
    int32_t supervisor, launcher; /* pids of the processes without which the job ends; 0: there
                                     is none; -1: perhaps one on another node */
    uint32_t partitioned;       /* 1: the program has partitioned communication (partitioned.c) */
    uint32_t resume;            /* this launch goes on from vaults: FTRMA_RESUME_*; 0: from none */
    struct ftrma_bell barrier;  /* of all slots, see ftrma_slots_barrier */
    uint32_t nrules;
    uint32_t takeover;          /* FTRMA_TAKEOVER_*: progress in taking over the vaults */
    struct ftrma_rule rules[FTRMA_MAX_RULES];
    struct ftrma_roles roles[2];
    /* The leader of a repair writes the plan not in force, then stores plan_seq: if it is killed
       in between, the old plan stays whole. Readers read plan_seq before and after. */
    struct ftrma_plan plans[2];
    uint64_t plan_seq;          /* plans[plan_seq & 1] is in force */
    /* A relaunch that is asked for outside of a repair: written by the process that has put itself
       into `asker`, by compare-and-swap, from 0 or from one that is dead; valid once `request` is
       FTRMA_RELAUNCH and no plan in force is one. */
    struct ftrma_plan asked;
    uint64_t asker;             /* proc + 1; 0: nobody has asked */
    uint64_t wanted;            /* 1: a coordinated checkpoint is needed as soon as possible */
    uint64_t spill;             /* newest version that is, or is to be, written to files; stored by
                                   slot 0 before it has staged the version, and taken back if it
                                   cannot be written */
    uint64_t spilled;           /* newest version whose files are all written, including the
                                   manifest; stored by slot 0 */
    uint64_t halt;              /* 1: the job is to end after its next checkpoint, in files if there
                                   are any; stored for the supervisor */
    uint64_t halting;           /* ordinal of the safepoint after which all slots wait for that end;
                                   stored by slot 0 before it stores `target`; 0: none */
    uint64_t taken;             /* ordinal of the newest safepoint whose checkpoint all slots
                                   have passed */
    uint64_t log_bytes;         /* budget of each slot's logs */
    uint64_t told_full;         /* steps in which the user was told that the logs' budget is too
                                   small */
    uint64_t told_demand;       /* 1: the user was told that demand checkpoints take much time */
    struct ftrma_bell live;     /* rung when a replayed slot goes live */
    char refusal[512];          /* why the slot that is being replayed cannot be replayed */
    int32_t lost[FTRMA_MAX_PROCS]; /* resume: 1 where the vault of a role did not survive; stored
                                   before one that did is given up, while vaults are offered */
    uint64_t nodes;             /* nodes of the job, 1 or more */
    uint64_t connect;           /* 1: the next round of repair makes the backing communicators;
                                   stored by the process that needs them, cleared by the leader
                                   of that round */
    uint64_t dynamic;           /* 1: over several nodes the program has a window of the
                                   library's own; stored by the process that makes one */
    uint64_t claim;             /* FTRMA_CLAIM_*; all slots store the same value, and it stays */
    char claimant[FTRMA_NAME_BYTES]; /* name of the framework that recovers; stored before
                                        `claim` */
    uint64_t scanned[FTRMA_MAX_PROCS]; /* [node] the newest alarm with which the node's agent has
                                         sent all of its words; stored by the agent.
                                         FTRMA_MIRROR_LOST: the node is lost, with its memory and
                                         its agent; stored by processes of all other nodes */
    struct ftrma_proc proc[FTRMA_MAX_PROCS];
};

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
