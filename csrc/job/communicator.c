/* The program's communicators that are ours: the list of them, and the library's part of each.
 *
 * That part cannot be made by one side alone.  A failure while it is being made, or later, is mended in
 * the repair: all slots, the replacement among them, make the live communicators of all that are
 * listed (board.c), in one order, whatever each has come to by then.
 */
#include "comm.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "alarm.h"
#include "control.h"
#include "errors.h"
#include "interrupt.h"
#include "revoke.h"
#include "tape.h"

MPI_Comm ftrma_user_world = MPI_COMM_NULL;
int ftrma_lapsed;
struct communicator ftrma_world = {.face = MPI_COMM_NULL, .live = MPI_COMM_NULL};
int ftrma_nderived;

static struct communicator **derived;
static int room;
static struct communicator *retired; /* of the attempt before, by `next` */
static MPI_Comm *stale;              /* handles of earlier attempts */
int ftrma_nstale;
MPI_Comm ftrma_world_face = MPI_COMM_NULL;
static int is_stale(MPI_Comm comm);
/* Made in a repair for a communicator that this process has not come to yet. */
static struct pending {
    uint64_t id;
    MPI_Comm live;
} *pending;
static size_t npending;
static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;

/* ---- finding -------------------------------------------------------------------------------- */

struct communicator *ftrma_derived(MPI_Comm face)
{
    struct communicator *found = NULL;
    pthread_mutex_lock(&guard);
    for (int i = ftrma_nderived - 1; i >= 0 && !found; i--)
        if (derived[i]->face == face)
            found = derived[i];
    pthread_mutex_unlock(&guard);
    return found;
}

struct communicator *ftrma_communicator(MPI_Comm comm)
{
    if (ftrma_user_world == MPI_COMM_NULL)
        return NULL;
    if (comm == MPI_COMM_WORLD || comm == ftrma_world_face)
        return &ftrma_world;
    return ftrma_nderived ? ftrma_derived(comm) : NULL;
}

MPI_Comm ftrma_live(MPI_Comm comm)
{
    struct communicator *c = ftrma_derived(comm);
    if (!c)
        return is_stale(comm) ? MPI_COMM_NULL : comm;
    if (c->live == MPI_COMM_NULL && ftrma_lapsed && !ftrma_reconnect())
        return MPI_COMM_NULL;
    if (c->live == MPI_COMM_NULL && ftrma_tape.mode)
        ftrma_refuse("its program asks a communicator that all have freed since");
    return c->live != MPI_COMM_NULL ? c->live : c->face;
}

MPI_Comm ftrma_face(MPI_Comm comm)
{
    return comm == MPI_COMM_WORLD && ftrma_world.face != MPI_COMM_NULL ? ftrma_world.face : comm;
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
    if (ftrma_tape.on && !ftrma_is_alone(comm))
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

static void bury(struct communicator *c)
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
    if (listed) /* else a rollback has put it aside */
        bury(c);
}

/* ---- the library's part --------------------------------------------------------------------- */

/* PMPI_Comm_split takes no attributes along. */
int ftrma_fresh_face(MPI_Comm *face)
{
    return PMPI_Comm_split(MPI_COMM_SELF, 0, 0, face);
}

/* The error handler. */
int ftrma_inherit(MPI_Comm from, MPI_Comm to)
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

static int make_face(struct communicator *w)
{
    int rc = ftrma_fresh_face(&w->face);
    ftrma_world_face = w->face;
    if (!rc)
        rc = PMPI_Comm_set_errhandler(w->face, MPI_ERRORS_RETURN);
    return rc ? rc : PMPI_Comm_set_name(w->face, "MPI_COMM_WORLD");
}

int ftrma_world_set(MPI_Comm live)
{
    struct communicator *w = &ftrma_world;
    describe_world(w);
    w->live = ftrma_user_world = live;
    ftrma_lapsed = 0;
    ftrma_world_face = w->face;
    return w->face != MPI_COMM_NULL ? ftrma_inherit(w->face, live) : make_face(w);
}

int ftrma_world_lapse(MPI_Comm nobody)
{
    struct communicator *w = &ftrma_world;
    describe_world(w);
    w->live = MPI_COMM_NULL;
    ftrma_user_world = nobody;
    ftrma_lapsed = 1;
    ftrma_world_face = w->face;
    return w->face != MPI_COMM_NULL ? MPI_SUCCESS : make_face(w);
}

int ftrma_reconnect(void)
{
    while (ftrma_lapsed) {
        if (ftrma_unwinding()) /* not amid a repair, which others may have read it in already */
            return 0;
        if (!ftrma_lapsed)
            break;
        STORE(&ftrma_ctl->connect, 1);
        ftrma_raise(ftrma_round);
    }
    return 1;
}

#define AGREED UINT64_MAX /* in place of a round: all members go in, whatever has failed since */

/* A failure that is newer than what is being done: the watching thread has revoked what it found, and
   what is begun now would not come back. */
static int failed_since(uint64_t round)
{
    return round != AGREED && LOAD(&ftrma_ctl->alarm) != round;
}

/* With its topology; `plain`, without, is registered as long as somebody could wait in it. */
static int add_topology(const struct ftrma_spec *spec, uint64_t round, MPI_Comm plain,
                        MPI_Comm *live)
{
    *live = plain;
    if (spec->ndims < 0)
        return MPI_SUCCESS;
    ftrma_register_comm(plain);
    int rc = failed_since(round) ? MPI_ERR_OTHER
                                 : PMPI_Cart_create(plain, spec->ndims, spec->dims, spec->periods,
                                                    0, live);
    if (!rc)
        rc = PMPI_Comm_set_errhandler(*live, MPI_ERRORS_RETURN);
    ftrma_unregister_comm(plain);
    return rc ? rc : PMPI_Comm_free(&plain);
}

static int create(const struct ftrma_spec *spec, uint64_t round, MPI_Comm *live)
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
    return rc ? rc : add_topology(spec, round, plain, live);
}

/* Of these members; collective over them, as long as nobody dies after `round`. */
static int make_live(const struct ftrma_spec *spec, uint64_t round, MPI_Comm *live)
{
    int32_t *making = &ftrma_ctl->proc[ftrma_me].making;
    __atomic_add_fetch(making, 1, __ATOMIC_SEQ_CST);
    int rc = create(spec, round, live);
    __atomic_sub_fetch(making, 1, __ATOMIC_SEQ_CST);
    return rc;
}

static int set_live(struct communicator *c, MPI_Comm live)
{
    c->live = live;
    ftrma_register_comm(live);
    return ftrma_inherit(c->face, live);
}

int ftrma_agree(struct communicator *c, int proposal)
{
    int32_t verdict = 0;
    if (__atomic_compare_exchange_n(&c->board->verdict, &verdict, proposal, 0, __ATOMIC_SEQ_CST,
                                    __ATOMIC_SEQ_CST))
        return proposal;
    return verdict;
}

/* Whether it comes from here or from a repair, in the end it is there.  What was agreed on is about the
   first try. */
int ftrma_enliven(struct communicator *c)
{
    for (int tries = 0; c->live == MPI_COMM_NULL && !ftrma_lapsed; tries++) {
        MPI_Comm live;
        int proposal = ftrma_pending() ? FTRMA_STAY_OUT : FTRMA_GO_IN;
        int agreed = !tries && !ftrma_stale() && ftrma_can_agree(c)
                     && ftrma_agree(c, proposal) == FTRMA_GO_IN;
        if (!agreed && ftrma_unwinding())
            return ftrma_code_unwind;
        if (c->live != MPI_COMM_NULL)
            break;
        ftrma_enter_call();
        int rc = make_live(&c->spec, agreed ? AGREED : ftrma_round, &live);
        ftrma_leave_call();
        if (!rc)
            return set_live(c, live);
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
            MPI_Comm live = pending[i].live;
            pending[i] = pending[--npending];
            return live;
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
    MPI_Comm live;
    int rc = make_live(spec, round, &live);
    for (int i = 0; i < ftrma_nderived && !rc; i++)
        if (derived[i]->spec.id == spec->id)
            return set_live(derived[i], live);
    struct pending *grown = rc ? NULL : realloc(pending, (npending + 1) * sizeof *pending);
    if (!grown)
        return rc ? rc : MPI_ERR_NO_MEM;
    pending = grown;
    pending[npending++] = (struct pending){spec->id, live};
    ftrma_register_comm(live);
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
        derived[i]->live = MPI_COMM_NULL;
    npending = 0;
    ftrma_world.live = MPI_COMM_NULL;
}

/* Some call, perhaps of another thread, is on one of them yet: their memory goes when the program is
   entered anew.  Their handles stay known, since who has kept one must not find itself alone in it. */
static void retire_all(void)
{
    pthread_mutex_lock(&guard);
    MPI_Comm *grown = realloc(stale, (size_t)(ftrma_nstale + ftrma_nderived + 1) * sizeof *grown);
    stale = grown ? grown : stale;
    while (ftrma_nderived) {
        struct communicator *c = derived[--ftrma_nderived];
        if (grown)
            stale[ftrma_nstale++] = c->face;
        c->next = retired;
        retired = c;
    }
    pthread_mutex_unlock(&guard);
}

void ftrma_comms_bury(void)
{
    while (retired) {
        struct communicator *next = retired->next;
        bury(retired);
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
    w->live = ftrma_lapsed ? MPI_COMM_NULL : ftrma_user_world;
    retire_all();
    w->exchanges = w->children = w->windows = 0;
    /* All do so, and nobody arrives again before they have: members on other nodes cannot do it here. */
    for (int m = 0; !ftrma_board_find(w) && m < w->spec.n; m++)
        STORE(&w->words[m].arrived, 0);
    w->face = MPI_COMM_NULL;
    if (ftrma_lapsed)
        ftrma_world_lapse(ftrma_user_world);
    else
        ftrma_world_set(w->live);
    ftrma_foreign_later(NULL);
}

/* ---- counters ------------------------------------------------------------------------------- */

#define COUNTS 4 /* words for each communicator */

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
