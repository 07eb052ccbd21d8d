/* Making windows and freeing them.
 *
 * All members exchange what they bring to a window (struct offer), the first one makes its file,
 * all map it, and each restores its part if it belongs to a checkpoint.  The error of one is
 * everybody's and leaves no file.
 *
 * In replay the others do not answer: their offers come from the result log, and on the way to the
 * place of a checkpoint, where no log answers, from the file, which is still there.  A window that
 * all have freed since has no file: the replay gets private memory in its place.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "exchange.h"
#include "log.h"
#include "window.h"

#define PAGE 4096u

int ftrma_next_ordinal;
static ftrma_fill_function fill;
static ftrma_warn_function warn;

void ftrma_set_fill(ftrma_fill_function function)
{
    fill = function;
}

void ftrma_set_warn(ftrma_warn_function function)
{
    warn = function;
}

/* ---- the file ------------------------------------------------------------------------------- */

static size_t round_up(size_t n)
{
    return (n + PAGE - 1) / PAGE * PAGE;
}

/* What one member tells the others before the file exists. */
struct offer {
    int64_t size_bytes, disp_unit;
    uint64_t base;
    int32_t slot, ordinal;
    int32_t allocated, pad;
};

static size_t layout(const struct offer *offers, int n, int allocated, uint64_t *offset)
{
    size_t head = sizeof(struct ftrma_window_header) + (size_t)n * sizeof(struct ftrma_member)
                  + (size_t)n * (size_t)n * sizeof(struct ftrma_pair);
    size_t at = round_up(head);
    for (int i = 0; i < n; i++) {
        offset[i] = at;
        if (allocated)
            at += round_up((size_t)offers[i].size_bytes);
    }
    return at;
}

/* Memory of a replayed window that all have freed since. */
static int map_ghost(struct window *w, const struct offer *offers)
{
    void *p = mmap(NULL, w->file_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return -errno;
    w->map = p;
    w->ghost = 1;
    struct ftrma_member *m = (struct ftrma_member *)(void *)(
        w->map + sizeof(struct ftrma_window_header));
    size_t at = round_up(sizeof(struct ftrma_window_header) + (size_t)w->n * sizeof *m
                         + (size_t)w->n * (size_t)w->n * sizeof(struct ftrma_pair));
    for (int i = 0; i < w->n; i++) {
        m[i] = (struct ftrma_member){.size_bytes = (uint64_t)offers[i].size_bytes, .offset = at,
                                     .disp_unit = offers[i].disp_unit, .slot = offers[i].slot};
        at += w->allocated ? round_up((size_t)offers[i].size_bytes) : 0;
    }
    return 0;
}

static int map_file(struct window *w, int create)
{
    char path[4096];
    if (snprintf(path, sizeof path, "%s/%s", ftrma_directory, w->name) >= (int)sizeof path)
        return -ENAMETOOLONG;
    int fd = ftrma_open(path, O_RDWR | (create ? O_CREAT : 0));
    if (fd < 0)
        return fd;
    /* Taking the memory now turns a full /dev/shm into an error here instead of a signal later. */
    int error = create ? posix_fallocate(fd, 0, (off_t)w->file_bytes) : 0;
    void *p = MAP_FAILED;
    if (!w->file_bytes) {
        struct stat st;
        error = fstat(fd, &st) ? errno : 0;
        w->file_bytes = (size_t)st.st_size;
    }
    if (!error) {
        p = mmap(NULL, w->file_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
        error = p == MAP_FAILED ? errno : 0;
    }
    close(fd);
    if (error && create)
        unlink(path);
    w->map = error ? NULL : p;
    return -error;
}

static void unlink_file(const struct window *w)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", ftrma_directory, w->name);
    unlink(path);
}

/* The dead process has made the file already. */
static int made_before(const struct window *w)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", ftrma_directory, w->name);
    return ftrma_tape.mode && !access(path, F_OK);
}

/* ---- this slot's part ----------------------------------------------------------------------- */

static struct window *allocate_struct(int n)
{
    struct window *w = calloc(1, sizeof *w);
    if (!w)
        return NULL;
    size_t k = (size_t)n;
    w->n = n;
    w->handle = MPI_WIN_NULL;
    w->group = MPI_GROUP_NULL;
    w->locked = calloc(4 * k, 1);
    w->ec = calloc(4 * k, sizeof *w->ec);
    if (!w->locked || !w->ec) {
        free(w->locked);
        free(w->ec);
        free(w);
        return NULL;
    }
    w->nocheck = w->locked + k;
    w->started = w->nocheck + k;
    w->exposed = w->started + k;
    w->sc = w->ec + k;
    w->posted = w->sc + k;
    w->completed = w->posted + k;
    return w;
}

/* Everything a timeline leaves in a window that the program is about to create again. */
static void reset_own(struct window *w, const struct offer *offer, uint64_t offset)
{
    size_t k = (size_t)w->n;
    memset(w->locked, 0, 4 * k);
    memset(w->ec, 0, 4 * k * sizeof *w->ec);
    w->gc = w->gnc = w->lc = w->barriers = 0;
    w->fence_open = w->all_locked = 0;
    struct ftrma_member *m = &w->members[w->me];
    if (ftrma_tape.mode && !ftrma_replay_over()) {
        m->base = offer->base; /* everything else is as the dead process has left it */
        return;
    }
    *m = (struct ftrma_member){.size_bytes = (uint64_t)offer->size_bytes, .offset = offset,
                               .base = offer->base, .disp_unit = offer->disp_unit,
                               .slot = offer->slot};
    for (int t = 0; t < w->n; t++)
        *pair(w, w->me, t) = (struct ftrma_pair){0};
}

void ftrma_window_discard(struct window *w)
{
    if (w->map)
        munmap(w->map, w->file_bytes);
    w->map = NULL;
    if (w->handle != MPI_WIN_NULL)
        PMPI_Win_free(&w->handle);
    if (w->group != MPI_GROUP_NULL)
        PMPI_Group_free(&w->group);
    free(w->locked);
    free(w->ec);
    free(w);
}

static int attach(struct window *w, const struct offer *offer, uint64_t offset, MPI_Info info)
{
    size_t n = (size_t)w->n;
    w->header = (struct ftrma_window_header *)(void *)w->map;
    w->members = (struct ftrma_member *)(void *)(w->map + sizeof *w->header);
    w->pairs = (struct ftrma_pair *)(void *)(w->members + n);
    reset_own(w, offer, offset);
    void *base = w->allocated ? (void *)(w->map + offset) : (void *)(uintptr_t)offer->base;
    if (fill && fill(w->ordinal, w->allocated, base, (uint64_t)offer->size_bytes))
        return MPI_ERR_OTHER;
    if (w->handle != MPI_WIN_NULL) {
        if (w->allocated)
            return MPI_SUCCESS;
        PMPI_Win_free(&w->handle); /* user memory may lie elsewhere after re-entry */
    }
    return PMPI_Win_create(base, (MPI_Aint)offer->size_bytes, (int)offer->disp_unit, info,
                           MPI_COMM_SELF, &w->handle);
}

/* A window that could not be made by all: the file goes, and the struct unless it was in use. */
static void abandon(struct window *w)
{
    if (!w)
        return;
    if (w->me == 0 && w->name[0])
        unlink_file(w);
    if (!ftrma_window_listed(w))
        ftrma_window_discard(w);
}

/* ---- agreeing ------------------------------------------------------------------------------- */

/* On the way to the place of a checkpoint nobody answers, and no log does; the file of the window
   is still there. */
static int read_offers(const struct offer *mine, struct offer *all)
{
    struct window w = {.n = (int)ftrma_ctl->nslots};
    snprintf(w.name, sizeof w.name, "window-0-%d", mine->ordinal);
    if (map_file(&w, 0))
        return MPI_ERR_OTHER;
    const struct ftrma_member *m = (const struct ftrma_member *)(const void *)(
        w.map + sizeof(struct ftrma_window_header));
    for (int i = 0; i < w.n; i++)
        all[i] = (struct offer){(int64_t)m[i].size_bytes, m[i].disp_unit, m[i].base, m[i].slot,
                                mine->ordinal, mine->allocated, 0};
    munmap(w.map, w.file_bytes);
    return MPI_SUCCESS;
}

/* Every member's offer, in their order.  The handle of the world changes when a slot is replaced:
   whether comm is the world was asked before. */
static int exchange_offers(MPI_Comm comm, int world, const struct offer *mine, struct offer *all)
{
    int bytes = (int)sizeof *mine;
    if (ftrma_tape.mode == FTRMA_PROLOGUE && world)
        return read_offers(mine, all);
    if (world)
        return ftrma_gather_all(mine, sizeof *mine, all);
    return GUARDED(PMPI_Allgather(mine, bytes, MPI_BYTE, all, bytes, MPI_BYTE, comm));
}

/* [out] *worst: the least of all members' errors. */
static int agree(MPI_Comm comm, int world, int error, int *worst)
{
    if (!world)
        return GUARDED(PMPI_Allreduce(&error, worst, 1, MPI_INT, MPI_MIN, comm));
    if (ftrma_tape.mode == FTRMA_PROLOGUE) {
        *worst = error;
        return MPI_SUCCESS;
    }
    int all[FTRMA_MAX_PROCS], rc = ftrma_gather_all(&error, sizeof error, all);
    *worst = error;
    for (uint32_t s = 0; s < ftrma_ctl->nslots && !rc; s++)
        *worst = all[s] < *worst ? all[s] : *worst;
    return rc;
}

/* ---- making --------------------------------------------------------------------------------- */

struct making {
    int allocated, world, n, me;
    struct offer mine, *offers; /* [n] */
    uint64_t *offset;           /* [n] */
    struct window *w;
};

/* The window that the offers ask for: one of before a rollback, or a new one.  0, or -errno. */
static int choose(struct making *m)
{
    const struct offer *first = &m->offers[0];
    for (int i = 0; i < m->n; i++)
        if (m->offers[i].allocated != m->allocated)
            return -EPROTO;
        else if (m->offers[i].size_bytes < 0 || m->offers[i].disp_unit < 1)
            return -EINVAL;
    char name[48];
    snprintf(name, sizeof name, "window-%d-%d", first->slot, first->ordinal);
    size_t file_bytes = layout(m->offers, m->n, m->allocated, m->offset);
    struct window *w = ftrma_window_named(name, m->allocated, file_bytes);
    if (!w)
        w = allocate_struct(m->n);
    if (!w)
        return -ENOMEM;
    if (!w->map) {
        memcpy(w->name, name, sizeof name);
        w->allocated = m->allocated;
        w->file_bytes = file_bytes;
    }
    w->me = m->me;
    w->name_number = (uint64_t)(uint32_t)first->slot << 32 | (uint32_t)first->ordinal;
    m->w = w;
    return 0;
}

/* The first member makes the file before anybody maps it. */
static int make_file(struct making *m)
{
    if (m->w->map || made_before(m->w))
        return 0;
    if (ftrma_tape.mode && !ftrma_replay_over())
        return map_ghost(m->w, m->offers);
    return m->me == 0 ? map_file(m->w, 1) : 0;
}

/* The file is there for all. */
static int join(struct making *m, MPI_Info info)
{
    struct window *w = m->w;
    int error = w->map ? 0 : map_file(w, 0);
    w->ordinal = ftrma_next_ordinal++;
    if (!error && m->me == 0 && (!ftrma_tape.mode || ftrma_replay_over()))
        *(struct ftrma_window_header *)(void *)w->map = (struct ftrma_window_header){0};
    if (!error && attach(w, &m->mine, m->offset[m->me], info))
        error = -EIO;
    return error ? error : ftrma_window_list(w);
}

/* [out] *worst: -errno, the same on all members.  Returns an MPI code. */
static int make_together(struct making *m, MPI_Comm comm, MPI_Info info, int *worst)
{
    int rc = exchange_offers(comm, m->world, &m->mine, m->offers);
    if (rc)
        return rc;
    int error = choose(m);
    if (!error)
        error = make_file(m);
    rc = agree(comm, m->world, error, worst);
    return rc || *worst ? rc : agree(comm, m->world, join(m, info), worst);
}

static int fail(int error, MPI_Aint size, int disp_unit)
{
    if (error == -EINVAL)
        return ftrma_window_fail(NULL, MPI_ERR_SIZE, "window of %lld bytes with displacement "
                                 "unit %d: the size must be >= 0 and the unit >= 1 on every "
                                 "member", (long long)size, disp_unit);
    if (error == -EPROTO)
        return ftrma_window_fail(NULL, MPI_ERR_RMA_FLAVOR, "one slot calls Allocate where another "
                                 "calls Create: make windows in the same order on every slot");
    if (error == -EIO)
        return ftrma_window_fail(NULL, MPI_ERR_OTHER, "a slot could not restore its part of this "
                                 "window");
    if (error == -EMFILE)
        return ftrma_window_fail(NULL, MPI_ERR_OTHER, "more than %d windows: free some",
                                 FTRMA_MAX_WINDOWS);
    return ftrma_window_fail(NULL, MPI_ERR_NO_MEM, "no memory for a window of %lld bytes (%s): "
                             "free space in /dev/shm or use smaller windows", (long long)size,
                             strerror(-error));
}

static int make(int allocated, void *base, MPI_Aint size, int disp_unit, MPI_Info info,
                MPI_Comm comm, void *baseptr, MPI_Win *win)
{
    struct making m = {.allocated = allocated, .world = ftrma_is_world(comm)};
    int slot, worst = 0, rc = PMPI_Comm_size(comm, &m.n);
    if (!rc)
        rc = PMPI_Comm_rank(comm, &m.me);
    if (rc)
        return rc;
    ftrma_my_role(&slot);
    m.mine = (struct offer){size, disp_unit, (uint64_t)(uintptr_t)base, slot, ftrma_next_ordinal,
                            allocated, 0};
    if (!m.world && m.n > 1)
        ftrma_foreign(allocated ? "Win.Allocate on another communicator"
                                : "Win.Create on another communicator");
    m.offers = calloc((size_t)m.n, sizeof *m.offers);
    m.offset = calloc((size_t)m.n, sizeof *m.offset);
    rc = m.offers && m.offset ? make_together(&m, comm, info, &worst) : MPI_ERR_NO_MEM;
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
        PMPI_Group_free(&w->group); /* of the processes before a failure */
    PMPI_Comm_group(m.world ? ftrma_user_world : comm, &w->group);
    w->in_use = 1;
    if (baseptr)
        *(void **)baseptr = part(w, w->me);
    *win = w->handle;
    ftrma_win_set_errhandler(w->handle, MPI_ERRORS_ARE_FATAL);
    return MPI_SUCCESS;
}

/* ---- the calls ------------------------------------------------------------------------------ */

/* Take note of a window that the library has made, and restore its part before anybody can access
   it.  Collective over comm. */
static int adopt(int rc, int allocated, void *base, MPI_Aint size, MPI_Comm comm, MPI_Win *win)
{
    if (rc)
        return ftrma_result(rc);
    struct ftrma_window_info info = {.ordinal = ftrma_next_ordinal, .allocated = allocated,
                                     .base = base, .size_bytes = (uint64_t)size};
    int error = ftrma_native_list(*win, &info), worst = 0;
    if (!error) {
        ftrma_next_ordinal++;
        error = fill && fill(info.ordinal, allocated, base, info.size_bytes) ? -EIO : 0;
    }
    rc = agree(comm, 0, error, &worst);
    return rc || !worst ? rc : fail(worst, size, 1);
}

/* Only communicators made of slots can carry protected windows; all of them are registered, and
   MPI_COMM_SELF of a slot is one too. */
static int protectable(MPI_Comm comm)
{
    int inter = 1, index;
    if (!ftrma_ctl || ftrma_user_world == MPI_COMM_NULL
        || ftrma_my_role(&index) != FTRMA_ROLE_SLOT)
        return 0;
    return PMPI_Comm_test_inter(comm, &inter) == MPI_SUCCESS && !inter;
}

int MPI_Win_allocate(MPI_Aint size, int disp_unit, MPI_Info info, MPI_Comm comm, void *baseptr,
                     MPI_Win *win)
{
    if (ftrma_unwinding())
        return ftrma_code_unwind;
    comm = ftrma_comm(comm); /* not before: it is another one after a repair in place */
    if (!protectable(comm))
        return PMPI_Win_allocate(size, disp_unit, info, comm, baseptr, win);
    if (ftrma_link < 0)
        return make(1, NULL, size, disp_unit, info, comm, baseptr, win);
    int rc = PMPI_Win_allocate(size, disp_unit, info, comm, baseptr, win);
    return adopt(rc, 1, rc ? NULL : *(void **)baseptr, size, comm, win);
}

int MPI_Win_create(void *base, MPI_Aint size, int disp_unit, MPI_Info info, MPI_Comm comm,
                   MPI_Win *win)
{
    if (ftrma_unwinding())
        return ftrma_code_unwind;
    comm = ftrma_comm(comm);
    if (!protectable(comm))
        return PMPI_Win_create(base, size, disp_unit, info, comm, win);
    if (ftrma_link < 0)
        return make(0, base, size, disp_unit, info, comm, NULL, win);
    return adopt(PMPI_Win_create(base, size, disp_unit, info, comm, win), 0, base, size, comm, win);
}

/* Windows whose memory cannot be restored are the library's own, and the user is told. */
static int unprotected(const char *call, int rc)
{
    if (!rc && ftrma_ctl && warn)
        warn(call);
    ftrma_foreign(call);
    return rc;
}

int MPI_Win_allocate_shared(MPI_Aint size, int disp_unit, MPI_Info info, MPI_Comm comm,
                            void *baseptr, MPI_Win *win)
{
    comm = ftrma_comm(comm);
    return unprotected("Allocate_shared", GUARDED(PMPI_Win_allocate_shared(
        size, disp_unit, info, comm, baseptr, win)));
}

int MPI_Win_create_dynamic(MPI_Info info, MPI_Comm comm, MPI_Win *win)
{
    comm = ftrma_comm(comm);
    return unprotected("Create_dynamic", GUARDED(PMPI_Win_create_dynamic(info, comm, win)));
}

int MPI_Win_free(MPI_Win *win)
{
    struct window *w = ftrma_window(*win);
    ftrma_native_unlist(*win);
    if (!w)
        return GUARDED(PMPI_Win_free(win));
    int rc = ftrma_sync_begin(FTRMA_WHAT_FREE, w->ordinal, -1, 0);
    int done = rc == 1 || w->ghost; /* a ghost's others have all been here */
    if (!done && !rc)
        rc = ftrma_window_barrier(w);
    if (rc > 1)
        return rc;
    ftrma_event_end();
    if (w->me == 0 && !done)
        unlink_file(w);
    ftrma_window_unlist(w);
    ftrma_window_discard(w);
    *win = MPI_WIN_NULL;
    return MPI_SUCCESS;
}
