/* The wire between nodes: everything that C and Python share of it.
 *
 * An *origin* sends requests on the parts of other nodes; the *agent* of a node, one process, does
 * them and replies.  Origin, target and agent may die at any moment: the agent's *ledger*, a file in
 * shared memory, says what has taken effect, so that a request sent again is done once.
 *
 * This is a library of its own, without MPI.  Functions return 0, a negative errno value, or one of
 * the results below.  Nothing here is safe against two threads at once but ftrma_origin_ring().
 */
#ifndef FTRMA_WIRE_H
#define FTRMA_WIRE_H

#include <stddef.h>
#include <stdint.h>

/* CFFI-BEGIN */
#define FTRMA_WIRE_FORMAT 4      /* of the messages; a connection between two of them is refused */
#define FTRMA_WIRE_PAYLOAD_BYTES 262144 /* at most, behind a head; longer accesses are cut up */
#define FTRMA_WIRE_ATOMIC_BYTES 1024 /* bytes that one accumulate changes; longer ones are cut up */
#define FTRMA_WIRE_RUNS 4096     /* runs of one PUTV or GETV */
#define FTRMA_WIRE_SENT_RUNS 256 /* of one that an origin sends */
#define FTRMA_WIRE_NAME_BYTES 128 /* of a part's file, beside the ledger, with the zero */
#define FTRMA_WIRE_NODES 1024    /* of a mirror: no job has more processes */
#define FTRMA_WIRE_PLAIN 0xffffffffffffffff /* ftrma_wire_part.words: it has none, see there */

/* Results of an origin's calls, beside FTRMA_OK (0), FTRMA_ALARM (1) and FTRMA_TIMEOUT (2). */
#define FTRMA_WIRE_STALE 3   /* the agent has newer roles than this process */
#define FTRMA_WIRE_REFUSED 4 /* the agent, or who listens there, has refused it: see the reason */

/* What ftrma_agent_serve() returns for. */
#define FTRMA_WIRE_TRAFFIC 1
#define FTRMA_WIRE_RUNG 2
#define FTRMA_WIRE_WATCHED 4 /* something at the watched descriptor */

enum ftrma_wire_kind {
    /* Requests with a number: done once, in the order of their numbers. */
    FTRMA_WIRE_PUT = 1, /* offset; payload: the bytes */
    FTRMA_WIRE_PUTV, /* operand: runs; payload: struct ftrma_wire_run of each, then all bytes */
    FTRMA_WIRE_ACC, /* offset, op, type; payload: elements, of which each is changed */
    FTRMA_WIRE_FOP, /* the same of one element */
    FTRMA_WIRE_CAS, /* offset, type; operand: what is compared; payload: the new element */
    FTRMA_WIRE_LOCK, /* operand: enum ftrma_wire_lock */
    FTRMA_WIRE_UNLOCK, /* the same */
    FTRMA_WIRE_SET, /* offset: a word in the head of the part's file; it becomes the maximum of it
                           and operand */
    /* Requests without one: harmless when repeated. Their number is a token, which the reply has. */
    FTRMA_WIRE_GET, /* offset; operand: bytes */
    FTRMA_WIRE_GETV, /* payload: struct ftrma_wire_run of each run */
    FTRMA_WIRE_FLUSH, /* all puts of this connection to the target */
    FTRMA_WIRE_NUMBER, /* the last number that has taken effect */
    FTRMA_WIRE_HOLD, /* requests to the target are refused from now on */
    FTRMA_WIRE_RELEASE, /* and no longer; as a reply: what was refused can be sent again */
    FTRMA_WIRE_ROLES, /* roles_number; operand: 1 forgets numbers, answers and locks (a rollback) */
    FTRMA_WIRE_RESEND, /* what was refused to this target follows; number: how often it has been
                          sent; has no reply */
    /* Replies. */
    FTRMA_WIRE_DONE, /* of LOCK, whose SC is the operand, UNLOCK, HOLD, RELEASE, ROLES; of NUMBER in
                           operand */
    FTRMA_WIRE_DATA, /* of GET, GETV; payload: the bytes */
    FTRMA_WIRE_ACK, /* of FLUSH, or unasked; payload: struct ftrma_wire_ack of records */
    FTRMA_WIRE_ANSWER, /* of ACC, FOP, CAS; payload: struct ftrma_wire_answer from its clock on */
    FTRMA_WIRE_REJECTED, /* the request was refused; operand: why, an enum ftrma_wire_why; number: of
                           the last RESEND before it */
    FTRMA_WIRE_OLD_ROLES, /* the request's roles_number is over; roles_number: that of now */
    FTRMA_WIRE_BROKEN, /* the message cannot be obeyed by anybody; payload: why, in words */
    /* Among agents, see mirror.h. */
    FTRMA_WIRE_MIRROR, /* payload: struct ftrma_wire_word of each, or none of a spoke that wants to
                            hear that it was taken; number: a spoke's, or 0 */
    FTRMA_WIRE_MIRRORED, /* the hub has taken all up to this number; first on a connection: the
                            spoke asks for that, and for all words */
    FTRMA_WIRE_KINDS
};

enum ftrma_wire_why {
    FTRMA_WIRE_HELD = 1, /* the target is on HOLD: RELEASE follows */
    FTRMA_WIRE_EARLY, /* the request's roles_number has not come to the agent: RELEASE follows */
    FTRMA_WIRE_GAP, /* numbers are missing before it; offset: the last one that is done */
    FTRMA_WIRE_MOVED /* the part is not here, or of another generation */
};

enum ftrma_wire_lock {
    FTRMA_WIRE_EXCLUSIVE,
    FTRMA_WIRE_SHARED,
    FTRMA_WIRE_CHANGE, /* to be alone with changes of the part: those that no ACC, FOP or CAS can do */
    FTRMA_WIRE_LOCKS
};

enum ftrma_wire_op {
    FTRMA_WIRE_SUM = 1,
    FTRMA_WIRE_PROD,
    FTRMA_WIRE_MIN,
    FTRMA_WIRE_MAX,
    FTRMA_WIRE_BAND,
    FTRMA_WIRE_BOR,
    FTRMA_WIRE_BXOR,
    FTRMA_WIRE_REPLACE,
    FTRMA_WIRE_NO_OP,
    FTRMA_WIRE_OPS
};

enum ftrma_wire_type {
    FTRMA_WIRE_I32 = 1,
    FTRMA_WIRE_U32,
    FTRMA_WIRE_F32,
    FTRMA_WIRE_I64,
    FTRMA_WIRE_U64,
    FTRMA_WIRE_F64,
    FTRMA_WIRE_TYPES
};

/* Places at which a test can have the agent kill itself. */
enum ftrma_wire_failpoint {
    FTRMA_WIRE_AT_HALF = 1, /* a put is copied by half */
    FTRMA_WIRE_AT_PUT, /* it is copied, its number not stored */
    FTRMA_WIRE_AT_UNDO, /* an atomic can be taken back */
    FTRMA_WIRE_AT_APPLY, /* it is applied, by half where it has several elements */
    FTRMA_WIRE_AT_ANSWER, /* its answer is stored */
    FTRMA_WIRE_AT_NUMBER, /* its number is stored, no reply sent */
    FTRMA_WIRE_AT_GRANT, /* a lock is granted or given back, its number not stored */
    FTRMA_WIRE_AT_LOCKED, /* that is stored, no reply sent */
    FTRMA_WIRE_AT_ROLES, /* new roles are in force, and not all is forgotten */
    FTRMA_WIRE_AT_SCAN, /* changes of words are noted, not sent */
    FTRMA_WIRE_AT_MIRROR, /* words that have come are in the journal, one is about to be stored */
    FTRMA_WIRE_AT_SHADOW, /* it is stored, its shadow not */
    FTRMA_WIRE_AT_FORWARD, /* all of them are, nobody is told */
    FTRMA_WIRE_FAILPOINTS
};

/* The head of every message; numbers are little-endian. */
struct ftrma_wire_head {
    uint16_t kind;
    uint8_t format; /* FTRMA_WIRE_FORMAT */
    uint8_t operation; /* op << 4 | type of an atomic; else 0 */
    uint32_t length; /* bytes behind the head */
    uint64_t number;
    uint32_t roles_number; /* of the sender's roles */
    uint32_t window;
    uint32_t target; /* a slot */
    uint32_t generation; /* of the target's parts */
    uint64_t offset;
    uint64_t operand;
};

struct ftrma_wire_run {
    uint64_t offset, bytes;
};

/* Records number, number + 1, ... number + count - 1: each has this clock, and seq, seq + 1, ... */
struct ftrma_wire_ack {
    uint64_t number, count, clock, seq;
};

/* What an atomic tells: the elements before it, then those after it. */
struct ftrma_wire_answer {
    uint64_t number;
    uint64_t clock, seq; /* of the change, as of a put's record */
    uint64_t bytes;      /* of the elements */
    unsigned char data[2048]; /* 2 * FTRMA_WIRE_ATOMIC_BYTES */
};

/* The words of a part that all of its node share with the agent, somewhere in its file's head. */
struct ftrma_wire_words {
    int32_t slot;
    int32_t owner; /* inside a change: 0 nobody, member + 1 a process of the node, -1 the agent, -2 - o
                      origin o of another node */
    uint64_t seq;  /* accesses so far that change the part */
    uint64_t lock; /* SC << 32 | FTRMA_LOCK_* | shared holders of the node << 16 | member + 1 of the
                      exclusive one */
};

/* Where a part is. */
struct ftrma_wire_part {
    uint32_t window, target, generation;
    int32_t pid;   /* 0: it lies in the file, else in the memory of this process */
    uint64_t at, bytes;   /* from this offset, or address, on */
    uint64_t words;  /* offset of its struct ftrma_wire_words in the file; FTRMA_WIRE_PLAIN: it has none,
                        and is put to, got from and has its words SET, but nothing else */
    uint64_t head;   /* bytes at the file's beginning whose words can be SET; two bells come first, but
                        where there are none (0) */
    char file[FTRMA_WIRE_NAME_BYTES]; /* beside the ledger */
};

/* One word of a mirrored file: its number in the order of the regions, and what it is now. */
struct ftrma_wire_word {
    uint64_t word, value;
};

/* What of a file is mirrored, and how. */
enum ftrma_mirror_kind {
    FTRMA_MIRROR_WORDS,
    FTRMA_MIRROR_HOT,   /* while the alarm is pending: as long as ALARM is not CALM */
    FTRMA_MIRROR_ALARM, /* one word, which becomes the maximum of all */
    FTRMA_MIRROR_CALM,  /* one word */
    FTRMA_MIRROR_ECHO,  /* one word for each node, in their order: the alarm with which its agent has sent
                           all words; written by that agent */
    FTRMA_MIRROR_BELL,  /* a struct ftrma_bell: not mirrored, but rung when something has come */
    FTRMA_MIRROR_KINDS
};

/* Whole words of a file. */
struct ftrma_mirror_region {
    uint64_t offset, bytes;
    uint64_t kind; /* enum ftrma_mirror_kind */
};

/* What a ledger keeps for a target, beside its parts. */
struct ftrma_ledger_target {
    uint64_t clock; /* its events; written by the target, unless ftrma_ledger_clocks() says otherwise */
    uint64_t hold;  /* requests to it are refused; written by the agent */
};

/* ---- the ledger: what outlives an agent (ledger.c) ---- */
struct ftrma_ledger;
int ftrma_ledger_make(const char *path, uint32_t origins, uint32_t targets, uint32_t parts);
int ftrma_ledger_open(const char *path, struct ftrma_ledger **ledger);
void ftrma_ledger_close(struct ftrma_ledger *ledger);
/* Say where a part lies. In its place one of another generation may follow, at any time. */
int ftrma_parts_place(struct ftrma_ledger *ledger, uint32_t index,
                      const struct ftrma_wire_part *place);
/* The number of a part, or -1: it is not here, or not of this generation. */
int ftrma_parts_find(struct ftrma_ledger *ledger, uint32_t window, uint32_t target,
                     uint32_t generation);
/* A number for a part that is new: >= 0, or -ENOSPC; and it is free again. */
int ftrma_parts_reserve(struct ftrma_ledger *ledger, uint32_t window, uint32_t target);
void ftrma_parts_release(struct ftrma_ledger *ledger, uint32_t index);
/* The same for a part that several processes of the node have in common: whoever comes first says where it
   lies, and anybody that it is gone. -EEXIST: its window, target and generation are those of
   another file. */
int ftrma_parts_share(struct ftrma_ledger *ledger, const struct ftrma_wire_part *place);
void ftrma_parts_unshare(struct ftrma_ledger *ledger, uint32_t window, uint32_t target,
                         uint32_t generation);
/* How often the agent has begun to look for changed words, and which look's words have been ordered by
   the hub, with all that was ordered before: mapped from the state. 0 or -errno. */
int ftrma_mirror_scans(const char *path, const uint64_t **scans, const uint64_t **ordered);
/* Wake the agent: a lock that it waits for is free. */
void ftrma_ledger_ring(struct ftrma_ledger *ledger);
struct ftrma_ledger_target *ftrma_ledger_target(struct ftrma_ledger *ledger, uint32_t target);
/* The words of a part, or NULL. */
struct ftrma_wire_words *ftrma_parts_words(struct ftrma_ledger *ledger, uint32_t part);
uint64_t ftrma_ledger_number(struct ftrma_ledger *ledger, uint32_t origin, uint32_t target);
/* The targets' clocks lie in this file beside the ledger: that of target t from `at` + t * `step` on. */
int ftrma_ledger_clocks(struct ftrma_ledger *ledger, const char *file, uint32_t n, uint64_t at,
                        uint64_t step);
uint64_t ftrma_ledger_agents(struct ftrma_ledger *ledger); /* how many have begun */
int ftrma_ledger_agent(const struct ftrma_ledger *ledger); /* the newest one's process; 0: none yet */

/* ---- engines, which carry messages (engine.h, engine.c) ---- */
/* The names of those that agents and origins can be opened with: NULL from the last one on. */
const char *ftrma_engine_name(size_t index);

/* ---- the agent (agent.c) ---- */
struct ftrma_agent;
/* Take over a ledger; -EWOULDBLOCK while another agent has it. */
int ftrma_agent_open(const char *path, const char *engine, struct ftrma_agent **agent);
void ftrma_agent_close(struct ftrma_agent *agent);
/* Serve an origin over a connection that is authenticated. It replaces the origin's one before;
   -ESTALE for an incarnation that is over. The descriptor is the agent's in any case. */
int ftrma_agent_adopt(struct ftrma_agent *agent, int fd, uint32_t origin, uint64_t incarnation);
int ftrma_agent_watch(struct ftrma_agent *agent, int fd); /* one descriptor, whoever's it is */
/* Serve until something is at the watched descriptor, or milliseconds have passed (-1: never). */
int ftrma_agent_serve(struct ftrma_agent *agent, int timeout_ms);
void ftrma_agent_kill_at(struct ftrma_agent *agent, int failpoint, uint64_t count);

/* ---- the mirror: files that are the same on all nodes (mirror.c, spokes.c) ---- */
/* Make the state `path` of the mirror of `file` beside it, which is there already. Nobody sees a word
   new before what is listed later and was stored before. */
int ftrma_mirror_make(const char *path, const char *file, const struct ftrma_mirror_region *regions,
                      uint32_t n);
/* Have an agent mirror it, as the agent of this node; node 0 is the hub. Before it serves. */
int ftrma_spokes_open(struct ftrma_agent *agent, const char *path, uint32_t node);
/* What both ends of a connection must agree on: a hash of the regions; 0: nothing is mirrored. */
uint64_t ftrma_spokes_regions(const struct ftrma_agent *agent);
/* An authenticated connection: at the hub to the spoke `node`, whose one before it replaces; at a
   spoke to the hub, node 0. The descriptor is the agent's in any case. */
int ftrma_spokes_adopt(struct ftrma_agent *agent, int fd, uint32_t node);
/* 1: a spoke without a connection to its hub; ftrma_agent_serve() returns when that begins. */
int ftrma_spokes_lacks_hub(const struct ftrma_agent *agent);
/* Why hub and spoke do not understand each other, in words; "": they do. */
const char *ftrma_spokes_reason(const struct ftrma_agent *agent);

/* ---- an origin (origin.c) ---- */
struct ftrma_origin;
/* Returns a connected, authenticated descriptor; -EAGAIN: nobody there yet; -EPROTO: refused. It has
   so many milliseconds (-1: as many as it likes) and is to come back when the alarm rings. */
typedef int ftrma_wire_connect(void *arg, int node, int timeout_ms);
/* Is told clock and seq of puts, each once, in the order of their numbers. */
typedef void ftrma_wire_acked(void *arg, int target, const struct ftrma_wire_ack *acks, size_t n);
int ftrma_origin_open(uint32_t targets, uint32_t nodes, const char *engine,
                      ftrma_wire_connect *connect, ftrma_wire_acked *acked, void *arg,
                      struct ftrma_origin **origin);
void ftrma_origin_close(struct ftrma_origin *origin);
/* The alarm: while it is rung, every wait ends with FTRMA_ALARM. */
int ftrma_origin_alarm(struct ftrma_origin *origin); /* its eventfd, which anybody may write to */
void ftrma_origin_ring(struct ftrma_origin *origin);
void ftrma_origin_clear_alarm(struct ftrma_origin *origin);
/* How long a call may wait; -1: for ever. */
void ftrma_origin_set_timeout(struct ftrma_origin *origin, int timeout_ms);
/* Where a target is; what is not acknowledged is sent there again. */
int ftrma_origin_locate(struct ftrma_origin *origin, uint32_t target, uint32_t node,
                        uint32_t generation);
/* New roles are in force; forget: a rollback, numbers begin anew and nothing is sent again. */
void ftrma_origin_take_roles(struct ftrma_origin *origin, uint32_t roles_number, int forget);
const char *ftrma_origin_reason(struct ftrma_origin *origin); /* of FTRMA_WIRE_REFUSED */
/* Forget the reason; the next call tries again. */
void ftrma_origin_retry(struct ftrma_origin *origin);

int ftrma_origin_put(struct ftrma_origin *origin, uint32_t target, uint32_t window, uint64_t offset,
                     const void *data, size_t bytes);
int ftrma_origin_putv(struct ftrma_origin *origin, uint32_t target, uint32_t window,
                      const struct ftrma_wire_run *runs, size_t n, const void *data);
int ftrma_origin_get(struct ftrma_origin *origin, uint32_t target, uint32_t window, uint64_t offset,
                     void *data, size_t bytes);
int ftrma_origin_getv(struct ftrma_origin *origin, uint32_t target, uint32_t window,
                      const struct ftrma_wire_run *runs, size_t n, void *data);
int ftrma_origin_flush(struct ftrma_origin *origin, uint32_t target);
int ftrma_origin_flush_all(struct ftrma_origin *origin);
/* Of these targets, all at once. */
int ftrma_origin_flush_each(struct ftrma_origin *origin, const uint32_t *targets, size_t n);
/* ACC, FOP or CAS of up to FTRMA_WIRE_ATOMIC_BYTES bytes. After FTRMA_ALARM, FTRMA_TIMEOUT and
   FTRMA_WIRE_STALE it is still under way: ftrma_origin_finish() takes its answer, and nothing else
   is sent to the target before. */
int ftrma_origin_atomic(struct ftrma_origin *origin, int kind, int op, int type, uint32_t target,
                        uint32_t window, uint64_t offset, uint64_t compare, const void *data,
                        size_t bytes, struct ftrma_wire_answer *answer);
/* Begin to take and to give a lock, which ftrma_origin_finish() ends: of its answer, seq is the SC of a
   LOCK. how: enum ftrma_wire_lock. */
int ftrma_origin_lock(struct ftrma_origin *origin, uint32_t target, uint32_t window, int how);
int ftrma_origin_unlock(struct ftrma_origin *origin, uint32_t target, uint32_t window, int how);
int ftrma_origin_finish(struct ftrma_origin *origin, uint32_t target,
                        struct ftrma_wire_answer *answer);
/* The same in two steps, the second of which is ftrma_origin_finish(). */
int ftrma_origin_atomic_begin(struct ftrma_origin *origin, int kind, int op, int type,
                              uint32_t target, uint32_t window, uint64_t offset, uint64_t compare,
                              const void *data, size_t bytes);
/* 1: ftrma_origin_finish() would not wait. */
int ftrma_origin_answered(struct ftrma_origin *origin, uint32_t target);
/* Who is told clock and seq of puts from now on. */
void ftrma_origin_set_acked(struct ftrma_origin *origin, ftrma_wire_acked *acked);
/* The number given last to a request to a target; and have the next one be given number + 1. */
uint64_t ftrma_origin_last_number(struct ftrma_origin *origin, uint32_t target);
void ftrma_origin_continue(struct ftrma_origin *origin, uint32_t target, uint64_t number);
/* The last number that has taken effect. What came before the answer has been taken. */
int ftrma_origin_reached(struct ftrma_origin *origin, uint32_t target, uint64_t *number);
/* The same; and a process that has sent none goes on from there. */
int ftrma_origin_number(struct ftrma_origin *origin, uint32_t target, uint64_t *number);
/* Raise a word in the head of the file of a target's part, behind all puts to the target; a flush waits
   for it, too. */
int ftrma_origin_set(struct ftrma_origin *origin, uint32_t target, uint32_t window, uint64_t word,
                     uint64_t value);
int ftrma_origin_hold(struct ftrma_origin *origin, uint32_t target, int hold);
int ftrma_origin_tell_roles(struct ftrma_origin *origin, uint32_t node, uint32_t roles_number,
                            int forget);
/* Bytes that wait for an acknowledgement. */
size_t ftrma_origin_pending(struct ftrma_origin *origin, uint32_t target);
/* CFFI-END */

/* In the lock word of a part, what the agent holds on behalf of other nodes. */
#define FTRMA_LOCK_OWNER 0xffffu         /* as the exclusive one */
#define FTRMA_LOCK_SHARED (1ull << 31)   /* some hold it shared */
#define FTRMA_LOCK_WAITS (1ull << 30)    /* some wait: nobody of the node takes it, who gives it rings */
#define FTRMA_LOCK_HERE(word) (((word) >> 16) & 0x3fffu) /* shared holders of the node */

_Static_assert(sizeof(struct ftrma_wire_head) == 48, "it is on the wire");
_Static_assert(sizeof(struct ftrma_wire_ack) == 32, "it is on the wire");
_Static_assert(sizeof(struct ftrma_wire_word) == 16, "it is on the wire");

#endif
