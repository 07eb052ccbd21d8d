/* The blocking collective calls that compute, on communicators that ftrma implements: see
   collective.c.
 *
 * The slots' streams are their vectors, packed. A slot that wants a part of the result combines the
 * slots' chunks itself, in the order of slots: the result of a0 op (a1 op (... op an)) is the same
 * to the last bit wherever it is computed, and non-commutative operations get their order. An
 * element is never split, unless it is larger than a chunk; then its parts are collected first. The
 * log keeps the combined elements, not the contributions.
 */
#include <stdlib.h>
#include <string.h>

#include "collective.h"
#include "event.h"
#include "results.h"
#include "types.h"

struct reduction {
    int collective, root;
    const void *from; /* this slot's vector of n elements */
    char *to;         /* the place for elements begin .. end - 1 of the result */
    size_t n, begin, end;
    int last;         /* combine slots 0 .. last */
    MPI_Datatype type;
    MPI_Op op;
    struct ftrma_layout layout;
    int direct;       /* 1: elements are combined in place: they are contiguous, and the operation
                         writes only into its result */
    char *collected;  /* elements of all slots that are larger than a chunk */
    char *memory, *given, *result, *packed; /* elements as they lie in memory, for all other
                                               cases */
};

/* ---- combining ------------------------------------------------------------------------------ */

/* Apply the operation, which may be the program's. */
static int apply(const void *from, void *to, size_t n, const struct reduction *r)
{
    ftrma_thread.called++;
    int rc = PMPI_Reduce_local(from, to, (int)n, r->type, r->op);
    ftrma_thread.called--;
    return rc;
}

/* Compute elements a .. b - 1 of the result, from the slots' elements from `base` on. */
static int combine(const struct reduction *r, const char *const *source, size_t base, size_t a,
                   size_t b, char *to)
{
    size_t size = r->layout.size, skip = (a - base) * size, n = b - a;
    if (r->direct) {
        memcpy(to, source[r->last] + skip, n * size);
        for (int s = r->last - 1; s >= 0; s--) {
            int rc = apply(source[s] + skip, to, n, r);
            if (rc)
                return rc;
        }
        return MPI_SUCCESS;
    }
    int rc = ftrma_unpack(source[r->last] + skip, n, &r->layout, r->result);
    for (int s = r->last - 1; s >= 0 && !rc; s--) {
        rc = ftrma_unpack(source[s] + skip, n, &r->layout, r->given);
        if (!rc)
            rc = apply(r->given, r->result, n, r);
    }
    return rc ? rc : ftrma_pack(r->result, n, &r->layout, to);
}

/* Find the slots' elements in their areas. Collect the parts of an element that is larger than a
   chunk. */
static int sources(struct ftrma_transfer *t, size_t lo, size_t hi, const char **source)
{
    struct reduction *r = t->user;
    size_t size = r->layout.size;
    for (int s = 0; s <= r->last; s++) {
        int rc;
        const struct ftrma_area *a = ftrma_deposit(t, s, &rc);
        if (rc)
            return rc;
        if (a->bytes != t->bytes)
            return ftrma_collective_fail(MPI_ERR_TRUNCATE);
        source[s] = a->data;
        if (r->collected) {
            source[s] = r->collected + (size_t)s * size;
            memcpy(r->collected + (size_t)s * size + lo % size, a->data, hi - lo);
        }
    }
    return MPI_SUCCESS;
}

static int deliver(struct ftrma_transfer *t, size_t lo, size_t hi)
{
    struct reduction *r = t->user;
    const char *source[FTRMA_MAX_PROCS];
    size_t size = r->layout.size;
    hi = hi < t->bytes ? hi : t->bytes;
    int rc = t->answered ? MPI_SUCCESS : sources(t, lo, hi, source);
    if (rc || !size || hi % size)
        return rc; /* no element is whole yet */
    size_t base = lo / size, a = base > r->begin ? base : r->begin;
    size_t b = hi / size < r->end ? hi / size : r->end;
    if (a >= b)
        return MPI_SUCCESS;
    char *at = r->to + (MPI_Aint)(a - r->begin) * r->layout.extent;
    char *packed = r->direct ? at : r->packed;
    rc = t->answered ? ftrma_result_read(packed, (b - a) * size)
                     : combine(r, source, base, a, b, packed);
    if (rc)
        return rc;
    if (!t->answered)
        ftrma_result_log(packed, (b - a) * size);
    return r->direct ? MPI_SUCCESS : ftrma_unpack(packed, b - a, &r->layout, at);
}

/* ---- memory --------------------------------------------------------------------------------- */

/* Allocate the memory for `chunk` elements at a time. */
static int take_memory(struct reduction *r, size_t chunk, size_t room)
{
    MPI_Aint low, span;
    size_t size = r->layout.size, slots = (size_t)ftrma_ranks();
    if (size > room && r->last >= 0) {
        r->collected = malloc(slots * size);
        if (!r->collected)
            return MPI_ERR_NO_MEM;
    }
    if (r->direct)
        return MPI_SUCCESS;
    int rc = PMPI_Type_get_true_extent(r->type, &low, &span);
    if (rc)
        return rc;
    MPI_Aint reach = (MPI_Aint)(chunk - 1) * r->layout.extent; /* negative for some types */
    size_t bytes = (size_t)(span + (reach < 0 ? -reach : reach));
    r->memory = calloc(2 * bytes + chunk * size + 1, 1);
    if (!r->memory)
        return MPI_ERR_NO_MEM;
    r->given = r->memory - low - (reach < 0 ? reach : 0);
    r->result = r->given + bytes;
    r->packed = r->memory + 2 * bytes;
    return MPI_SUCCESS;
}

/* Let the library check type and operation, by a call without an element. */
static int check(struct reduction *r)
{
    if (r->op == MPI_OP_NULL)
        return ftrma_collective_fail(MPI_ERR_OP);
    if (ftrma_layout_of(r->type, &r->layout))
        return ftrma_collective_fail(MPI_ERR_TYPE);
    if (r->to == MPI_IN_PLACE || r->from == MPI_IN_PLACE)
        return ftrma_collective_fail(MPI_ERR_ARG);
    return PMPI_Reduce_local(NULL, NULL, 0, r->type, r->op);
}

static int run(struct reduction *r)
{
    size_t room = 0;
    int rc = ftrma_exchange_open(ftrma_on, &room);
    if (!rc)
        rc = check(r);
    if (rc)
        return rc;
    unsigned op = ftrma_predefined(r->op);
    size_t size = r->layout.size, chunk = size && size < room ? room / size : 1;
    chunk = chunk < r->n ? chunk : r->n ? r->n : 1;
    r->direct = r->layout.basic && op;
    if (r->begin == r->end)
        r->last = -1; /* this slot only sends */
    struct ftrma_piece out = {(char *)(uintptr_t)r->from, r->n * size};
    rc = take_memory(r, chunk, room);
    char *packed = NULL;
    if (!rc && !r->layout.basic) {
        out.at = packed = malloc(out.bytes + 1);
        rc = packed ? ftrma_pack(r->from, r->n, &r->layout, packed) : MPI_ERR_NO_MEM;
    }
    struct ftrma_transfer t = {.collective = r->collective, .root = r->root, .detail = op,
                               .out = &out, .nout = 1, .unit = chunk * size, .deliver = deliver,
                               .user = r};
    if (!rc)
        rc = ftrma_transfer_run(&t);
    free(packed);
    free(r->memory);
    free(r->collected);
    return rc;
}

/* ---- the calls ------------------------------------------------------------------------------ */

/* Compute elements begin .. end - 1 of `n` combined over slots 0 .. last, into `to`. */
static int reduce(int collective, int root, const void *from, void *to, int64_t n, size_t begin,
                  size_t end, int last, MPI_Datatype type, MPI_Op op)
{
    if (n < 0)
        return ftrma_collective_fail(MPI_ERR_COUNT);
    struct reduction r = {.collective = collective, .root = root, .from = from, .to = to,
                          .n = (size_t)n, .begin = begin, .end = end, .last = last, .type = type,
                          .op = op};
    return run(&r);
}

int MPI_Reduce(const void *sendbuf, void *recvbuf, int count, MPI_Datatype type, MPI_Op op,
               int root, MPI_Comm comm)
{
    OURS_OR(PMPI_Reduce(sendbuf, recvbuf, count, type, op, root, ftrma_comm(comm)));
    if (root < 0 || root >= ftrma_ranks())
        return ftrma_collective_fail(MPI_ERR_ROOT);
    int mine = ftrma_rank() == root;
    return reduce(FTRMA_REDUCE, root, mine && sendbuf == MPI_IN_PLACE ? recvbuf : sendbuf,
                  mine ? recvbuf : NULL, count, 0, mine ? (size_t)count : 0, ftrma_ranks() - 1,
                  type, op);
}

int MPI_Allreduce(const void *sendbuf, void *recvbuf, int count, MPI_Datatype type, MPI_Op op,
                  MPI_Comm comm)
{
    OURS_OR(PMPI_Allreduce(sendbuf, recvbuf, count, type, op, ftrma_comm(comm)));
    return reduce(FTRMA_ALLREDUCE, -1, sendbuf == MPI_IN_PLACE ? recvbuf : sendbuf, recvbuf,
                  count, 0, (size_t)count, ftrma_ranks() - 1, type, op);
}

int MPI_Scan(const void *sendbuf, void *recvbuf, int count, MPI_Datatype type, MPI_Op op,
             MPI_Comm comm)
{
    OURS_OR(PMPI_Scan(sendbuf, recvbuf, count, type, op, ftrma_comm(comm)));
    return reduce(FTRMA_SCAN, -1, sendbuf == MPI_IN_PLACE ? recvbuf : sendbuf, recvbuf, count, 0,
                  (size_t)count, ftrma_rank(), type, op);
}

/* Slot 0 gets nothing. */
int MPI_Exscan(const void *sendbuf, void *recvbuf, int count, MPI_Datatype type, MPI_Op op,
               MPI_Comm comm)
{
    OURS_OR(PMPI_Exscan(sendbuf, recvbuf, count, type, op, ftrma_comm(comm)));
    return reduce(FTRMA_EXSCAN, -1, sendbuf == MPI_IN_PLACE ? recvbuf : sendbuf, recvbuf, count, 0,
                  ftrma_rank() ? (size_t)count : 0, ftrma_rank() - 1, type, op);
}

int MPI_Reduce_scatter(const void *sendbuf, void *recvbuf, const int recvcounts[],
                       MPI_Datatype type, MPI_Op op, MPI_Comm comm)
{
    OURS_OR(PMPI_Reduce_scatter(sendbuf, recvbuf, recvcounts, type, op, ftrma_comm(comm)));
    int64_t n = 0, begin = 0;
    for (int s = 0; s < ftrma_ranks(); s++) {
        if (recvcounts[s] < 0)
            return ftrma_collective_fail(MPI_ERR_COUNT);
        begin = s == ftrma_rank() ? n : begin;
        n += recvcounts[s];
    }
    return reduce(FTRMA_REDUCE_SCATTER, -1, sendbuf == MPI_IN_PLACE ? recvbuf : sendbuf, recvbuf,
                  n, (size_t)begin, (size_t)(begin + recvcounts[ftrma_rank()]), ftrma_ranks() - 1,
                  type, op);
}

int MPI_Reduce_scatter_block(const void *sendbuf, void *recvbuf, int recvcount, MPI_Datatype type,
                             MPI_Op op, MPI_Comm comm)
{
    OURS_OR(PMPI_Reduce_scatter_block(sendbuf, recvbuf, recvcount, type, op, ftrma_comm(comm)));
    int64_t begin = (int64_t)recvcount * ftrma_rank();
    return reduce(FTRMA_REDUCE_SCATTER_BLOCK, -1, sendbuf == MPI_IN_PLACE ? recvbuf : sendbuf,
                  recvbuf, (int64_t)recvcount * ftrma_ranks(), (size_t)begin,
                  (size_t)(begin + recvcount), ftrma_ranks() - 1, type, op);
}
