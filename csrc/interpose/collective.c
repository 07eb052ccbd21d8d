/* The blocking collective calls that move data, on communicators that ftrma implements.
 *
 * They are made of exchanges (exchange.c) instead of the library's messages; on other communicators
 * the library's own calls are made, guarded like any other call (calls.py). The calls that also
 * compute are in reduction.c.
 *
 * A slot's stream has the bytes that it sends to all (Bcast, Gather, Allgather).  If each slot gets
 * other bytes (Scatter, Alltoall), it is a table of n + 1 offsets and then one part for each slot; a
 * receiver reads its two offsets in the table, which comes before its part.
 */
#include <stdlib.h>
#include <string.h>

#include "collective.h"
#include "exchange.h"
#include "types.h"

/* The user's memory on one side of a call: one block for all, or one for each slot. */
struct side {
    char *base;
    const int *counts, *displs; /* of the blocks; NULL: `count` elements each, one block after the
                                   other */
    int count, blocks;
    MPI_Datatype type;
    int copied;                 /* 1: even contiguous data is copied, since it will be
                                   overwritten */
    struct ftrma_layout layout;
    char *packed;
};

/* The pieces and offsets of a call in progress. */
struct pieces {
    struct ftrma_piece out[FTRMA_MAX_PROCS + 1], in[FTRMA_MAX_PROCS];
    uint64_t table[FTRMA_MAX_PROCS + 1], bounds[FTRMA_MAX_PROCS][2];
};

struct move {
    int collective, root;
    int personal;               /* 1: the streams are tables and parts */
    int uneven;                 /* 1: not all slots know the lengths of the streams */
    struct side *out, *in;      /* NULL: nothing is sent, or received */
    int first, end;             /* sources: slots first .. end - 1 */
    int keep;                   /* 1: this slot's part for itself is in place already */
    int truncated;
    struct pieces *now;
};

int ftrma_collective_fail(int class)
{
    PMPI_Comm_call_errhandler(ftrma_on->handle, class);
    return class;
}

/* ---- sides ---------------------------------------------------------------------------------- */

static int count_of(const struct side *s, int block)
{
    return s->counts ? s->counts[block] : s->count;
}

static char *block_at(const struct side *s, int block)
{
    MPI_Aint elements = s->displs ? (MPI_Aint)s->displs[block] : (MPI_Aint)block * s->count;
    return s->base + elements * s->layout.extent;
}

/* Check one side and find its pieces, in the user's memory or in a packed copy. */
static int open_side(struct side *s, struct ftrma_piece *pieces)
{
    if (!s)
        return MPI_SUCCESS;
    size_t bytes = 0;
    int rc = ftrma_layout_of(s->type, &s->layout);
    if (rc)
        return ftrma_collective_fail(MPI_ERR_TYPE);
    if (s->base == MPI_IN_PLACE)
        return ftrma_collective_fail(MPI_ERR_ARG);
    for (int i = 0; i < s->blocks; i++) {
        if (count_of(s, i) < 0)
            return ftrma_collective_fail(MPI_ERR_COUNT);
        pieces[i].bytes = (size_t)count_of(s, i) * s->layout.size;
        bytes += pieces[i].bytes;
    }
    if (!s->layout.basic || s->copied) {
        s->packed = malloc(bytes + 1);
        if (!s->packed)
            return ftrma_collective_fail(MPI_ERR_NO_MEM);
    }
    char *next = s->packed;
    for (int i = 0; i < s->blocks; i++) {
        pieces[i].at = s->packed ? next : block_at(s, i);
        next = s->packed ? next + pieces[i].bytes : NULL;
    }
    return MPI_SUCCESS;
}

static int pack_side(struct side *s, const struct ftrma_piece *pieces)
{
    int rc = MPI_SUCCESS;
    for (int i = 0; s && s->packed && i < s->blocks && !rc; i++)
        rc = ftrma_pack(block_at(s, i), (size_t)count_of(s, i), &s->layout, pieces[i].at);
    return rc;
}

/* The first source: if a side has one block for all, the root. */
static int first_source(const struct move *m)
{
    return m->in && m->in->blocks == 1 && m->root >= 0 ? m->root : 0;
}

/* Unpack the pieces that have come; nothing is written for one that has not. */
static int unpack_side(struct side *s, const struct move *m)
{
    int rc = MPI_SUCCESS;
    for (int i = 0; s && s->packed && i < s->blocks && !rc; i++) {
        const struct ftrma_piece *p = &m->now->in[first_source(m) + i];
        if (s->layout.size && (p != &m->now->in[ftrma_rank()] || !m->keep))
            rc = ftrma_unpack(p->at, p->bytes / s->layout.size, &s->layout, block_at(s, i));
    }
    return rc;
}

/* Accept `bytes` that have come for a piece, which is cut to these from now on. */
static size_t accept(struct move *m, struct ftrma_piece *piece, size_t bytes)
{
    m->truncated |= bytes > piece->bytes;
    if (bytes < piece->bytes)
        piece->bytes = bytes;
    return piece->bytes;
}

/* ---- moving --------------------------------------------------------------------------------- */

/* Take bytes [from, to) of a stream, if they are in its chunk [lo, hi). */
static int take(struct ftrma_transfer *t, const struct ftrma_area *a, size_t lo, size_t hi,
                size_t from, size_t to, void *at)
{
    size_t begin = lo > from ? lo : from, end = hi < to ? hi : to;
    if (begin >= end)
        return MPI_SUCCESS;
    return ftrma_learn(t, (char *)at + (begin - from), a ? a->data + (begin - lo) : NULL,
                       end - begin);
}

/* Learn the number of rounds from the senders, if the lengths of streams are not known. */
static int learn_rounds(struct ftrma_transfer *t)
{
    uint64_t most = t->rounds;
    int rc = MPI_SUCCESS;
    for (int s = 0; s < ftrma_ranks() && !t->answered && !rc; s++) {
        const struct ftrma_area *a = ftrma_deposit(t, s, &rc);
        if (a && a->rounds > most)
            most = a->rounds;
    }
    return rc ? rc : ftrma_learn(t, &t->rounds, &most, sizeof most);
}

static int deliver(struct ftrma_transfer *t, size_t lo, size_t hi)
{
    struct move *m = t->user;
    struct pieces *now = m->now;
    int rc = m->uneven && !t->round ? learn_rounds(t) : MPI_SUCCESS;
    for (int s = m->first; s < m->end && !rc; s++) {
        if (s == ftrma_rank())
            continue;
        const struct ftrma_area *a = t->answered ? NULL : ftrma_deposit(t, s, &rc);
        if (rc)
            break;
        if (a && !t->round && a->rounds > t->rounds)
            t->rounds = a->rounds; /* more bytes come than there is room for: go through their
                                      rounds, too */
        size_t from = 0, to = a ? a->bytes : now->in[s].bytes, mine = (size_t)ftrma_rank() * sizeof *now->table;
        if (m->personal) {
            rc = take(t, a, lo, hi, mine, mine + sizeof now->bounds[s], now->bounds[s]);
            if (rc || hi < mine + sizeof now->bounds[s])
                continue;
            from = now->bounds[s][0];
            to = now->bounds[s][1];
        }
        to = from + accept(m, &now->in[s], to - from);
        rc = take(t, a, lo, hi, from, to, now->in[s].at);
    }
    return rc;
}

/* Copy this slot's part for itself, which is not sent. */
static void keep_own(struct move *m, const struct ftrma_piece *own)
{
    size_t n = accept(m, &m->now->in[ftrma_rank()], own->bytes);
    if (n)
        memcpy(m->now->in[ftrma_rank()].at, own->at, n);
}

/* Open both sides and pack the bytes to be sent. Personal parts follow a table of their offsets. */
static int pack(struct move *m, struct ftrma_piece *first, size_t table_bytes)
{
    struct pieces *now = m->now;
    int n = ftrma_ranks(), rc = open_side(m->out, first);
    if (!rc)
        rc = open_side(m->in, now->in + first_source(m));
    if (!rc)
        rc = pack_side(m->out, first);
    if (!rc && m->personal && m->out) {
        now->table[0] = table_bytes;
        for (int i = 0; i < n; i++)
            now->table[i + 1] = now->table[i] + first[i].bytes;
        now->out[0] = (struct ftrma_piece){(char *)now->table, table_bytes};
    }
    return rc;
}

/* The length of the longest stream of others, as far as it is known here; 0 if it is not known, or
   this slot's stream is as long. */
static size_t expected_bytes(const struct move *m, size_t table_bytes)
{
    size_t room = 0;
    if (m->uneven)
        return 0;
    for (int s = m->first; s < m->end; s++)
        room = m->now->in[s].bytes > room ? m->now->in[s].bytes : room;
    if (!m->personal)
        return room;
    return m->out ? 0 : table_bytes + (size_t)ftrma_ranks() * room;
}

static int run(struct move *m)
{
    struct pieces now;
    int parts = m->out ? m->out->blocks : 0;
    struct ftrma_piece *first = now.out + m->personal;
    size_t table_bytes = (size_t)(ftrma_ranks() + 1) * sizeof *now.table;
    m->now = &now;
    int rc = pack(m, first, table_bytes);
    struct ftrma_transfer t = {
        .collective = m->collective, .root = m->root, .sample = m->collective == FTRMA_BCAST,
        .out = now.out, .nout = parts ? parts + m->personal : 0,
        .expected = rc ? 0 : expected_bytes(m, table_bytes), .deliver = deliver, .user = m};
    if (!rc)
        rc = ftrma_transfer_run(&t);
    if (!rc && !m->keep && m->out && m->in && ftrma_rank() >= m->first && ftrma_rank() < m->end)
        keep_own(m, first + (m->personal ? ftrma_rank() : 0));
    if (!rc)
        rc = unpack_side(m->in, m);
    if (m->out)
        free(m->out->packed);
    if (m->in)
        free(m->in->packed);
    return !rc && m->truncated ? ftrma_collective_fail(MPI_ERR_TRUNCATE) : rc;
}

static int bad_root(int root)
{
    return root < 0 || root >= ftrma_ranks() ? ftrma_collective_fail(MPI_ERR_ROOT) : MPI_SUCCESS;
}

/* ---- the calls ------------------------------------------------------------------------------ */

int MPI_Barrier(MPI_Comm comm)
{
    OURS_OR(PMPI_Barrier(ftrma_comm(comm)));
    struct ftrma_transfer t = {.collective = FTRMA_BARRIER, .root = -1};
    return ftrma_transfer_run(&t);
}

int MPI_Bcast(void *buffer, int count, MPI_Datatype type, int root, MPI_Comm comm)
{
    OURS_OR(PMPI_Bcast(buffer, count, type, root, ftrma_comm(comm)));
    int rc = bad_root(root);
    struct side all = {.base = buffer, .count = count, .blocks = 1, .type = type};
    struct move m = {.collective = FTRMA_BCAST, .root = root, .first = root, .end = root + 1,
                     .keep = 1};
    *(ftrma_rank() == root ? &m.out : &m.in) = &all;
    if (ftrma_rank() == root)
        m.first = m.end;
    return rc ? rc : run(&m);
}

/* Gather and Gatherv: the root has counts and displs, or one count for all. */
static int gather(int collective, const void *from, int count, MPI_Datatype type, void *to,
                  const int *counts, const int *displs, int to_count, MPI_Datatype to_type, int root)
{
    int rc = bad_root(root), mine = ftrma_rank() == root;
    struct side send = {.base = (char *)(uintptr_t)from, .count = count, .blocks = 1, .type = type};
    struct side receive = {.base = to, .counts = counts, .displs = displs, .count = to_count,
                           .blocks = ftrma_ranks(), .type = to_type};
    struct move m = {.collective = collective, .root = root, .uneven = collective == FTRMA_GATHERV,
                     .out = &send};
    if (mine) {
        m.in = &receive;
        m.end = ftrma_ranks();
        m.keep = from == MPI_IN_PLACE;
        if (m.keep)
            m.out = NULL;
    }
    return rc ? rc : run(&m);
}

int MPI_Gather(const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf,
               int recvcount, MPI_Datatype recvtype, int root, MPI_Comm comm)
{
    OURS_OR(PMPI_Gather(sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, root,
                        ftrma_comm(comm)));
    return gather(FTRMA_GATHER, sendbuf, sendcount, sendtype, recvbuf, NULL, NULL, recvcount,
                  recvtype, root);
}

int MPI_Gatherv(const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf,
                const int recvcounts[], const int displs[], MPI_Datatype recvtype, int root,
                MPI_Comm comm)
{
    OURS_OR(PMPI_Gatherv(sendbuf, sendcount, sendtype, recvbuf, recvcounts, displs, recvtype, root,
                         ftrma_comm(comm)));
    return gather(FTRMA_GATHERV, sendbuf, sendcount, sendtype, recvbuf, recvcounts, displs, 0,
                  recvtype, root);
}

static int scatter(int collective, const void *from, const int *counts, const int *displs,
                   int count, MPI_Datatype type, void *to, int to_count, MPI_Datatype to_type,
                   int root)
{
    int rc = bad_root(root);
    struct side send = {.base = (char *)(uintptr_t)from, .counts = counts, .displs = displs,
                        .count = count, .blocks = ftrma_ranks(), .type = type};
    struct side receive = {.base = to, .count = to_count, .blocks = 1, .type = to_type};
    struct move m = {.collective = collective, .root = root, .personal = 1, .in = &receive,
                     .uneven = collective == FTRMA_SCATTERV, .first = root, .end = root + 1};
    if (ftrma_rank() == root) {
        m.out = &send;
        m.keep = to == MPI_IN_PLACE;
        if (m.keep) {
            m.in = NULL;
            m.first = m.end;
        }
    }
    return rc ? rc : run(&m);
}

int MPI_Scatter(const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf,
                int recvcount, MPI_Datatype recvtype, int root, MPI_Comm comm)
{
    OURS_OR(PMPI_Scatter(sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, root,
                         ftrma_comm(comm)));
    return scatter(FTRMA_SCATTER, sendbuf, NULL, NULL, sendcount, sendtype, recvbuf, recvcount,
                   recvtype, root);
}

int MPI_Scatterv(const void *sendbuf, const int sendcounts[], const int displs[],
                 MPI_Datatype sendtype, void *recvbuf, int recvcount, MPI_Datatype recvtype,
                 int root, MPI_Comm comm)
{
    OURS_OR(PMPI_Scatterv(sendbuf, sendcounts, displs, sendtype, recvbuf, recvcount, recvtype,
                          root, ftrma_comm(comm)));
    return scatter(FTRMA_SCATTERV, sendbuf, sendcounts, displs, 0, sendtype, recvbuf, recvcount,
                   recvtype, root);
}

/* Gather to all members. A slot that sends in place sends its own block of the receiving side. */
static int allgather(int collective, const void *from, int count, MPI_Datatype type,
                     struct side *receive)
{
    struct side send = {.base = (char *)(uintptr_t)from, .count = count, .blocks = 1, .type = type};
    struct move m = {.collective = collective, .root = -1, .out = &send, .in = receive,
                     .end = ftrma_ranks(), .keep = from == MPI_IN_PLACE};
    if (m.keep) {
        int rc = ftrma_layout_of(receive->type, &receive->layout);
        if (rc)
            return ftrma_collective_fail(MPI_ERR_TYPE);
        send.base = receive->base == MPI_IN_PLACE ? MPI_IN_PLACE : block_at(receive, ftrma_rank());
        send.count = count_of(receive, ftrma_rank());
        send.type = receive->type;
    }
    return run(&m);
}

int MPI_Allgather(const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf,
                  int recvcount, MPI_Datatype recvtype, MPI_Comm comm)
{
    OURS_OR(PMPI_Allgather(sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype,
                           ftrma_comm(comm)));
    struct side receive = {.base = recvbuf, .count = recvcount, .blocks = ftrma_ranks(),
                           .type = recvtype};
    return allgather(FTRMA_ALLGATHER, sendbuf, sendcount, sendtype, &receive);
}

int MPI_Allgatherv(const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf,
                   const int recvcounts[], const int displs[], MPI_Datatype recvtype,
                   MPI_Comm comm)
{
    OURS_OR(PMPI_Allgatherv(sendbuf, sendcount, sendtype, recvbuf, recvcounts, displs, recvtype,
                            ftrma_comm(comm)));
    struct side receive = {.base = recvbuf, .counts = recvcounts, .displs = displs,
                           .blocks = ftrma_ranks(), .type = recvtype};
    return allgather(FTRMA_ALLGATHERV, sendbuf, sendcount, sendtype, &receive);
}

/* In place, the bytes that arrive overwrite bytes that are still to be sent. */
static int alltoall(int collective, struct side *send, struct side *receive)
{
    int in_place = send->base == MPI_IN_PLACE;
    if (in_place)
        *send = *receive;
    send->copied = in_place;
    struct move m = {.collective = collective, .root = -1, .personal = 1, .out = send,
                     .in = receive, .uneven = collective == FTRMA_ALLTOALLV, .end = ftrma_ranks(),
                     .keep = in_place};
    return run(&m);
}

int MPI_Alltoall(const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf,
                 int recvcount, MPI_Datatype recvtype, MPI_Comm comm)
{
    OURS_OR(PMPI_Alltoall(sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype,
                          ftrma_comm(comm)));
    struct side send = {.base = (char *)(uintptr_t)sendbuf, .count = sendcount,
                        .blocks = ftrma_ranks(), .type = sendtype};
    struct side receive = {.base = recvbuf, .count = recvcount, .blocks = ftrma_ranks(),
                           .type = recvtype};
    return alltoall(FTRMA_ALLTOALL, &send, &receive);
}

int MPI_Alltoallv(const void *sendbuf, const int sendcounts[], const int sdispls[],
                  MPI_Datatype sendtype, void *recvbuf, const int recvcounts[],
                  const int rdispls[], MPI_Datatype recvtype, MPI_Comm comm)
{
    OURS_OR(PMPI_Alltoallv(sendbuf, sendcounts, sdispls, sendtype, recvbuf, recvcounts, rdispls,
                           recvtype, ftrma_comm(comm)));
    struct side send = {.base = (char *)(uintptr_t)sendbuf, .counts = sendcounts,
                        .displs = sdispls, .blocks = ftrma_ranks(), .type = sendtype};
    struct side receive = {.base = recvbuf, .counts = recvcounts, .displs = rdispls,
                           .blocks = ftrma_ranks(), .type = recvtype};
    return alltoall(FTRMA_ALLTOALLV, &send, &receive);
}
