/* The wire between nodes: everything that C and Python share of it.
 *
 * An *origin* sends requests for the parts of other nodes.  The *agent* of a node, one process,
 * carries them out and replies.  Origin, target and agent may die at any moment.  The *ledger* of
 * the agent, a file in shared memory, says which requests have taken effect, so that a request that
 * is sent again is carried out once.
 *
 * The wire is a library of its own, without MPI. A function returns 0, a negative errno value, or
 * one of the results below. No function except ftrma_origin_ring() may be called by two threads at
 * the same time.
 */
#ifndef FTRMA_WIRE_H
#define FTRMA_WIRE_H

#include <stddef.h>
#include <stdint.h>

/* CFFI-BEGIN */
#define FTRMA_WIRE_FORMAT 6 /* version of the messages; both ends of a connection need the same
                               one */
#define FTRMA_WIRE_PAYLOAD_BYTES 262144 /* most bytes after a head; longer accesses are cut up */
#define FTRMA_WIRE_ATOMIC_BYTES 1024 /* most bytes of one accumulate; longer ones are cut up */
#define FTRMA_WIRE_RUNS 4096         /* at most, of one PUTV or GETV */
#define FTRMA_WIRE_SENT_RUNS 256     /* at most, of a PUTV or GETV that an origin sends */
#define FTRMA_WIRE_NAME_BYTES 128    /* of the name of a part's file, with the zero */
#define FTRMA_WIRE_KEPT 3             /* a descriptor of an agent's process */
#define FTRMA_WIRE_NODES 1024        /* most nodes of a mirror: no job has more processes */
#define FTRMA_MIRROR_LOST 0xffffffffffffffff /* in the ECHO word of a node: it counts as lost */
#define FTRMA_WIRE_PLAIN 0xffffffffffffffff /* ftrma_wire_part.words of a part without words */

/* Results of an origin's calls, beside FTRMA_OK (0), FTRMA_ALARM (1) and FTRMA_TIMEOUT (2). */
#define FTRMA_WIRE_STALE 3   /* the agent has newer roles than this process */
#define FTRMA_WIRE_REFUSED 4 /* the agent has refused the request; ftrma_origin_reason() says why */

/* Events for which ftrma_agent_serve() returns, and engines wake: bits. */
#define FTRMA_WIRE_TRAFFIC 1 /* messages have come, or a connection has failed */
#define FTRMA_WIRE_RUNG 2    /* the bell of the agent was rung, or the alarm of the origin */
#define FTRMA_WIRE_WATCHED 4 /* the watched descriptor can be read */

enum ftrma_wire_kind {
    /* Requests with a number: carried out once, in the order of their numbers. */
    FTRMA_WIRE_PUT = 1, /* offset; payload: the bytes */
    FTRMA_WIRE_PUTV,    /* operand: runs; payload: struct ftrma_wire_run of each, then all bytes */
    FTRMA_WIRE_ACC,     /* offset, op, type; payload: elements, each of which is combined */
    FTRMA_WIRE_FOP,     /* an ACC of one element */
    FTRMA_WIRE_CAS,     /* offset, type; operand: the value to compare; payload: the new element */
    FTRMA_WIRE_LOCK,    /* operand: enum ftrma_wire_lock */
    FTRMA_WIRE_UNLOCK,  /* operand: enum ftrma_wire_lock */
    FTRMA_WIRE_SET,     /* offset: a word in the head of the part's file, which becomes the maximum
                           of itself and operand */
    /* Requests with a token in place of a number, which the reply repeats. Sending one twice does
       no harm. */
    FTRMA_WIRE_GET,     /* offset; operand: bytes */
    FTRMA_WIRE_GETV,    /* payload: struct ftrma_wire_run of each run */
    FTRMA_WIRE_FLUSH,   /* acknowledge all puts of this connection to the target */
    FTRMA_WIRE_NUMBER,  /* tell the last number that has taken effect */
    FTRMA_WIRE_HOLD,    /* reject requests to the target from now on */
    FTRMA_WIRE_RELEASE, /* accept them again; as a reply: rejected requests can be sent again */
    FTRMA_WIRE_ROLES,   /* new roles; operand 1: forget numbers, answers and locks (a rollback) */
    FTRMA_WIRE_RESEND,  /* rejected requests to this target follow; number: how many RESENDs were
                           sent; has no reply */
    FTRMA_WIRE_FILE,    /* payload: name of a plain file beside the ledger, which becomes a part of
                           this window; offset: enum ftrma_wire_file; operand: bytes */
    /* Replies. */
    FTRMA_WIRE_DONE,      /* to LOCK (operand: the SC), UNLOCK, HOLD, RELEASE, ROLES, NUMBER (operand:
                             the number), and FILE (operand: its bytes, or a negative errno value) */
    FTRMA_WIRE_DATA,      /* to GET and GETV; payload: the bytes */
    FTRMA_WIRE_ACK,       /* to FLUSH, or unasked; payload: struct ftrma_wire_ack of records */
    FTRMA_WIRE_ANSWER,    /* to ACC, FOP and CAS; payload: struct ftrma_wire_answer from clock on */
    FTRMA_WIRE_REJECTED,  /* a request was not carried out; operand: enum ftrma_wire_why; number: of
                             the last RESEND before the request */
    FTRMA_WIRE_OLD_ROLES, /* the request was sent under old roles; roles_number: of the new ones */
    FTRMA_WIRE_BROKEN,    /* the message cannot be carried out; payload: why, in words */
    /* Messages between agents, see mirror.h. */
    FTRMA_WIRE_MIRROR,   /* payload: struct ftrma_wire_word of each word; a spoke may send none, to
                            get an acknowledgement; number: of the spoke's message, or 0 */
    FTRMA_WIRE_MIRRORED, /* the hub has taken all messages up to this number. The first one on a
                            connection asks the hub for that number, and for all words */
    FTRMA_WIRE_KINDS
};

/* Reasons why a request is rejected. */
enum ftrma_wire_why {
    FTRMA_WIRE_HELD = 1, /* the target is on HOLD; RELEASE follows */
    FTRMA_WIRE_EARLY,    /* the agent does not have the request's roles yet: RELEASE follows */
    FTRMA_WIRE_GAP,      /* numbers before it are missing; offset: the last one carried out */
    FTRMA_WIRE_MOVED     /* the part is not on this node, or has another generation */
};

enum ftrma_wire_lock {
    FTRMA_WIRE_EXCLUSIVE,
    FTRMA_WIRE_SHARED,
    FTRMA_WIRE_CHANGE, /* excludes all other changes of the part, for a change that no ACC, FOP or
                          CAS can do */
    FTRMA_WIRE_LOCKS
};

/* Kinds of a FILE request. */
enum ftrma_wire_file {
    FTRMA_WIRE_LOOK, /* only tell its length */
    FTRMA_WIRE_MAKE, /* make it at least so many bytes long, with memory allocated; 0: make it
                        empty */
    FTRMA_WIRE_REMOVE,
    FTRMA_WIRE_FILES
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

/* Places in the code at which a test can have the agent kill itself. */
enum ftrma_wire_failpoint {
    FTRMA_WIRE_AT_HALF = 1, /* half of a put is copied */
    FTRMA_WIRE_AT_PUT,      /* a put is copied, its number not stored */
    FTRMA_WIRE_AT_UNDO,     /* the undo of an atomic is stored, and nothing else */
    FTRMA_WIRE_AT_APPLY,    /* an atomic is applied, or half of its elements are */
    FTRMA_WIRE_AT_ANSWER,   /* the answer of an atomic is stored, its number not */
    FTRMA_WIRE_AT_NUMBER,   /* the number of an atomic or a SET is stored, no reply is sent */
    FTRMA_WIRE_AT_GRANT,    /* a lock is granted or given back, its number not stored */
    FTRMA_WIRE_AT_LOCKED,   /* the number of a lock is stored, no reply is sent */
    FTRMA_WIRE_AT_ROLES,    /* new roles are in force, and not all is forgotten */
    FTRMA_WIRE_AT_SCAN,     /* changes of words are noted, not sent */
    FTRMA_WIRE_AT_MIRROR,   /* words from another node are in the journal, one is stored next */
    FTRMA_WIRE_AT_SHADOW,   /* a word is stored, its shadow not */
    FTRMA_WIRE_AT_FORWARD,  /* all words of a message are stored, nobody is told */
    FTRMA_WIRE_FAILPOINTS
};

/* The head of every message; numbers are little-endian. */
struct ftrma_wire_head {
    uint16_t kind;
    uint8_t format;    /* FTRMA_WIRE_FORMAT */
    uint8_t operation; /* op << 4 | type of an atomic; else 0 */
    uint32_t length;   /* bytes behind the head */
    uint64_t number;
    uint32_t roles_number; /* of the sender's role table */
    uint32_t window;
    uint32_t target;     /* a slot */
    uint32_t generation; /* of the target's parts */
    uint64_t offset;
    uint64_t operand;
    uint64_t payload_sum; /* of the bytes after the head (sum.h); 0: there are none, or, before it
                             is sent, the sum is not computed yet */
    uint64_t head_sum;    /* of the words above, since the length is used before the bytes have
                             come */
};

struct ftrma_wire_run {
    uint64_t offset, bytes;
};

/* Acknowledges records number, number + 1, ... number + count - 1.  All have this clock; their seqs
   are seq, seq + 1, ... */
struct ftrma_wire_ack {
    uint64_t number, count, clock, seq;
};

/* The result of an atomic: the elements before it, then the elements after it. */
struct ftrma_wire_answer {
    uint64_t number;
    uint64_t clock, seq; /* of the change, as of a put's record */
    uint64_t bytes;      /* of the elements */
    unsigned char data[2048]; /* 2 * FTRMA_WIRE_ATOMIC_BYTES */
};

/* The words of a part, in the head of its file, which the processes of the node and the agent
   share.
   */
struct ftrma_wire_words {
    int32_t slot;
    int32_t owner; /* who is inside a change of the part: 0: nobody, member + 1: a process of the
                      node, -1: the agent, -2 - o: origin o of another node */
    uint64_t seq;  /* number of accesses so far that change the part */
    uint64_t lock; /* SC << 32 | FTRMA_LOCK_* | shared holders of the node << 16 | member + 1 of the
                      exclusive one */
};

/* The place of a part. */
struct ftrma_wire_part {
    uint32_t window, target, generation;
    int32_t pid;        /* 0: the part lies in the file; else in the memory of this process */
    uint64_t at, bytes; /* the part begins at this offset, or address */
    uint64_t words;     /* offset of its struct ftrma_wire_words in the file. A part with
                           FTRMA_WIRE_PLAIN has no words: it allows only PUT, GET and SET */
    uint64_t head;      /* bytes at the beginning of the file whose words can be SET. 0: there are
                           none */
    uint64_t bells;     /* offset of two bells in the head: a SET rings them */
    char file[FTRMA_WIRE_NAME_BYTES]; /* beside the ledger */
};

/* One word of a mirrored file: its number in the order of the regions, and its value. */
struct ftrma_wire_word {
    uint64_t word, value;
};

/* Ways in which agents treat a region of a mirrored file. */
enum ftrma_mirror_kind {
    FTRMA_MIRROR_WORDS, /* mirrored always */
    FTRMA_MIRROR_HOT,   /* mirrored while the alarm is pending: as long as ALARM differs from CALM */
    FTRMA_MIRROR_ALARM, /* one word, which becomes the maximum of all nodes */
    FTRMA_MIRROR_CALM,  /* one word */
    FTRMA_MIRROR_ECHO,  /* one word for each node, in the order of nodes. The node's agent stores
                           here the alarm with which it has sent all words; other processes store
                           FTRMA_MIRROR_LOST, and then the hub accepts nothing from the node */
    FTRMA_MIRROR_BELL,  /* a struct ftrma_bell: not mirrored; rung when words have come */
    FTRMA_MIRROR_KINDS
};

/* Whole words of a file. */
struct ftrma_mirror_region {
    uint64_t offset, bytes;
    uint64_t kind; /* enum ftrma_mirror_kind */
};

/* State of a target in a ledger, beside its parts. */
struct ftrma_ledger_target {
    uint64_t clock; /* its events; written by the target, but see ftrma_ledger_clocks() */
    uint64_t hold;  /* 1: requests to it are rejected; written by the agent */
};

/* ---- the ledger: state that outlives an agent (ledger.c, parts.c) ---- */
struct ftrma_ledger;
int ftrma_ledger_make(const char *path, uint32_t origins, uint32_t targets, uint32_t parts);
int ftrma_ledger_open(const char *path, struct ftrma_ledger **ledger);
void ftrma_ledger_close(struct ftrma_ledger *ledger);
/* Wake the agent: a lock that it waits for is free, or mirrored words have changed. */
void ftrma_ledger_ring(struct ftrma_ledger *ledger);
struct ftrma_ledger_target *ftrma_ledger_target(struct ftrma_ledger *ledger, uint32_t target);
/* The last number of an origin that has taken effect at a target. */
uint64_t ftrma_ledger_number(struct ftrma_ledger *ledger, uint32_t origin, uint32_t target);
/* Use a file beside the ledger for the clocks of the first n targets: the clock of target t is at
   `at` + t * `step`. */
int ftrma_ledger_clocks(struct ftrma_ledger *ledger, const char *file, uint32_t n, uint64_t at,
                        uint64_t step);
uint64_t ftrma_ledger_agents(struct ftrma_ledger *ledger); /* number of agents so far */
int ftrma_ledger_agent(const struct ftrma_ledger *ledger); /* pid of the newest agent; 0: none yet */

/* Set where a part lies. A part of another generation may replace it at any time. */
int ftrma_parts_place(struct ftrma_ledger *ledger, uint32_t index,
                      const struct ftrma_wire_part *place);
/* The index of a part; -1: the part is not on this node, or has another generation. */
int ftrma_parts_find(struct ftrma_ledger *ledger, uint32_t window, uint32_t target,
                     uint32_t generation);
/* Reserve an index for a new part, or release it. >= 0, or -ENOSPC. */
int ftrma_parts_reserve(struct ftrma_ledger *ledger, uint32_t window, uint32_t target);
void ftrma_parts_release(struct ftrma_ledger *ledger, uint32_t index);
/* Place a part that several processes of the node have in common, unless one of them has done so;
   any of them may release it. -EEXIST: another file has its window, target and generation. */
int ftrma_parts_share(struct ftrma_ledger *ledger, const struct ftrma_wire_part *place);
void ftrma_parts_unshare(struct ftrma_ledger *ledger, uint32_t window, uint32_t target,
                         uint32_t generation);
/* The words of a part; NULL: it has none. */
struct ftrma_wire_words *ftrma_parts_words(struct ftrma_ledger *ledger, uint32_t part);

/* ---- engines, which carry messages (engine.h, engine.c) ---- */
/* The name of an engine with which agents and origins can be opened; NULL: there are no more. */
const char *ftrma_engine_name(size_t index);

/* ---- the agent (agent.c) ---- */
struct ftrma_agent;
/* Take over a ledger; -EWOULDBLOCK while another agent has it. */
int ftrma_agent_open(const char *path, const char *engine, struct ftrma_agent **agent);
void ftrma_agent_close(struct ftrma_agent *agent);
/* Serve an origin over an authenticated socket, which becomes the agent's in any case. The
   connection replaces that origin's former one. -ESTALE: a later incarnation of the origin has
   come. */
int ftrma_agent_adopt(struct ftrma_agent *agent, int fd, uint32_t origin, uint64_t incarnation);
/* Watch one descriptor, which remains the caller's. */
int ftrma_agent_watch(struct ftrma_agent *agent, int fd);
/* Serve until the watched descriptor can be read, or milliseconds have passed (-1: never). */
int ftrma_agent_serve(struct ftrma_agent *agent, int timeout_ms);
/* Number of messages so far that were changed on their way. ftrma_agent_serve() returns after
   each. */
uint64_t ftrma_agent_damaged(const struct ftrma_agent *agent);
/* Make the agent kill itself when it comes to a failpoint for the count-th time. */
void ftrma_agent_kill_at(struct ftrma_agent *agent, int failpoint, uint64_t count);

/* Start an agent's process, so that no wait() of the caller's process finds it (detached.c). It has
   the descriptor `input` as its standard input, `kept` as FTRMA_WIRE_KEPT, the caller's standard
   output and error, no other descriptors, and its own session. 0 or -errno. */
int ftrma_agent_start(const char *path, char *const argv[], char *const envp[],
                      const char *directory, int input, int kept);

/* ---- the mirror: files that are the same on all nodes (mirror.c, spokes.c) ---- */
/* Make the state `path` of the mirror of `file`, which must exist beside it. If a process on any
   node sees the new value of a word, it also sees every word that was stored before that one and is
   listed later. */
int ftrma_mirror_make(const char *path, const char *file, const struct ftrma_mirror_region *regions,
                      uint32_t n);
/* Map two words of the state: how many scans for changed words the agent has begun, and the last
   scan whose words the hub has ordered. Everything that it ordered before those words has come by
   then; a scan that finds no words waits for nothing. 0 or -errno. */
int ftrma_mirror_scans(const char *path, const uint64_t **scans, const uint64_t **ordered);
/* Make an agent mirror the file, as the agent of this node; node 0 is the hub. Call this before it
   serves. */
int ftrma_spokes_open(struct ftrma_agent *agent, const char *path, uint32_t node);
/* A hash of the regions, which must be equal at hub and spoke; 0: nothing is mirrored. */
uint64_t ftrma_spokes_regions(const struct ftrma_agent *agent);
/* Mirror with another agent over an authenticated socket, which becomes the agent's in any case: at
   the hub with the spoke `node`, whose former connection is replaced; at a spoke with the hub, 0.
   */
int ftrma_spokes_adopt(struct ftrma_agent *agent, int fd, uint32_t node);
/* 1: the agent is a spoke without its hub; ftrma_agent_serve() returns when that begins. */
int ftrma_spokes_lacks_hub(const struct ftrma_agent *agent);
/* Why hub and spoke cannot mirror with each other, in words; "": they can. */
const char *ftrma_spokes_reason(const struct ftrma_agent *agent);

/* ---- an origin (origin.c, roles.c) ---- */
struct ftrma_origin;
/* Returns a connected, authenticated socket; -EAGAIN: nobody listens yet; -EPROTO: refused. It may
   take so many milliseconds (-1: any), and must return when the alarm rings. */
typedef int ftrma_wire_connect(void *arg, int node, int timeout_ms);
/* Called with clock and seq of each put once, in the order of the puts' numbers. */
typedef void ftrma_wire_acked(void *arg, int target, const struct ftrma_wire_ack *acks, size_t n);
/* Called when a call begins to wait, with 0, and when the wait is over, with the value that the
   first call returned. kind: kind of the atomic or lock that is awaited, enum ftrma_wire_kind; 0:
   it is something else. */
typedef uint64_t ftrma_wire_waits(uint32_t target, int kind, uint64_t began);
int ftrma_origin_open(uint32_t targets, uint32_t nodes, const char *engine,
                      ftrma_wire_connect *connect, ftrma_wire_acked *acked, void *arg,
                      struct ftrma_origin **origin);
void ftrma_origin_close(struct ftrma_origin *origin);
/* Replace the function that is called with clock and seq of puts. */
void ftrma_origin_set_acked(struct ftrma_origin *origin, ftrma_wire_acked *acked);
/* Set the function that is called for waits; NULL: none. */
void ftrma_origin_set_waits(struct ftrma_origin *origin, ftrma_wire_waits *waits);
/* The alarm, an eventfd to which anybody may write: while it is rung, every wait ends with
   FTRMA_ALARM. */
int ftrma_origin_alarm(struct ftrma_origin *origin);
void ftrma_origin_ring(struct ftrma_origin *origin);
void ftrma_origin_clear_alarm(struct ftrma_origin *origin);
/* Limit the wait of each call; -1: no limit. */
void ftrma_origin_set_timeout(struct ftrma_origin *origin, int timeout_ms);
/* Set on which node a target is; unacknowledged requests are sent there again. */
int ftrma_origin_locate(struct ftrma_origin *origin, uint32_t target, uint32_t node,
                        uint32_t generation);
/* Put new roles in force in this process. forget: a rollback; numbers begin anew, and no earlier
   request is sent again. */
void ftrma_origin_take_roles(struct ftrma_origin *origin, uint32_t roles_number, int forget);
/* Say why the last call has ended with FTRMA_WIRE_REFUSED; the second function forgets this, so
   that the next call tries again.
   */
const char *ftrma_origin_reason(struct ftrma_origin *origin);
void ftrma_origin_retry(struct ftrma_origin *origin);
/* Number of replies so far that were changed on their way. */
uint64_t ftrma_origin_damaged(const struct ftrma_origin *origin);

int ftrma_origin_put(struct ftrma_origin *origin, uint32_t target, uint32_t window, uint64_t offset,
                     const void *data, size_t bytes);
int ftrma_origin_putv(struct ftrma_origin *origin, uint32_t target, uint32_t window,
                      const struct ftrma_wire_run *runs, size_t n, const void *data);
int ftrma_origin_get(struct ftrma_origin *origin, uint32_t target, uint32_t window, uint64_t offset,
                     void *data, size_t bytes);
int ftrma_origin_getv(struct ftrma_origin *origin, uint32_t target, uint32_t window,
                      const struct ftrma_wire_run *runs, size_t n, void *data);
/* Wait until all requests to one target, to all, or to each of n targets are acknowledged. */
int ftrma_origin_flush(struct ftrma_origin *origin, uint32_t target);
int ftrma_origin_flush_all(struct ftrma_origin *origin);
int ftrma_origin_flush_each(struct ftrma_origin *origin, const uint32_t *targets, size_t n);
/* Number of bytes that wait for an acknowledgement. */
size_t ftrma_origin_pending(struct ftrma_origin *origin, uint32_t target);

/* ACC, FOP or CAS of up to FTRMA_WIRE_ATOMIC_BYTES bytes. After FTRMA_ALARM, FTRMA_TIMEOUT and
   FTRMA_WIRE_STALE the atomic is still under way: ftrma_origin_finish() takes its answer, and no
   other request goes to the target before. */
int ftrma_origin_atomic(struct ftrma_origin *origin, int kind, int op, int type, uint32_t target,
                        uint32_t window, uint64_t offset, uint64_t compare, const void *data,
                        size_t bytes, struct ftrma_wire_answer *answer);
/* Begin an atomic, which ftrma_origin_finish() ends. */
int ftrma_origin_atomic_begin(struct ftrma_origin *origin, int kind, int op, int type,
                              uint32_t target, uint32_t window, uint64_t offset, uint64_t compare,
                              const void *data, size_t bytes);
/* Begin to take or give back a lock, which ftrma_origin_finish() completes. The answer of a LOCK
   has the SC in seq. how: enum ftrma_wire_lock. */
int ftrma_origin_lock(struct ftrma_origin *origin, uint32_t target, uint32_t window, int how);
int ftrma_origin_unlock(struct ftrma_origin *origin, uint32_t target, uint32_t window, int how);
/* Wait for the answer of the request that was begun. */
int ftrma_origin_finish(struct ftrma_origin *origin, uint32_t target,
                        struct ftrma_wire_answer *answer);
/* 1: ftrma_origin_finish() would not wait. */
int ftrma_origin_answered(struct ftrma_origin *origin, uint32_t target);

/* The number of the last request to a target. */
uint64_t ftrma_origin_last_number(struct ftrma_origin *origin, uint32_t target);
/* Make the next request to a target get number + 1. */
void ftrma_origin_continue(struct ftrma_origin *origin, uint32_t target, uint64_t number);
/* Ask for the last number that has taken effect. Replies that came before this one are taken. */
int ftrma_origin_reached(struct ftrma_origin *origin, uint32_t target, uint64_t *number);
/* ftrma_origin_reached(), after which a process that has sent no request continues from there. */
int ftrma_origin_number(struct ftrma_origin *origin, uint32_t target, uint64_t *number);
/* Raise a word in the head of the file of a target's part, after all puts to the target. A flush
   also waits for it. */
int ftrma_origin_set(struct ftrma_origin *origin, uint32_t target, uint32_t window, uint64_t word,
                     uint64_t value);
/* Ask for a plain file of the target's node, which becomes a part of the window. how: enum
   ftrma_wire_file. [out] told: its length in bytes, or a negative errno value. */
int ftrma_origin_file(struct ftrma_origin *origin, uint32_t target, uint32_t window, int how,
                      uint64_t bytes, const char *name, int64_t *told);
/* Make the agent of a target reject requests to it, or accept them again. */
int ftrma_origin_hold(struct ftrma_origin *origin, uint32_t target, int hold);
/* Make the agent of a node put new roles in force. forget: a rollback. */
int ftrma_origin_tell_roles(struct ftrma_origin *origin, uint32_t node, uint32_t roles_number,
                            int forget);
/* CFFI-END */

#define FTRMA_WIRE_OWN_FILE "own-" /* begin of the names of files that FILE makes */

/* In the lock word of a part, the agent stands for all other nodes. */
#define FTRMA_LOCK_OWNER 0xffffu         /* the exclusive holder is of another node */
#define FTRMA_LOCK_SHARED (1ull << 31)   /* some origins of other nodes hold the lock shared */
#define FTRMA_LOCK_WAITS (1ull << 30)    /* some wait: processes of the node do not take it, and
                                            whoever gives it back rings the agent */
#define FTRMA_LOCK_HERE(word) (((word) >> 16) & 0x3fffu) /* number of shared holders of the node */

_Static_assert(sizeof(struct ftrma_wire_head) == 64, "it is on the wire");
_Static_assert(sizeof(struct ftrma_wire_ack) == 32, "it is on the wire");
_Static_assert(sizeof(struct ftrma_wire_word) == 16, "it is on the wire");

#endif
