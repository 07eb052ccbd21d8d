/* The data that the processes of a node share: the control file, a log's file, and the numbers in
 * them that have names. `ftrma/docs/words.md` says of each word of the control file who writes it,
 * who reads it, and what a late value does.
 *
 * The part between the two CFFI marks is also read by cffi; keep it free of macros with bodies.
 */
#ifndef FTRMA_SHARED_H
#define FTRMA_SHARED_H

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
    uint64_t meeting; /* the newest meeting decided, as in `met` of a process, << 1
                         | 1: all go on together; 0: all turn back */
    uint64_t line[5]; /* so that each process begins with a cache line */
    struct ftrma_proc proc[FTRMA_MAX_PROCS];
};
/* CFFI-END */

#endif
