/* Members of a window on other nodes.
 *
 * Each node has a file of the window with its own members' parts and a header for all, whose words
 * lie where they are waited for; who changes one for somebody far has the agent there raise it.
 * Puts are under way when they return, and a flush waits for them; all else is done when it returns.
 *
 * The origin serves one thread at a time.  Who waits for a lock may wait for what another thread is
 * about to do: it lets others have the origin, whose alarm they ring for that.  A call that ends with
 * the alarm, and no failure, is made again.
 */
#include "far.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "control.h"
#include "errors.h"
#include "interrupt.h"
#include "types.h"

/* Set once by ftrma_set_nodes, before the program runs. */
static struct ftrma_origin *origin;
static struct ftrma_ledger *ledger;
static int32_t nodes[FTRMA_MAX_PROCS];
static int here;

static pthread_mutex_t alone = PTHREAD_MUTEX_INITIALIZER;
static unsigned wanted; /* so many threads wait for the origin */
static int patient;     /* who has it waits for a lock */
static unsigned begun;  /* locks that are not granted yet: nothing else can go to those targets */

void ftrma_set_nodes(void *wire_origin, void *wire_ledger, int node, const int32_t *of_slot, int n)
{
    for (int s = 0; s < n && s < FTRMA_MAX_PROCS; s++)
        nodes[s] = of_slot[s];
    here = node;
    ledger = wire_ledger;
    origin = wire_origin;
}

int ftrma_far_node(int slot)
{
    return nodes[slot];
}

int ftrma_far_here(void)
{
    return here;
}

/* What an origin's call has come to, as an MPI code. */
static int judge(struct window *w, int target, int result)
{
    if (likely(result == FTRMA_OK))
        return MPI_SUCCESS;
    if (result == FTRMA_ALARM && ftrma_unwinding())
        return ftrma_code_unwind;
    if (result == -ENOMEM)
        return MPI_ERR_NO_MEM;
    const char *why = result < 0 ? strerror(-result) : ftrma_origin_reason(origin);
    if (target < 0)
        return ftrma_window_fail(w, MPI_ERR_OTHER, "another node's part of the window cannot be "
                                 "reached: %s", why);
    return ftrma_window_fail(w, MPI_ERR_OTHER, "the part of rank %d, on another node, cannot be "
                             "reached: %s", target, why);
}

static void nap(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
}

static void enter(void)
{
    __atomic_add_fetch(&wanted, 1, __ATOMIC_SEQ_CST);
    if (unlikely(LOAD(&patient)))
        ftrma_origin_ring(origin);
    pthread_mutex_lock(&alone);
    __atomic_sub_fetch(&wanted, 1, __ATOMIC_SEQ_CST);
}

/* Leave the origin to others.  1: what has come to this is to be done again. */
static int leave(int result)
{
    int again = (result == -EBUSY && LOAD(&begun)) || (result == FTRMA_ALARM && !ftrma_unwinding());
    if (unlikely(result == FTRMA_ALARM))
        ftrma_origin_hush(origin);
    pthread_mutex_unlock(&alone);
    if (unlikely(again))
        nap();
    return again;
}

/* Set result to that of the call. */
#define ALONE(result, call)                                                                       \
    do {                                                                                          \
        enter();                                                                                  \
        (result) = (call);                                                                        \
    } while (leave(result))

#define RETURN_ALONE(w, target, call)                                                             \
    int result_;                                                                                  \
    ALONE(result_, call);                                                                         \
    return judge(w, target, result_)

static uint32_t slot_of(const struct window *w, int target)
{
    return (uint32_t)w->members[target].slot;
}

/* ---- windows come and go ---------------------------------------------------------------------- */

static uint64_t offset_of(const struct window *w, const void *in_head)
{
    return (uint64_t)((const char *)in_head - w->map);
}

int ftrma_far_place(struct window *w)
{
    const struct ftrma_member *m = &w->members[w->me];
    struct ftrma_wire_part place = {
        .window = w->wire, .target = slot_of(w, w->me), .generation = 1,
        .pid = w->allocated ? 0 : getpid(), .at = w->allocated ? m->offset : m->base,
        .bytes = m->size_bytes, .words = offset_of(w, &m->slot),
        .head = offset_of(w, pair(w, w->n, 0))};
    _Static_assert(sizeof place.file >= sizeof w->name, "the name has room");
    memcpy(place.file, w->name, sizeof w->name);
    if (w->placed < 0)
        w->placed = ftrma_parts_choose(ledger, w->wire, place.target);
    return w->placed < 0 ? -EMFILE : ftrma_parts_place(ledger, (uint32_t)w->placed, &place);
}

void ftrma_far_leave(struct window *w)
{
    if (w->placed >= 0)
        ftrma_parts_leave(ledger, (uint32_t)w->placed);
    w->placed = -1;
}

/* ---- bytes ------------------------------------------------------------------------------------ */

int ftrma_far_move(const struct reach *r, void *local, int write)
{
    struct window *w = r->w;
    uint32_t target = slot_of(w, r->target);
    uint64_t at = (uint64_t)((int64_t)r->at + r->low);
    RETURN_ALONE(w, r->target, write ? ftrma_origin_put(origin, target, w->wire, at, local, r->span)
                                     : ftrma_origin_get(origin, target, w->wire, at, local, r->span));
}

int ftrma_far_runs(const struct reach *r, const char *local, const char *mask)
{
    size_t n = 0, bytes = 0;
    struct ftrma_wire_run *runs = malloc((r->span / 2 + 1) * sizeof *runs);
    char *packed = malloc(r->span + 1);
    int result = runs && packed ? FTRMA_OK : -ENOMEM;
    uint64_t first = (uint64_t)((int64_t)r->at + r->low);
    for (size_t at = 0, end; !result && at < r->span; at = end) {
        const char *run = memchr(mask + at, 1, r->span - at);
        at = run ? (size_t)(run - mask) : r->span;
        const char *hole = at < r->span ? memchr(mask + at, 0, r->span - at) : NULL;
        end = hole ? (size_t)(hole - mask) : r->span;
        if (end == at)
            break;
        runs[n++] = (struct ftrma_wire_run){first + at, end - at};
        memcpy(packed + bytes, local + at, end - at);
        bytes += end - at;
    }
    if (!result && n)
        ALONE(result, ftrma_origin_putv(origin, slot_of(r->w, r->target), r->w->wire, runs, n, packed));
    free(runs);
    free(packed);
    return judge(r->w, r->target, result);
}

int ftrma_far_flush(struct window *w, int target)
{
    RETURN_ALONE(w, target, ftrma_origin_flush(origin, slot_of(w, target)));
}

int ftrma_windows_flush(void)
{
    return origin ? ftrma_far_flush_all(NULL) : MPI_SUCCESS;
}

int ftrma_far_flush_all(struct window *w)
{
    RETURN_ALONE(w, -1, ftrma_origin_flush_all(origin));
}

/* ---- atomics ---------------------------------------------------------------------------------- */

static int wire_op(MPI_Op op)
{
    return op == MPI_SUM       ? FTRMA_WIRE_SUM
           : op == MPI_REPLACE ? FTRMA_WIRE_REPLACE
           : op == MPI_NO_OP   ? FTRMA_WIRE_NO_OP
           : op == MPI_PROD    ? FTRMA_WIRE_PROD
           : op == MPI_MIN     ? FTRMA_WIRE_MIN
           : op == MPI_MAX     ? FTRMA_WIRE_MAX
           : op == MPI_BAND    ? FTRMA_WIRE_BAND
           : op == MPI_BOR     ? FTRMA_WIRE_BOR
           : op == MPI_BXOR    ? FTRMA_WIRE_BXOR
                               : 0;
}

/* 0: the agent cannot compute with it. */
static int wire_type(MPI_Datatype type)
{
    if (type == MPI_DOUBLE)
        return FTRMA_WIRE_F64;
    if (type == MPI_FLOAT)
        return FTRMA_WIRE_F32;
    if (type == MPI_INT64_T || type == MPI_LONG || type == MPI_LONG_LONG || type == MPI_AINT
        || type == MPI_OFFSET || type == MPI_COUNT)
        return FTRMA_WIRE_I64;
    if (type == MPI_UINT64_T || type == MPI_UNSIGNED_LONG || type == MPI_UNSIGNED_LONG_LONG)
        return FTRMA_WIRE_U64;
    if (type == MPI_INT || type == MPI_INT32_T)
        return FTRMA_WIRE_I32;
    return type == MPI_UNSIGNED || type == MPI_UINT32_T ? FTRMA_WIRE_U32 : 0;
}

/* Of a kind and operation that only look at bytes, any type of the size will do. */
static int type_for(int kind, MPI_Op op, MPI_Datatype type)
{
    size_t size = ftrma_basic_size(type);
    if (kind != FTRMA_WIRE_CAS && op != MPI_REPLACE && op != MPI_NO_OP)
        return wire_type(type);
    return size == 8 ? FTRMA_WIRE_U64 : size == 4 ? FTRMA_WIRE_U32 : 0;
}

int ftrma_far_can(const struct reach *r, int kind, MPI_Op op, MPI_Datatype type)
{
    size_t size = ftrma_basic_size(type), most = kind == FTRMA_WIRE_ACC ? FTRMA_WIRE_IMAGE : size;
    int floating = type == MPI_DOUBLE || type == MPI_FLOAT, code = wire_op(op);
    if (!size || r->at % size || !r->span || r->span > most || !type_for(kind, op, type))
        return 0;
    if (kind == FTRMA_WIRE_CAS)
        return 1;
    return code && !(floating && code >= FTRMA_WIRE_BAND && code <= FTRMA_WIRE_BXOR);
}

int ftrma_far_atomic(const struct reach *r, int kind, MPI_Op op, MPI_Datatype type,
                     const void *from, const void *compare, void *result)
{
    static const char nothing[FTRMA_WIRE_IMAGE];
    struct ftrma_wire_answer answer;
    uint64_t expected = 0;
    if (compare)
        memcpy(&expected, compare, r->span);
    uint32_t target = slot_of(r->w, r->target);
    int code = kind == FTRMA_WIRE_CAS ? 0 : wire_op(op), done;
    do {
        enter();
        done = ftrma_origin_atomic(origin, kind, code, type_for(kind, op, type), target, r->w->wire,
                                   r->at, expected, op == MPI_NO_OP ? nothing : from, r->span,
                                   &answer);
        while (unlikely(done == FTRMA_ALARM && !ftrma_unwinding())) {
            ftrma_origin_hush(origin);
            done = ftrma_origin_finish(origin, target, &answer);
        }
    } while (leave(done));
    if (!done && result)
        memcpy(result, answer.data, r->span);
    return judge(r->w, r->target, done);
}

/* ---- locks and words -------------------------------------------------------------------------- */

/* One more is begun, if this is a success. */
static int ask(int result)
{
    if (!result)
        __atomic_add_fetch(&begun, 1, __ATOMIC_SEQ_CST);
    return result;
}

int ftrma_far_ask_lock(struct window *w, int target, int how)
{
    RETURN_ALONE(w, target, ask(ftrma_origin_lock(origin, slot_of(w, target), w->wire, how)));
}

int ftrma_far_ask_unlock(struct window *w, int target, int how)
{
    RETURN_ALONE(w, target, ask(ftrma_origin_unlock(origin, slot_of(w, target), w->wire, how)));
}

int ftrma_far_finish(struct window *w, int target, uint64_t *sc)
{
    struct ftrma_wire_answer answer;
    int result;
    do {
        enter();
        STORE(&patient, 1);
        result = LOAD(&wanted) ? FTRMA_ALARM
                               : ftrma_origin_finish(origin, slot_of(w, target), &answer);
        STORE(&patient, 0);
    } while (leave(result));
    __atomic_sub_fetch(&begun, 1, __ATOMIC_SEQ_CST);
    if (!result && sc)
        *sc = answer.seq;
    return judge(w, target, result);
}

int ftrma_far_lock(struct window *w, int target, int how)
{
    int rc = ftrma_far_ask_lock(w, target, how);
    return rc ? rc : ftrma_far_finish(w, target, NULL);
}

int ftrma_far_unlock(struct window *w, int target, int how)
{
    int rc = ftrma_far_ask_unlock(w, target, how);
    return rc ? rc : ftrma_far_finish(w, target, NULL);
}

void ftrma_far_ring(void)
{
    if (ledger)
        ftrma_ledger_ring(ledger);
}

int ftrma_far_set(struct window *w, int target, const uint64_t *word, uint64_t value)
{
    RETURN_ALONE(w, target, ftrma_origin_set(origin, slot_of(w, target), w->wire, offset_of(w, word),
                                             value));
}

int ftrma_far_tell(struct window *w, const uint64_t *word, uint64_t value)
{
    int rc = MPI_SUCCESS;
    for (int m = 0; m < w->n && !rc; m++) {
        int first = w->far[m];
        for (int other = 0; other < m && first; other++)
            first = nodes[w->members[other].slot] != nodes[w->members[m].slot];
        if (first)
            rc = ftrma_far_set(w, m, word, value);
    }
    return rc;
}
