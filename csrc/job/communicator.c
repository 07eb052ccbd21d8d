/* The program's communicators that ftrma implements: the list of them, and their backing
   communicators.
 *
 * A backing communicator cannot be made by one side alone. If a failure comes while it is made, or
 * later, the repair makes it. All slots, the replacement among them, then make the backing
 * communicators of all listed communicators (board.c), in one order, however far each slot has come
 * in its program.
 */
#include "communicator.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "alarm.h"
#include "board.h"
#include "control.h"
#include "errors.h"
#include "event_clock.h"
#include "interrupt.h"
#include "revoke.h"

MPI_Comm ftrma_user_world = MPI_COMM_NULL;
int ftrma_backing_deferred;
struct communicator ftrma_world = {.handle = MPI_COMM_NULL, .backing = MPI_COMM_NULL};
int ftrma_nderived;

static struct communicator **derived;
static int room;
static struct communicator *retired; /* derived communicators of the last attempt, linked by
                                        `next` */
static MPI_Comm *stale;              /* handles of earlier attempts */
int ftrma_nstale;
MPI_Comm ftrma_world_handle = MPI_COMM_NULL;
static int is_stale(MPI_Comm comm);
/* Backing communicators that a repair has made, and whose calls this process has not come to
   yet. */
static struct pending {
    uint64_t id;
    MPI_Comm backing;
} *pending;
static size_t npending;
static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;

/* ---- finding -------------------------------------------------------------------------------- */

struct communicator *ftrma_derived(MPI_Comm handle)
{
    struct communicator *found = NULL;
    pthread_mutex_lock(&guard);
    for (int i = ftrma_nderived - 1; i >= 0 && !found; i--)
        if (derived[i]->handle == handle)
            found = derived[i];
    pthread_mutex_unlock(&guard);
    return found;
}

struct communicator *ftrma_communicator(MPI_Comm comm)
{
    if (ftrma_user_world == MPI_COMM_NULL)
        return NULL;
    if (comm == MPI_COMM_WORLD || comm == ftrma_world_handle)
        return &ftrma_world;
    return ftrma_nderived ? ftrma_derived(comm) : NULL;
}

MPI_Comm ftrma_backing(MPI_Comm comm)
{
    struct communicator *c = ftrma_derived(comm);
    if (!c)
        return is_stale(comm) ? MPI_COMM_NULL : comm;
    if (c->backing == MPI_COMM_NULL && ftrma_backing_deferred && !ftrma_reconnect())
        return MPI_COMM_NULL;
    if (c->backing == MPI_COMM_NULL && ftrma_event_clock.mode)
        ftrma_refuse("its program asks a communicator that all have freed since");
    return c->backing != MPI_COMM_NULL ? c->backing : c->handle;
}

MPI_Comm ftrma_handle(MPI_Comm comm)
{
    MPI_Comm world = ftrma_world.handle;
    return comm == MPI_COMM_WORLD && world != MPI_COMM_NULL ? world : comm;
}

int ftrma_is_alone(MPI_Comm comm)
{
    int inter = 1, n = 0;
    if (comm == MPI_COMM_SELF || comm == MPI_COMM_NULL)
        return 1;
    return !ftrma_communicator(comm) && !PMPI_Comm_test_inter(comm, &inter) && !inter
           && !PMPI_Comm_size(comm, &n) && n == 1;
}

void ftrma_foreign_on(MPI_Comm comm, const char *call)
{
    if (ftrma_event_clock.on && !ftrma_is_alone(comm))
        ftrma_foreign(call);
}

void ftrma_register_foreign(MPI_Comm comm, const char *call)
{
    ftrma_register_made(comm, ftrma_is_alone(comm) ? NULL : call);
}

int ftrma_derived_list(struct communicator *c)
{
    int rc = MPI_SUCCESS;
    pthread_mutex_lock(&guard);
    if (ftrma_nderived == room) {
        int more = room ? 2 * room : 16;
        struct communicator **grown = realloc(derived, (size_t)more * sizeof(*grown));
        if (grown) {
            derived = grown;
            room = more;
        }
    }
    if (ftrma_nderived < room)
        derived[ftrma_nderived++] = c;
    else
        rc = MPI_ERR_NO_MEM;
    pthread_mutex_unlock(&guard);
    return rc;
}

static void free_communicator(struct communicator *c)
{
    ftrma_board_close(c);
    free(c->others);
    free(c);
}

void ftrma_derived_discard(struct communicator *c)
{
    int listed = 0;
    pthread_mutex_lock(&guard);
    for (int i = 0; i < ftrma_nderived && !listed; i++)
        if (derived[i] == c) {
            derived[i] = derived[--ftrma_nderived];
            listed = 1;
        }
    pthread_mutex_unlock(&guard);
    if (listed) /* otherwise a rollback has put it aside, and frees it */
        free_communicator(c);
}

/* ---- the library's part --------------------------------------------------------------------- */

/* PMPI_Comm_split copies no attributes, unlike PMPI_Comm_dup. */
int ftrma_make_handle(MPI_Comm *handle)
{
    return PMPI_Comm_split(MPI_COMM_SELF, 0, 0, handle);
}

int ftrma_copy_errhandler(MPI_Comm from, MPI_Comm to)
{
    MPI_Errhandler handler;
    int rc = PMPI_Comm_get_errhandler(from, &handler);
    if (!rc)
        rc = PMPI_Comm_set_errhandler(to, handler);
    return rc ? rc : PMPI_Errhandler_free(&handler);
}

static void describe_world(struct communicator *w)
{
    w->spec.id = FTRMA_WORLD_ID;
    w->spec.n = (int)ftrma_ctl->nslots;
    w->spec.ndims = -1;
    for (int s = 0; s < w->spec.n; s++)
        w->spec.slots[s] = s;
    free(w->others); /* the slots may be on other nodes now */
    w->others = NULL;
    ftrma_my_role(&w->me); /* a slot's process keeps its slot */
}

static int make_world_handle(struct communicator *w)
{
    int rc = ftrma_make_handle(&w->handle);
    ftrma_world_handle = w->handle;
    if (!rc)
        rc = PMPI_Comm_set_errhandler(w->handle, MPI_ERRORS_RETURN);
    return rc ? rc : PMPI_Comm_set_name(w->handle, "MPI_COMM_WORLD");
}

int ftrma_world_set(MPI_Comm backing)
{
    struct communicator *w = &ftrma_world;
    describe_world(w);
    w->backing = ftrma_user_world = backing;
    ftrma_backing_deferred = 0;
    ftrma_world_handle = w->handle;
    if (w->handle == MPI_COMM_NULL)
        return make_world_handle(w);
    return ftrma_copy_errhandler(w->handle, backing);
}

int ftrma_world_defer(MPI_Comm nobody)
{
    struct communicator *w = &ftrma_world;
    describe_world(w);
    w->backing = MPI_COMM_NULL;
    ftrma_user_world = nobody;
    ftrma_backing_deferred = 1;
    ftrma_world_handle = w->handle;
    return w->handle != MPI_COMM_NULL ? MPI_SUCCESS : make_world_handle(w);
}

int ftrma_reconnect(void)
{
    while (ftrma_backing_deferred) {
        if (ftrma_unwinding()) /* not during a repair: others may have read `connect` in it
                                  already */
            return 0;
        if (!ftrma_backing_deferred)
            break;
        STORE(&ftrma_ctl->connect, 1);
        ftrma_raise(ftrma_round);
    }
    return 1;
}

#define AGREED UINT64_MAX /* in place of a round: all members make the call, although something has
                             failed since */

/* 1 if a failure is newer than this round. The watching thread has revoked the communicators that
   it found by then, so a call that begins now would not return. */
static int failed_since(uint64_t round)
{
    return round != AGREED && LOAD(&ftrma_ctl->alarm) != round;
}

/* Add the topology. `plain`, the communicator without it, is registered for revocation as long as a
   member could wait in it. */
static int add_topology(const struct ftrma_spec *spec, uint64_t round, MPI_Comm plain,
                        MPI_Comm *backing)
{
    *backing = plain;
    if (spec->ndims < 0)
        return MPI_SUCCESS;
    ftrma_register_comm(plain);
    int rc = failed_since(round) ? MPI_ERR_OTHER
                                 : PMPI_Cart_create(plain, spec->ndims, spec->dims, spec->periods,
                                                    0, backing);
    if (!rc)
        rc = PMPI_Comm_set_errhandler(*backing, MPI_ERRORS_RETURN);
    ftrma_unregister_comm(plain);
    return rc ? rc : PMPI_Comm_free(&plain);
}

static int create(const struct ftrma_spec *spec, uint64_t round, MPI_Comm *backing)
{
    MPI_Group world, members = MPI_GROUP_NULL;
    MPI_Comm plain = MPI_COMM_NULL;
    int rc = failed_since(round) ? MPI_ERR_OTHER : PMPI_Comm_group(ftrma_user_world, &world);
    if (rc)
        return rc;
    rc = PMPI_Group_incl(world, spec->n, spec->slots, &members);
    if (!rc)
        rc = PMPI_Comm_create_group(ftrma_user_world, members, (int)(spec->id >> 8 & 0x7fff),
                                    &plain);
    if (!rc)
        rc = PMPI_Comm_set_errhandler(plain, MPI_ERRORS_RETURN);
    if (members != MPI_GROUP_NULL)
        PMPI_Group_free(&members);
    PMPI_Group_free(&world);
    return rc ? rc : add_topology(spec, round, plain, backing);
}

/* Let the library make a communicator of the members. The call is collective over them, as long as
   nobody dies after `round`. */
static int make_backing(const struct ftrma_spec *spec, uint64_t round, MPI_Comm *backing)
{
    int32_t *making = &ftrma_ctl->proc[ftrma_me].making;
    __atomic_add_fetch(making, 1, __ATOMIC_SEQ_CST);
    int rc = create(spec, round, backing);
    __atomic_sub_fetch(making, 1, __ATOMIC_SEQ_CST);
    return rc;
}

static int set_backing(struct communicator *c, MPI_Comm backing)
{
    c->backing = backing;
    ftrma_register_comm(backing);
    return ftrma_copy_errhandler(c->handle, backing);
}

int ftrma_agree(struct communicator *c, int proposal)
{
    int32_t verdict = 0;
    if (__atomic_compare_exchange_n(&c->board->verdict, &verdict, proposal, 0, __ATOMIC_SEQ_CST,
                                    __ATOMIC_SEQ_CST))
        return proposal;
    return verdict;
}

/* The backing communicator is made here, or by a repair meanwhile. The members agree about the
   first try alone. */
int ftrma_make_backing(struct communicator *c)
{
    for (int tries = 0; c->backing == MPI_COMM_NULL && !ftrma_backing_deferred; tries++) {
        MPI_Comm backing;
        int proposal = ftrma_pending() ? FTRMA_STAY_OUT : FTRMA_GO_IN;
        int agreed = !tries && !ftrma_stale() && ftrma_can_agree(c)
                     && ftrma_agree(c, proposal) == FTRMA_GO_IN;
        if (!agreed && ftrma_unwinding())
            return ftrma_code_unwind;
        if (c->backing != MPI_COMM_NULL)
            break;
        ftrma_enter_call();
        int rc = make_backing(&c->spec, agreed ? AGREED : ftrma_round, &backing);
        ftrma_leave_call();
        if (!rc)
            return set_backing(c, backing);
        rc = ftrma_judge(rc);
        if (rc != ftrma_code_unwind)
            return rc;
    }
    return MPI_SUCCESS;
}

MPI_Comm ftrma_take_pending(uint64_t id)
{
    for (size_t i = 0; i < npending; i++)
        if (pending[i].id == id) {
            MPI_Comm backing = pending[i].backing;
            pending[i] = pending[--npending];
            return backing;
        }
    return MPI_COMM_NULL;
}

int ftrma_is_member(const struct ftrma_spec *spec, int slot)
{
    for (int i = 0; i < spec->n; i++)
        if (spec->slots[i] == slot)
            return 1;
    return 0;
}

static int rebuild(const struct ftrma_spec *spec, uint64_t round)
{
    MPI_Comm backing;
    int rc = make_backing(spec, round, &backing);
    for (int i = 0; i < ftrma_nderived && !rc; i++)
        if (derived[i]->spec.id == spec->id)
            return set_backing(derived[i], backing);
    struct pending *grown = rc ? NULL : realloc(pending, (npending + 1) * sizeof *pending);
    if (!grown)
        return rc ? rc : MPI_ERR_NO_MEM;
    pending = grown;
    pending[npending++] = (struct pending){spec->id, backing};
    ftrma_register_comm(backing);
    return MPI_SUCCESS;
}

int ftrma_derived_rebuild(uint64_t round)
{
    struct ftrma_spec *specs;
    size_t n;
    int slot, rc = ftrma_specs(&specs, &n) ? MPI_ERR_OTHER : MPI_SUCCESS;
    ftrma_my_role(&slot);
    for (size_t i = 0; i < n && !rc; i++)
        if (ftrma_is_member(&specs[i], slot))
            rc = rebuild(&specs[i], round);
    free(specs);
    return rc;
}

void ftrma_derived_forget(void)
{
    for (int i = 0; i < ftrma_nderived; i++)
        derived[i]->backing = MPI_COMM_NULL;
    npending = 0;
    ftrma_world.backing = MPI_COMM_NULL;
}

/* Put all derived communicators aside. A call, perhaps of another thread, may still use one, so
   their memory is freed when the program is entered anew. Their handles stay known, since for the
   library a handle has this process as its only member, and a program that has kept one must not
   use it as such. */
static void retire_all(void)
{
    pthread_mutex_lock(&guard);
    MPI_Comm *grown = realloc(stale, (size_t)(ftrma_nstale + ftrma_nderived + 1) * sizeof *grown);
    stale = grown ? grown : stale;
    while (ftrma_nderived) {
        struct communicator *c = derived[--ftrma_nderived];
        if (grown)
            stale[ftrma_nstale++] = c->handle;
        c->next = retired;
        retired = c;
    }
    pthread_mutex_unlock(&guard);
}

void ftrma_comms_free_retired(void)
{
    while (retired) {
        struct communicator *next = retired->next;
        free_communicator(retired);
        retired = next;
    }
}

void ftrma_forget_stale(MPI_Comm comm)
{
    pthread_mutex_lock(&guard);
    for (int i = 0; i < ftrma_nstale; i++)
        if (stale[i] == comm)
            stale[i--] = stale[--ftrma_nstale];
    pthread_mutex_unlock(&guard);
}

static int is_stale(MPI_Comm comm)
{
    int found = 0;
    pthread_mutex_lock(&guard);
    for (int i = 0; i < ftrma_nstale && !found; i++)
        found = stale[i] == comm;
    pthread_mutex_unlock(&guard);
    return found;
}

void ftrma_comms_rewind(void)
{
    struct communicator *w = &ftrma_world;
    ftrma_derived_forget();
    w->backing = ftrma_backing_deferred ? MPI_COMM_NULL : ftrma_user_world;
    retire_all();
    w->exchanges = w->children = w->windows = 0;
    /* Every member clears all arrivals on the board of its node, since members on other nodes
       cannot do so, and nobody arrives again before all have cleared them. */
    for (int m = 0; !ftrma_board_find(w) && m < w->spec.n; m++)
        STORE(&w->words[m].arrived, 0);
    w->handle = MPI_COMM_NULL;
    if (ftrma_backing_deferred)
        ftrma_world_defer(ftrma_user_world);
    else
        ftrma_world_set(w->backing);
    ftrma_foreign_later(NULL);
}

/* ---- counters ------------------------------------------------------------------------------- */

#define COUNTS 4 /* words that are saved for each communicator */

static struct communicator *numbered(int i)
{
    return i < 0 ? &ftrma_world : i < ftrma_nderived ? derived[i] : NULL;
}

uint64_t ftrma_comms_save(uint64_t *counts, uint64_t words)
{
    struct communicator *c;
    uint64_t at = 0;
    for (int i = -1; (c = numbered(i)); i++, at += COUNTS)
        if (at + COUNTS <= words) {
            const uint64_t now[COUNTS] = {c->spec.id, c->exchanges, c->children, c->windows};
            memcpy(counts + at, now, sizeof now);
        }
    return at;
}

int ftrma_comms_load(const uint64_t *counts, uint64_t words)
{
    for (uint64_t at = 0; at + COUNTS <= words; at += COUNTS) {
        struct communicator *c;
        int i = -1;
        while ((c = numbered(i)) && c->spec.id != counts[at])
            i++;
        if (!c)
            return -1;
        c->exchanges = counts[at + 1];
        c->children = counts[at + 2];
        c->windows = counts[at + 3];
    }
    return 0;
}
