/* Communicators derived from the slots' world: the calls that make and free them.
 *
 * The members of one follow from the program alone (Dup, Create, Cart_create, Cart_sub) or from one
 * exchange, which is answered from the log in a replay (Split). So a replacement makes equal
 * communicators without the others, and finds their exchanges and windows by equal names.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "alarm.h"
#include "board.h"
#include "collective.h"
#include "event.h"
#include "nodes.h"
#include "opening.h"
#include "replay.h"
#include "revoke.h"
#include "world.h"

/* ---- making --------------------------------------------------------------------------------- */

static int fail(MPI_Comm handle, int class)
{
    PMPI_Comm_call_errhandler(handle, class);
    return class;
}

/* Make the backing communicator, or find in a replay that it was made. All members meet before they
   enter the library, since the library can wait for ever for a member that died before it came, or
   that has left this meeting because of a failure. */
static int make_backing_together(struct communicator *parent, struct communicator *c)
{
    struct ftrma_transfer t = {.collective = FTRMA_COMM_MAKE, .root = -1, .agrees = 1};
    int past = ftrma_event_clock.mode && !ftrma_replay_over();
    int error = ftrma_exchange_prepare(c, past);
    size_t chunk;
    c->ghost = past && error == -ENOENT;
    int rc = ftrma_opening_await(parent, &c->spec, c->ghost ? 0 : error);
    if (!rc)
        rc = ftrma_exchange_open(c, &chunk);
    if (!rc)
        rc = ftrma_transfer_run(&t);
    if (!rc && c->backing == MPI_COMM_NULL)
        c->backing = ftrma_take_pending(c->spec.id);
    if (!rc && !past)
        rc = ftrma_make_backing(c);
    t.agrees = 0;
    if (!rc) /* so that nobody goes on, and perhaps dies, while others still need the board */
        rc = ftrma_transfer_run(&t);
    return rc || c->backing == MPI_COMM_NULL ? rc : ftrma_copy_errhandler(c->handle, c->backing);
}

/* Make this slot's part of the communicator of `spec`, for which `handle` stands. */
static int make(struct communicator *parent, const struct ftrma_spec *spec, MPI_Comm handle,
                MPI_Comm *made)
{
    int slot, rc;
    *made = handle;
    if (spec->n == 1) { /* a replay repeats all that a slot does with itself, so the library's own
                           communicator will do */
        rc = ftrma_opening_await(parent, NULL, 0);
        if (rc || spec->ndims < 0)
            return rc;
        rc = PMPI_Cart_create(handle, spec->ndims, spec->dims, spec->periods, 0, made);
        return rc ? rc : PMPI_Comm_free(&handle);
    }
    struct communicator *c = calloc(1, sizeof *c);
    if (!c)
        return fail(parent->handle, MPI_ERR_NO_MEM);
    c->handle = handle;
    c->backing = MPI_COMM_NULL;
    c->spec = *spec;
    ftrma_my_role(&slot);
    while (c->me < spec->n && spec->slots[c->me] != slot)
        c->me++;
    rc = ftrma_derived_list(c);
    if (!rc)
        rc = make_backing_together(parent, c);
    if (!rc)
        return MPI_SUCCESS;
    *made = MPI_COMM_NULL;
    ftrma_derived_discard(c);
    return rc;
}

/* Make a communicator without attributes, as all calls but Dup do. */
static int make_fresh(struct communicator *parent, const struct ftrma_spec *spec, MPI_Comm *made)
{
    MPI_Comm handle;
    int rc = ftrma_make_handle(&handle);
    if (!rc)
        rc = ftrma_copy_errhandler(parent->handle, handle);
    return rc ? rc : make(parent, spec, handle, made);
}

/* Derive one number from two, so that no two communicators get an equal number. The steps are those
   of splitmix64 (Steele, Lea, Flood 2014). */
static uint64_t derive(uint64_t id, uint64_t from)
{
    uint64_t h = id * 0x9e3779b97f4a7c15ull + from + 1;
    for (int i = 0; i < 2; i++) {
        h += 0x9e3779b97f4a7c15ull;
        h = (h ^ h >> 30) * 0xbf58476d1ce4e5b9ull;
        h = (h ^ h >> 27) * 0x94d049bb133111ebull;
        h ^= h >> 31;
    }
    return h;
}

/* The number of the next communicator that is made of this one; all members make them in one
   order. */
static uint64_t next_child(struct communicator *parent)
{
    return derive(parent->spec.id, ++parent->children);
}

static int dup(struct communicator *parent, MPI_Info info, MPI_Comm *made)
{
    struct ftrma_spec spec = parent->spec;
    MPI_Comm handle;
    int rc = info == MPI_INFO_NULL ? PMPI_Comm_dup(parent->handle, &handle)
                                   : PMPI_Comm_dup_with_info(parent->handle, info, &handle);
    spec.id = next_child(parent);
    return rc ? rc : make(parent, &spec, handle, made);
}

struct bid {
    int32_t color, key;
};

static const struct bid *bids; /* the bids that by_key compares */

static int by_key(const void *a, const void *b)
{
    int x = *(const int32_t *)a, y = *(const int32_t *)b;
    return bids[x].key != bids[y].key ? (bids[x].key < bids[y].key ? -1 : 1) : x < y ? -1 : x > y;
}

static int split(struct communicator *parent, int color, int key, MPI_Comm *made)
{
    static pthread_mutex_t sorting = PTHREAD_MUTEX_INITIALIZER;
    struct bid mine = {color, key}, all[FTRMA_MAX_PROCS];
    struct ftrma_spec spec = {.ndims = -1};
    size_t chunk;
    int passed, rc = ftrma_exchange_open(parent, &chunk);
    if (!rc)
        rc = ftrma_gather_all(&mine, sizeof mine, all, 0, &passed);
    if (rc)
        return rc;
    uint64_t id = derive(next_child(parent), (uint64_t)(uint32_t)color);
    *made = MPI_COMM_NULL;
    if (color == MPI_UNDEFINED)
        return ftrma_opening_await(parent, NULL, 0);
    if (passed && ftrma_spec_find(id, &spec)) {
        ftrma_refuse("it splits a communicator between protect() and the place of its checkpoint, "
                     "and the result has one member or is freed again");
        return ftrma_code_unwind;
    }
    for (int r = 0; r < parent->spec.n && !passed; r++)
        if (all[r].color == color)
            spec.slots[spec.n++] = r;
    pthread_mutex_lock(&sorting);
    bids = all;
    if (!passed)
        qsort(spec.slots, (size_t)spec.n, sizeof *spec.slots, by_key);
    pthread_mutex_unlock(&sorting);
    for (int r = 0; r < spec.n && !passed; r++)
        spec.slots[r] = parent->spec.slots[spec.slots[r]];
    spec.id = id;
    return make_fresh(parent, &spec, made);
}

/* ---- the calls ------------------------------------------------------------------------------ */

/* The beginning of each call: on the library's own communicators it calls the library. */
#define DERIVED_OR(native)                                                                        \
    ftrma_failpoint(FTRMA_FAILPOINT_CALL);                                                        \
    struct communicator *parent = ftrma_communicator(comm);                                       \
    if (!parent) {                                                                                \
        ftrma_foreign_on(comm, __func__);                                                         \
        int native_rc = GUARDED(native);                                                          \
        if (!native_rc)                                                                           \
            ftrma_register_foreign(*made, __func__);                                              \
        return native_rc;                                                                         \
    }                                                                                             \
    if (unlikely(ftrma_finalized))                                                                \
        return ftrma_after_finalize();                                                            \
    if (ftrma_unwinding())                                                                        \
        return ftrma_code_unwind

int MPI_Comm_dup(MPI_Comm comm, MPI_Comm *made)
{
    DERIVED_OR(PMPI_Comm_dup(ftrma_comm(comm), made));
    return dup(parent, MPI_INFO_NULL, made);
}

int MPI_Comm_dup_with_info(MPI_Comm comm, MPI_Info info, MPI_Comm *made)
{
    DERIVED_OR(PMPI_Comm_dup_with_info(ftrma_comm(comm), info, made));
    return dup(parent, info, made);
}

int MPI_Comm_split(MPI_Comm comm, int color, int key, MPI_Comm *made)
{
    DERIVED_OR(PMPI_Comm_split(ftrma_comm(comm), color, key, made));
    if (color < 0 && color != MPI_UNDEFINED)
        return fail(parent->handle, MPI_ERR_ARG);
    return split(parent, color, key, made);
}

/* Split by node, the only split that ftrma implements; the library has others. */
int MPI_Comm_split_type(MPI_Comm comm, int type, int key, MPI_Info info, MPI_Comm *made)
{
    DERIVED_OR(PMPI_Comm_split_type(ftrma_comm(comm), type, key, info, made));
    int all[FTRMA_MAX_PROCS], passed, ours = 1;
    size_t chunk;
    int asked = ftrma_exchange_open(parent, &chunk);
    if (!asked)
        asked = ftrma_gather_all(&type, sizeof type, all, 0, &passed);
    if (asked)
        return asked;
    for (int r = 0; r < parent->spec.n && !passed; r++)
        ours &= all[r] == MPI_COMM_TYPE_SHARED || all[r] == MPI_UNDEFINED;
    if (ours)
        return split(parent, type == MPI_UNDEFINED ? type : ftrma_node_here(), key, made);
    ftrma_foreign(__func__);
    int rc = GUARDED(PMPI_Comm_split_type(ftrma_comm(comm), type, key, info, made));
    if (!rc)
        ftrma_register_foreign(*made, __func__);
    return rc;
}

int MPI_Comm_create(MPI_Comm comm, MPI_Group group, MPI_Comm *made)
{
    DERIVED_OR(PMPI_Comm_create(ftrma_comm(comm), group, made));
    struct ftrma_spec spec = {.ndims = -1};
    int slot, rc = PMPI_Group_size(group, &spec.n);
    if (rc || spec.n > parent->spec.n)
        return fail(parent->handle, MPI_ERR_GROUP);
    uint64_t id = next_child(parent);
    ftrma_my_role(&slot);
    for (int r = 0; r < spec.n; r++) {
        spec.slots[r] = ftrma_slot_in(group, r);
        if (!ftrma_is_member(&parent->spec, spec.slots[r]))
            return fail(parent->handle, MPI_ERR_GROUP);
        id = derive(id, (uint64_t)spec.slots[r]);
    }
    spec.id = id;
    *made = MPI_COMM_NULL;
    return ftrma_is_member(&spec, slot) ? make_fresh(parent, &spec, made)
                                        : ftrma_opening_await(parent, NULL, 0);
}

/* 1 if the arguments make a topology; the library refuses all others. */
static int makes_grid(int n, int ndims, const int *dims)
{
    int64_t all = 1;
    for (int d = 0; d < ndims && all > 0 && all <= n; d++)
        all *= dims[d] > 0 ? dims[d] : 0;
    return ndims >= 0 && ndims <= FTRMA_MAX_DIMS && all > 0 && all <= n ? (int)all : 0;
}

int MPI_Cart_create(MPI_Comm comm, int ndims, const int dims[], const int periods[], int reorder,
                    MPI_Comm *made)
{
    DERIVED_OR(PMPI_Cart_create(ftrma_comm(comm), ndims, dims, periods, reorder, made));
    int n = makes_grid(parent->spec.n, ndims, dims);
    if (!n) {
        ftrma_foreign(__func__);
        int rc = GUARDED(PMPI_Cart_create(ftrma_comm(comm), ndims, dims, periods, reorder, made));
        if (!rc)
            ftrma_register_foreign(*made, __func__);
        return rc;
    }
    struct ftrma_spec spec = {.id = next_child(parent), .n = n, .ndims = ndims};
    memcpy(spec.dims, dims, (size_t)ndims * sizeof *dims);
    memcpy(spec.periods, periods, (size_t)ndims * sizeof *periods);
    memcpy(spec.slots, parent->spec.slots, (size_t)n * sizeof *spec.slots);
    *made = MPI_COMM_NULL;
    return parent->me < n ? make_fresh(parent, &spec, made) : ftrma_opening_await(parent, NULL, 0);
}

int MPI_Cart_sub(MPI_Comm comm, const int remain[], MPI_Comm *made)
{
    DERIVED_OR(PMPI_Cart_sub(ftrma_comm(comm), remain, made));
    const struct ftrma_spec *p = &parent->spec;
    if (p->ndims < 0)
        return fail(parent->handle, MPI_ERR_TOPOLOGY);
    struct ftrma_spec spec = {.id = next_child(parent)};
    for (int d = 0; d < p->ndims; d++)
        if (remain[d]) {
            spec.dims[spec.ndims] = p->dims[d];
            spec.periods[spec.ndims++] = p->periods[d];
        }
    for (int r = 0; r < p->n; r++) {
        int same = 1, mine = parent->me, theirs = r; /* ranks are in row-major order; counted
                                                        from the last dimension */
        for (int d = p->ndims - 1; d >= 0; mine /= p->dims[d], theirs /= p->dims[d], d--)
            same &= remain[d] || mine % p->dims[d] == theirs % p->dims[d];
        if (same)
            spec.slots[spec.n++] = p->slots[r];
    }
    spec.id = derive(spec.id, (uint64_t)spec.slots[0]);
    return make_fresh(parent, &spec, made);
}

/* 1 if this slot is the first of the members on this node. */
static int is_first_here(const struct communicator *c)
{
    int first = 0;
    while (ftrma_node_of(c->spec.slots[first]) != ftrma_node_here())
        first++;
    return c->me == first;
}

/* Free a communicator. No member goes on before all have come here, so nobody needs the board any
   more. */
static int release(MPI_Comm *comm)
{
    struct communicator *c = ftrma_derived(*comm);
    size_t chunk;
    if (unlikely(ftrma_finalized))
        return ftrma_after_finalize();
    struct ftrma_transfer t = {.collective = FTRMA_COMM_FREE, .root = -1};
    int rc = ftrma_exchange_open(c, &chunk);
    if (!rc)
        rc = ftrma_transfer_run(&t);
    if (rc)
        return rc;
    if (is_first_here(c))
        ftrma_board_remove(c->spec.id);
    if (c->backing != MPI_COMM_NULL && !ftrma_pending()) {
        MPI_Comm backing = c->backing;
        ftrma_unregister_comm(backing);
        ftrma_enter_call();
        PMPI_Comm_free(&backing);
        ftrma_leave_call();
    }
    rc = PMPI_Comm_free(comm); /* callbacks that delete attributes still find it */
    ftrma_derived_discard(c);
    return rc;
}

static int is_derived(MPI_Comm comm)
{
    ftrma_failpoint(FTRMA_FAILPOINT_CALL);
    return ftrma_nderived && ftrma_derived(comm);
}

int MPI_Comm_free(MPI_Comm *comm)
{
    if (is_derived(*comm))
        return release(comm);
    ftrma_foreign_on(*comm, __func__);
    ftrma_unregister_comm(*comm);
    ftrma_forget_stale(*comm);
    return GUARDED(PMPI_Comm_free(comm));
}

int MPI_Comm_disconnect(MPI_Comm *comm)
{
    if (is_derived(*comm))
        return release(comm);
    ftrma_foreign_on(*comm, __func__);
    ftrma_unregister_comm(*comm);
    return GUARDED(PMPI_Comm_disconnect(comm));
}

int MPI_Comm_size(MPI_Comm comm, int *size)
{
    const struct communicator *c = ftrma_communicator(comm);
    if (!c)
        return PMPI_Comm_size(ftrma_comm(comm), size);
    *size = c->spec.n;
    return MPI_SUCCESS;
}

int MPI_Comm_rank(MPI_Comm comm, int *rank)
{
    const struct communicator *c = ftrma_communicator(comm);
    if (!c)
        return PMPI_Comm_rank(ftrma_comm(comm), rank);
    *rank = c->me;
    return MPI_SUCCESS;
}

/* The groups are not compared: for the library (Open MPI 5.0) a process with which it has
   communicated differs from the same process before that, which matters for a replacement. */
int MPI_Comm_compare(MPI_Comm one, MPI_Comm other, int *result)
{
    const struct communicator *a = ftrma_communicator(one), *b = ftrma_communicator(other);
    *result = MPI_IDENT;
    if (a && a == b)
        return MPI_SUCCESS;
    if (!a || !b)
        return PMPI_Comm_compare(ftrma_comm(one), ftrma_comm(other), result);
    int found = 0, n = a->spec.n;
    for (int i = 0; i < n; i++)
        found += ftrma_is_member(&b->spec, a->spec.slots[i]);
    int same = found == n && b->spec.n == n;
    size_t bytes = (size_t)n * sizeof *a->spec.slots;
    *result = !same ? MPI_UNEQUAL
              : memcmp(a->spec.slots, b->spec.slots, bytes) ? MPI_SIMILAR : MPI_CONGRUENT;
    return MPI_SUCCESS;
}

/* ---- attributes ----------------------------------------------------------------------------- */

/* 1 for the attributes that the standard attaches to MPI_COMM_WORLD alone. */
static int is_predefined(int keyval)
{
    return keyval == MPI_TAG_UB || keyval == MPI_HOST || keyval == MPI_IO
           || keyval == MPI_WTIME_IS_GLOBAL || keyval == MPI_UNIVERSE_SIZE
           || keyval == MPI_LASTUSEDCODE || keyval == MPI_APPNUM;
}

int MPI_Comm_get_attr(MPI_Comm comm, int keyval, void *value, int *flag)
{
    return PMPI_Comm_get_attr(is_predefined(keyval) ? comm : ftrma_handle(comm), keyval, value,
                              flag);
}

/* This returns the group even if the backing communicator is deferred. */
int MPI_Comm_group(MPI_Comm comm, MPI_Group *group)
{
    struct communicator *c = ftrma_backing_deferred ? ftrma_communicator(comm) : NULL;
    return c ? ftrma_group_of(c, group) : PMPI_Comm_group(ftrma_comm(comm), group);
}
