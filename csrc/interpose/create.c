/* Making windows and freeing them.
 *
 * All members exchange their offers for a window (struct ftrma_offer), the first one makes its
 * file, all map it, and each restores its part if it belongs to a checkpoint. If one member has an
 * error, all get it, and no file is left.
 *
 * In a replay the others do not answer, and their offers come from the result log. On the way to
 * the place of a checkpoint no log has them, and they come from the file, which still exists
 * (winfile.c).
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "communicator.h"
#include "errhandler.h"
#include "errors.h"
#include "event.h"
#include "exchange.h"
#include "far.h"
#include "nodes.h"
#include "replay.h"
#include "settle.h"
#include "sync.h"
#include "winfile.h"
#include "world.h"

/* Set once by ftrma_set_warn, before the program runs. */
static ftrma_warn_function warn;

void ftrma_set_warn(ftrma_warn_function function)
{
    warn = function;
}

/* Give up a window that not all members could make: remove the file, and the struct unless it was
   in use. */
static void abandon(struct window *w)
{
    if (!w)
        return;
    ftrma_far_withdraw(w);
    if (w->me == w->maker && w->name[0])
        ftrma_winfile_unlink(w);
    if (!ftrma_window_listed(w))
        ftrma_window_discard(w);
}

/* ---- agreeing ------------------------------------------------------------------------------- */

/* The members of a new window: those of a communicator that ftrma implements, or of one of the
   library's own (on: NULL). */
struct making {
    MPI_Comm comm;
    struct communicator *on;
    int allocated, shared, packed, bare, n, me;
    int maker; /* the first member of this node */
    char name[48];
    struct ftrma_offer mine, *offers; /* [n] */
    uint64_t *offset;           /* [n] */
    struct window *w;
};

/* Read the offers from the window's file, which still exists: on the way to the place of a
   checkpoint neither the others nor a log can provide them. */
static int read_offers(struct making *m)
{
    struct window w = {.n = m->n};
    memcpy(w.name, m->name, sizeof w.name);
    if (ftrma_winfile_map(&w, 0))
        return MPI_ERR_OTHER;
    const struct ftrma_window_header *header = (const void *)w.map;
    const struct ftrma_member *member = (const void *)(header + 1);
    for (int i = 0; i < w.n; i++)
        m->offers[i] = (struct ftrma_offer){
            (int64_t)member[i].size_bytes, member[i].disp_unit, member[i].base, member[i].slot,
            (int32_t)(uint32_t)header->name_number, m->mine.allocated, 0};
    munmap(w.map, w.file_bytes);
    return MPI_SUCCESS;
}

/* Get the offers of all members, in the order of members. */
static int exchange_offers(struct making *m)
{
    int bytes = (int)sizeof m->mine, passed = 0, rc;
    size_t room;
    if (!m->on)
        return GUARDED(PMPI_Allgather(&m->mine, bytes, MPI_BYTE, m->offers, bytes, MPI_BYTE,
                                      m->comm));
    rc = ftrma_exchange_open(m->on, &room);
    if (!rc)
        rc = ftrma_gather_all(&m->mine, sizeof m->mine, m->offers, 0, &passed);
    return passed && !rc ? read_offers(m) : rc;
}

/* Exchange the members' errors; [out] *worst: the least of them. */
static int agree(const struct making *m, int error, int ordered, int *worst)
{
    if (!m->on)
        return GUARDED(PMPI_Allreduce(&error, worst, 1, MPI_INT, MPI_MIN, m->comm));
    int all[FTRMA_MAX_PROCS], passed, rc = ftrma_gather_all(&error, sizeof error, all, ordered, &passed);
    *worst = error;
    for (int i = 0; i < m->n && !rc && !passed; i++)
        *worst = all[i] < *worst ? all[i] : *worst;
    return rc;
}

/* ---- making --------------------------------------------------------------------------------- */

/* Choose the window that the offers ask for: one from before a rollback, or a new one. 0, or
   -errno. */
static int choose(struct making *m)
{
    const struct ftrma_offer *first = &m->offers[0];
    for (int i = 0; i < m->n; i++)
        if (m->offers[i].allocated != m->mine.allocated)
            return -EPROTO;
        else if (m->offers[i].size_bytes < 0 || m->offers[i].disp_unit < 1)
            return -EINVAL;
        else if (m->shared && ftrma_node_of(m->offers[i].slot) != ftrma_node_here())
            return -EXDEV;
    for (m->maker = 0; ftrma_node_of(m->offers[m->maker].slot) != ftrma_node_here();)
        m->maker++;
    if (!m->on)
        snprintf(m->name, sizeof m->name, "window-%d-%d", first->slot, first->ordinal);
    size_t file_bytes = ftrma_winfile_layout(m->offers, m->n, m->allocated, m->packed, m->offset);
    struct window *w = ftrma_window_named(m->name);
    /* In the last attempt this was another window, whose memory a thread may still use; or all
       members had arrived at its MPI_Win_free, the first one of this node has freed it, and this
       slot came back from there without an acknowledgement of another node. */
    if (w && (w->n != m->n || w->allocated != m->allocated || w->file_bytes != file_bytes
              || ftrma_winfile_is_freed(w))) {
        w->name[0] = '\0';
        w->name_number = UINT64_MAX;
        ftrma_winfile_cover(w);
        w = NULL;
    }
    if (!w)
        w = ftrma_window_new(m->n);
    if (!w)
        return -ENOMEM;
    if (!w->map) {
        memcpy(w->name, m->name, sizeof w->name);
        w->allocated = m->allocated;
        w->file_bytes = file_bytes;
    }
    w->me = m->me;
    w->shared = m->shared;
    w->bare = m->bare;
    w->anew = !w->map;
    w->maker = m->maker;
    w->wire = (uint32_t)first->slot << 20 | ((uint32_t)first->ordinal & 0xfffffu);
    w->name_number = (uint64_t)(uint32_t)first->slot << 32 | (uint32_t)first->ordinal;
    m->w = w;
    return 0;
}

/* Make the node's file, before anybody maps it. The first member of the node does so. */
static int make_file(struct making *m)
{
    if (m->w->map || ftrma_winfile_made_before(m->w))
        return 0;
    if (ftrma_event_clock.mode && !ftrma_replay_over())
        return ftrma_winfile_ghost(m->w, m->offers, m->offset);
    return m->me == m->maker ? ftrma_winfile_map(m->w, 1) : 0;
}

/* Note the offers of members on other nodes for all members of this node, then let the other nodes
   reach this slot's part. */
static int join_far(struct making *m)
{
    struct window *w = m->w;
    int any = 0;
    free(w->far);
    w->far = calloc((size_t)m->n, 1);
    if (!w->far)
        return -ENOMEM;
    for (int i = 0; i < m->n; i++) {
        const struct ftrma_offer *offer = &m->offers[i];
        any |= w->far[i] = ftrma_node_of(offer->slot) != ftrma_node_here();
        if (!w->far[i] || m->me != m->maker || w->left)
            continue;
        for (int t = 0; t < m->n; t++)
            *pair(w, i, t) = (struct ftrma_pair){0};
        w->members[i] = (struct ftrma_member){.size_bytes = (uint64_t)offer->size_bytes,
                                              .slot = offer->slot, .disp_unit = (int32_t)offer->disp_unit};
    }
    w->direct = w->allocated && !any;
    int alone = 1;
    for (int i = 0; i < m->n; i++)
        alone &= i == m->me || w->far[i];
    if (alone && !w->ghost && w->left)
        ftrma_window_settle_own(w);
    if (any)
        return w->ghost ? 0 : ftrma_far_announce(w);
    free(w->far);
    w->far = NULL;
    return 0;
}

/* Join the window, whose file exists on all nodes by now. */
static int join(struct making *m, MPI_Info info)
{
    struct window *w = m->w;
    int error = w->map ? 0 : ftrma_winfile_map(w, 0);
    w->ordinal = m->mine.ordinal;
    if (!error && ftrma_window_attach(w, &m->mine, m->offset[m->me], info))
        error = -EIO;
    if (!error)
        error = join_far(m);
    if (!error)
        error = ftrma_window_list(w);
    if (!error)
        STORE(&w->members[w->me].made, (uint32_t)LOAD(&ftrma_ctl->attempt));
    return error;
}

/* Make the window together: [out] *worst: -errno, equal on all members. Returns an MPI code. */
static int make_together(struct making *m, MPI_Info info, int *worst)
{
    int rc = exchange_offers(m);
    if (rc)
        return rc;
    int error = choose(m);
    if (!error)
        error = make_file(m);
    rc = agree(m, error, 0, worst);
    /* The first member returns first, as in the library: its part is often the one that all use,
       and some programs store there before they synchronize. */
    return rc || *worst ? rc : agree(m, join(m, info), 1, worst);
}

/* Make the group of the members, by their present processes. */
static int members_of(const struct making *m, MPI_Group *group)
{
    if (!m->on)
        return PMPI_Comm_group(m->comm, group);
    MPI_Group world;
    int rc = ftrma_world_group(&world);
    if (!rc)
        rc = PMPI_Group_incl(world, m->n, m->on->spec.slots, group);
    return rc ? rc : PMPI_Group_free(&world);
}

/* Fill in rank, size and the names, on which the members agree without communication. */
static int identify(struct making *m)
{
    if (!m->on) {
        int rc = PMPI_Comm_size(m->comm, &m->n);
        return rc ? rc : PMPI_Comm_rank(m->comm, &m->me);
    }
    m->n = m->on->spec.n;
    m->me = m->on->me;
    snprintf(m->name, sizeof m->name, "window-%016llx-%llu", (unsigned long long)m->on->spec.id,
             (unsigned long long)++m->on->windows);
    return MPI_SUCCESS;
}

static int fail(int error, MPI_Aint size, int disp_unit)
{
    if (error == -EINVAL)
        return ftrma_error_code(disp_unit < 1 ? MPI_ERR_DISP : MPI_ERR_SIZE,
                                "window of %lld bytes with displacement unit %d: the size must be >= 0 and the unit >= 1 on every "
                                "member", (long long)size, disp_unit);
    if (error == -EPROTO)
        return ftrma_error_code(MPI_ERR_RMA_FLAVOR, "one slot calls Allocate where another "
                                "calls Create: make windows in the same order on every slot");
    if (error == -EIO)
        return ftrma_error_code(MPI_ERR_OTHER, "a slot could not restore its part of this "
                                "window");
    if (error == -EXDEV)
        return ftrma_error_code(MPI_ERR_RMA_SHARED, "Allocate_shared on a communicator over "
                                "several nodes: Split_type(COMM_TYPE_SHARED) gives those of one");
    if (error == -EMFILE)
        return ftrma_error_code(MPI_ERR_OTHER, "more than %d windows: free some",
                                FTRMA_MAX_WINDOWS);
    return ftrma_error_code(MPI_ERR_NO_MEM, "no memory for a window of %lld bytes (%s): "
                            "free space in /dev/shm or use smaller windows", (long long)size,
                            strerror(-error));
}

static int says(MPI_Info info, const char *key, const char *word)
{
    char value[8] = "";
    int flag = 0;
    if (info != MPI_INFO_NULL)
        PMPI_Info_get(info, key, sizeof value - 1, value, &flag);
    return flag && !strcmp(value, word);
}

/* Trace that the program has the window from here on. A part from Allocate is all zeros at this
   moment. */
static void trace_made(const struct window *w, uint64_t size_bytes)
{
    struct ftrma_trace_record record = {
        .what = FTRMA_WHAT_MADE, .mode = (uint32_t)ftrma_event_clock.mode,
        .window = ftrma_trace_window(w->name_number), .target = -1, .bytes = size_bytes,
        .event = ftrma_event_clock.events, .clock = ftrma_event_clock.clock,
        .value = {(uint64_t)w->allocated, 0}};
    if (unlikely(ftrma_tracing))
        ftrma_trace_write(&record);
}

static int make(struct making m, void *base, MPI_Aint size, int disp_unit, MPI_Info info,
                void *baseptr, MPI_Win *win)
{
    if (unlikely(ftrma_finalized))
        return ftrma_after_finalize();
    int slot, worst = 0, rc = identify(&m);
    if (rc)
        return rc;
    m.bare = says(info, "ftrma_protect", "false");
    ftrma_my_role(&slot);
    m.mine = (struct ftrma_offer){
        size, disp_unit, (uint64_t)(uintptr_t)base, slot,
        __atomic_fetch_add(&ftrma_next_ordinal, 1, __ATOMIC_RELAXED), m.allocated + m.shared, 0};
    if (!m.on && m.n > 1)
        ftrma_foreign("a window on a communicator that it cannot make again");
    m.offers = calloc((size_t)m.n, sizeof *m.offers);
    m.offset = calloc((size_t)m.n, sizeof *m.offset);
    rc = m.offers && m.offset ? make_together(&m, info, &worst) : MPI_ERR_NO_MEM;
    free(m.offers);
    free(m.offset);
    if (rc)
        return ftrma_result(rc);
    if (worst) {
        abandon(m.w);
        return fail(worst, size, disp_unit);
    }
    struct window *w = m.w;
    if (w->group != MPI_GROUP_NULL)
        PMPI_Group_free(&w->group); /* it may be the group of the processes before a failure */
    rc = members_of(&m, &w->group);
    if (rc)
        return rc;
    w->in_use = 1;
    if (w->allocated)
        PMPI_Win_set_name(w->handle, ""); /* as the library does */
    if (baseptr)
        *(void **)baseptr = part(w, w->me);
    *win = w->handle;
    trace_made(w, (uint64_t)size);
    if (w->bare && w->n > 1)
        ftrma_hold(ftrma_window_held());
    ftrma_win_set_errhandler(w->handle, MPI_ERRORS_ARE_FATAL);
    return MPI_SUCCESS;
}

/* ---- the calls ------------------------------------------------------------------------------ */

/* 1 if a communicator can carry protected windows. Only communicators of slots can; all of them are
   registered, and MPI_COMM_SELF of a slot is one, too. */
static int protectable(MPI_Comm comm)
{
    int inter = 1, index;
    if (comm == MPI_COMM_NULL || !ftrma_ctl || ftrma_user_world == MPI_COMM_NULL
        || ftrma_my_role(&index) != FTRMA_ROLE_SLOT)
        return 0;
    return PMPI_Comm_test_inter(comm, &inter) == MPI_SUCCESS && !inter;
}

/* In a replay the backing of a communicator that ftrma implements may be gone already: its handle
   serves as well. */
static struct making making_on(MPI_Comm comm)
{
    struct communicator *on = ftrma_communicator(comm);
    return (struct making){.comm = on ? on->handle : ftrma_comm(comm), .on = on};
}

int MPI_Win_allocate(MPI_Aint size, int disp_unit, MPI_Info info, MPI_Comm comm, void *baseptr,
                     MPI_Win *win)
{
    if (ftrma_unwinding())
        return ftrma_code_unwind;
    struct making m = making_on(comm);
    m.allocated = 1;
    if (protectable(m.comm))
        return make(m, NULL, size, disp_unit, info, baseptr, win);
    return ftrma_result(PMPI_Win_allocate(size, disp_unit, info, m.comm, baseptr, win));
}

int MPI_Win_create(void *base, MPI_Aint size, int disp_unit, MPI_Info info, MPI_Comm comm,
                   MPI_Win *win)
{
    if (ftrma_unwinding())
        return ftrma_code_unwind;
    struct making m = making_on(comm);
    if (protectable(m.comm))
        return make(m, base, size, disp_unit, info, NULL, win);
    return ftrma_result(PMPI_Win_create(base, size, disp_unit, info, m.comm, win));
}

/* The parts of a shared window are saved and restored like all others. No log has what the members
   store into each other's parts, so a failure rolls all slots back. */
int MPI_Win_allocate_shared(MPI_Aint size, int disp_unit, MPI_Info info, MPI_Comm comm,
                            void *baseptr, MPI_Win *win)
{
    if (ftrma_unwinding())
        return ftrma_code_unwind;
    struct making m = making_on(comm);
    m.allocated = m.shared = 1;
    /* Each part begins where the last one ends, unless the program says so. */
    m.packed = !says(info, "alloc_shared_noncontig", "true");
    int rc;
    if (protectable(m.comm))
        rc = make(m, NULL, size, disp_unit, info, baseptr, win);
    else
        rc = GUARDED(PMPI_Win_allocate_shared(size, disp_unit, info, m.comm, baseptr, win));
    if (!rc && ftrma_window_held())
        ftrma_hold(__func__);
    return rc;
}

/* Memory that is attached to a dynamic window cannot be restored, and the user is told. */
int MPI_Win_create_dynamic(MPI_Info info, MPI_Comm comm, MPI_Win *win)
{
    if (ftrma_ctl && warn) /* before the call, since slot 0, which prints the warning, returns from
                              it with the others */
        warn("Create_dynamic");
    int rc = GUARDED(PMPI_Win_create_dynamic(info, ftrma_comm(comm), win));
    if (rc || !ftrma_ctl)
        return rc;
    if (!ftrma_is_alone(comm)) {
        ftrma_window_hold(*win);
        ftrma_hold(__func__);
        if (LOAD(&ftrma_ctl->nodes) > 1)
            STORE(&ftrma_ctl->dynamic, 1);
    }
    return MPI_SUCCESS;
}

int MPI_Win_free(MPI_Win *win)
{
    if (ftrma_unwinding())
        return ftrma_code_unwind;
    struct window *w = ftrma_window(*win);
    if (!w && ftrma_window_is_stale(*win)) { /* a handle of an earlier attempt, which has been given
                                                up */
        *win = MPI_WIN_NULL;
        return MPI_SUCCESS;
    }
    if (!w) {
        ftrma_window_release(*win);
        return GUARDED(PMPI_Win_free(win));
    }
    if (unlikely(ftrma_finalized))
        return ftrma_after_finalize();
    int rc = ftrma_sync_begin(FTRMA_WHAT_FREE, w->ordinal, -1, 0);
    int done = rc == 1 || w->ghost; /* all others have freed a ghost */
    if (rc == 1)
        ftrma_far_pass_tell(w);
    if (!done && !rc)
        rc = ftrma_window_barrier(w);
    if (rc > 1)
        return rc;
    ftrma_event_end();
    ftrma_far_withdraw(w);
    if (w->me == w->maker && !done)
        ftrma_winfile_unlink(w);
    ftrma_window_unlist(w);
    ftrma_window_discard(w);
    *win = MPI_WIN_NULL;
    return MPI_SUCCESS;
}
