/* Accumulates and atomics that another node's agent computes.
 *
 * Each is done when the call returns. Its answer has the bytes before and after, from which the
 * record is made here, and its number among the target's changes.
 */
#include "faratomic.h"

#include <string.h>

#include "access.h"
#include "far.h"
#include "origin_lock.h"

/* ---- what an agent can do ------------------------------------------------------------------- */

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

/* The wire's number of a type; 0: the agent cannot compute with it. */
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

/* The wire's number of a type for this operation. If the operation treats elements as bytes, any
   type of the size will do. */
static int type_for(int kind, MPI_Op op, MPI_Datatype type)
{
    size_t size = ftrma_basic_size(type);
    if (kind != FTRMA_WIRE_CAS && op != MPI_REPLACE && op != MPI_NO_OP)
        return wire_type(type);
    return size == 8 ? FTRMA_WIRE_U64 : size == 4 ? FTRMA_WIRE_U32 : 0;
}

int ftrma_far_can(const struct reach *r, int kind, MPI_Op op, MPI_Datatype type)
{
    size_t size = ftrma_basic_size(type);
    size_t most = kind == FTRMA_WIRE_ACC ? FTRMA_WIRE_ATOMIC_BYTES : size;
    int floating = type == MPI_DOUBLE || type == MPI_FLOAT, code = wire_op(op);
    if (!size || r->at % size || !r->span || r->span > most || !type_for(kind, op, type))
        return 0;
    if (kind == FTRMA_WIRE_CAS)
        return 1;
    return code && !(floating && code >= FTRMA_WIRE_BAND && code <= FTRMA_WIRE_BXOR);
}

/* ---- one atomic ----------------------------------------------------------------------------- */

/* The atomic of the program's thread that is under way. A repair checks if its answer has come, and
   logs it before anybody reads the log. */
struct flight {
    const struct reach *r; /* NULL: no atomic is under way */
    int what, done;
    struct ftrma_wire_answer answer;
};
static struct flight flight;

/* 1 if the trace shows the atomic's values; then it has a record of the atomic even if nothing
   changes. */
static int is_small_atomic(const struct flight *f)
{
    return f->what != FTRMA_WHAT_ACCUMULATE && f->answer.bytes <= sizeof ftrma_trace.value[0];
}

static void trace_change(const struct ftrma_wire_answer *answer)
{
    ftrma_trace.clock = answer->clock;
    ftrma_trace.seq = answer->seq;
    for (size_t i = 0; i < 2 && answer->bytes <= sizeof ftrma_trace.value[i]; i++)
        memcpy(&ftrma_trace.value[i], answer->data + i * answer->bytes, answer->bytes);
}

/* Log the change. An atomic that changes nothing, as in a program that polls a value, counts as a
   read. */
static void log_change(const struct flight *f)
{
    const struct ftrma_wire_answer *answer = &f->answer;
    const unsigned char *before = answer->data, *after = answer->data + answer->bytes;
    int changed = memcmp(before, after, answer->bytes) != 0;
    if (unlikely(ftrma_tracing) && (changed || is_small_atomic(f)))
        trace_change(answer);
    if (!ftrma_logs() || !changed) {
        count_dropped(ftrma_logs() ? 0 : answer->bytes);
        return;
    }
    struct ftrma_record record = record_of(f->r, FTRMA_RECORD_PUT, f->what);
    record.clock = answer->clock;
    record.seq = answer->seq;
    ftrma_log_small(FTRMA_PUTS, &record, after, answer->bytes);
}

/* Finish the atomic: wait for its answer, and log it. */
static int finish(struct flight *f)
{
    uint32_t slot = slot_of(f->r->w, f->r->target);
    int result;
    do {
        lock_origin();
        result = f->done         ? FTRMA_OK
                 : is_hindered() ? FTRMA_ALARM
                                 : ftrma_origin_finish(ORIGIN, slot, &f->answer);
        if (!result && !f->done)
            log_change(f);
        f->done |= !result;
    } while (unlock_origin(result));
    count_answered();
    return result;
}

static int atomic(const struct reach *r, int what, int kind, MPI_Op op, MPI_Datatype type,
                  const void *from, const void *compare, void *result)
{
    static const char nothing[FTRMA_WIRE_ATOMIC_BYTES];
    struct flight own, *f = ftrma_counted ? &flight : &own;
    uint32_t target = slot_of(r->w, r->target);
    uint64_t expected = 0;
    if (compare)
        memcpy(&expected, compare, r->span);
    int code = kind == FTRMA_WIRE_CAS ? 0 : wire_op(op), done;
    *f = (struct flight){.r = r, .what = what};
    WITH_ORIGIN(done,
          count_unanswered(ftrma_origin_flush(ORIGIN, target)
                        ?: ftrma_origin_atomic_begin(ORIGIN, kind, code, type_for(kind, op, type),
                                                     target, r->w->wire, r->at, expected,
                                                     op == MPI_NO_OP ? nothing : from, r->span)));
    if (!done)
        done = finish(f);
    f->r = NULL;
    if (!done && result)
        memcpy(result, f->answer.data, r->span);
    return judge(r->w, r->target, done);
}

/* Do the atomic while no other thread of this process is inside a change of the part: otherwise the
   atomic would wait for that change. */
int ftrma_far_atomic(const struct reach *r, int what, int kind, MPI_Op op, MPI_Datatype type,
                     const void *from, const void *compare, void *result)
{
    pthread_mutex_lock(&ftrma_originlock.changing);
    int rc = atomic(r, what, kind, op, type, from, compare, result);
    pthread_mutex_unlock(&ftrma_originlock.changing);
    return rc;
}

/* ---- in a repair ---------------------------------------------------------------------------- */

static int take_answer(void)
{
    uint32_t slot = slot_of(flight.r->w, flight.r->target);
    uint64_t number;
    int result = ftrma_origin_reached(ORIGIN, slot, &number);
    if (result || !ftrma_origin_answered(ORIGIN, slot))
        return result;
    result = ftrma_origin_finish(ORIGIN, slot, &flight.answer);
    if (!result)
        log_change(&flight);
    flight.done = !result;
    return result;
}

int ftrma_far_answers(uint64_t round)
{
    int asks = flight.r && !flight.done && !ftrma_is_lost(slot_of(flight.r->w, flight.r->target));
    return asks ? ftrma_originlock_retry(round, take_answer) : FTRMA_OK;
}
