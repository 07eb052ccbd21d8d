/* Windows: making, finding, freeing them, and their life across a rollback.
 *
 * The memory of a window from Allocate is a file of the job in shared memory that every member
 * maps.  It belongs to no process: a death unmaps nothing, survivors' views stay valid, and the
 * replacement maps the same file.  A part is nonetheless lost with its slot's process; repair
 * restores it from the vault and never reads what the dead left behind.
 *
 * In a job over several nodes a window is the library's own, over the user's communicator, and data
 * and synchronization calls pass straight to the library; all that is kept here is where this
 * slot's part lies (struct native), so that checkpoints find it.  Section 4.1's counters are not
 * kept there: they serve replay, and such a job goes back by relaunch.
 *
 * On one node the user's MPI_Win is a real window over this process alone, so that names,
 * attributes, infos and error handlers are the library's business; data and synchronization calls
 * find the struct window behind the handle and never reach the library.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
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
#define MAX_WINDOWS 4096
#define TABLE 16384 /* a power of two, at least twice MAX_WINDOWS */

static struct window *windows[MAX_WINDOWS];
static int nwindows;
int ftrma_next_ordinal;
static struct window *table[TABLE];
static struct native {
    MPI_Win handle;
    struct ftrma_window_info info;
} natives[MAX_WINDOWS];
static int nnatives;
static struct window *newest_found; /* most programs use one window at a time */
static char last_error[512];
static ftrma_fill_function fill;
static ftrma_warn_function warn;
static int code_of[128]; /* MPI class -> code with our text */

int ftrma_window_fail(struct window *w, int class, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(last_error, sizeof last_error, format, args);
    va_end(args);
    int code = class;
    if (class > 0 && class < (int)(sizeof code_of / sizeof *code_of)) {
        if (!code_of[class] && PMPI_Add_error_code(class, &code_of[class]))
            code_of[class] = 0;
        char text[MPI_MAX_ERROR_STRING];
        snprintf(text, sizeof text, "%.*s", MPI_MAX_ERROR_STRING - 1, last_error);
        if (code_of[class] && !PMPI_Add_error_string(code_of[class], text))
            code = code_of[class];
    }
    if (w)
        PMPI_Win_call_errhandler(w->handle, code);
    return code;
}

/* ---- finding -------------------------------------------------------------------------------- */

static size_t hash(MPI_Win handle)
{
    uint64_t h = (uint64_t)(uintptr_t)handle;
    return (size_t)((h >> 4) * 0x9e3779b97f4a7c15ull >> 40) & (TABLE - 1);
}

struct window *ftrma_window(MPI_Win handle)
{
    struct window *w = __atomic_load_n(&newest_found, __ATOMIC_RELAXED);
    if (likely(w && w->handle == handle && w->in_use))
        return w;
    for (size_t i = hash(handle); table[i]; i = (i + 1) & (TABLE - 1))
        if (table[i]->handle == handle && table[i]->in_use) {
            __atomic_store_n(&newest_found, table[i], __ATOMIC_RELAXED);
            return table[i];
        }
    return NULL;
}

/* Windows come and go rarely; their handles change when a window from Create is made again. */
static void reindex(void)
{
    __atomic_store_n(&newest_found, NULL, __ATOMIC_RELAXED);
    memset(table, 0, sizeof table);
    for (int k = 0; k < nwindows; k++) {
        size_t i = hash(windows[k]->handle);
        while (table[i])
            i = (i + 1) & (TABLE - 1);
        table[i] = windows[k];
    }
}

static void discard(struct window *w);

static struct window *find_name(const char *name, int allocated, size_t file_bytes)
{
    for (int i = 0; i < nwindows; i++)
        if (!windows[i]->in_use && windows[i]->handle != MPI_WIN_NULL
            && windows[i]->allocated == allocated && windows[i]->file_bytes == file_bytes
            && !strcmp(windows[i]->name, name))
            return windows[i];
    return NULL;
}

int ftrma_window_at(int index, struct ftrma_window_info *info)
{
    for (int i = 0; i < nwindows; i++) {
        struct window *w = windows[i];
        if (!w->in_use || index--)
            continue;
        struct ftrma_member *m = &w->members[w->me];
        *info = (struct ftrma_window_info){
            .ordinal = w->ordinal, .allocated = w->allocated, .size_bytes = m->size_bytes,
            .base = w->allocated ? (void *)part(w, w->me) : (void *)(uintptr_t)m->base,
            .gnc = w->gnc, .gc = w->gc, .lock_count = w->lc};
        return 0;
    }
    if (index < nnatives) { /* there are windows of one kind only */
        *info = natives[index].info;
        return 0;
    }
    return -1;
}

int ftrma_window_counters(int index, int target, uint64_t *ec, uint64_t *sc)
{
    for (int i = 0; i < nwindows; i++)
        if (windows[i]->in_use && !index--) {
            if (target < 0 || target >= windows[i]->n)
                return -1;
            *ec = windows[i]->ec[target];
            *sc = windows[i]->sc[target];
            return 0;
        }
    return -1;
}

struct window *ftrma_window_number(int index)
{
    return index < nwindows ? windows[index] : NULL;
}

uint64_t ftrma_exclusive_locks(void)
{
    uint64_t held = 0;
    for (int i = 0; i < nwindows; i++)
        for (int t = 0; windows[i]->in_use && t < windows[i]->n; t++)
            held += windows[i]->locked[t] == MPI_LOCK_EXCLUSIVE && !windows[i]->nocheck[t];
    return held;
}

void ftrma_set_fill(ftrma_fill_function function)
{
    fill = function;
}

void ftrma_set_warn(ftrma_warn_function function)
{
    warn = function;
}

void ftrma_windows_rewind(void)
{
    int kept = 0;
    for (int i = 0; i < nwindows; i++) {
        windows[i]->in_use = 0;
        if (windows[i]->ghost)
            discard(windows[i]);
        else
            windows[kept++] = windows[i];
    }
    nwindows = kept;
    reindex();
    ftrma_next_ordinal = nnatives = 0;
}

/* ---- making --------------------------------------------------------------------------------- */

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
    int fd = open(path, O_RDWR | O_CLOEXEC | (create ? O_CREAT : 0), 0600);
    if (fd < 0)
        return -errno;
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

static void discard(struct window *w)
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

static int remember(struct window *w)
{
    int known = 0;
    for (int i = 0; i < nwindows; i++)
        known |= windows[i] == w;
    if (!known && nwindows == MAX_WINDOWS)
        return -ENOSPC;
    if (!known)
        windows[nwindows++] = w;
    reindex();
    return 0;
}

/* A window that could not be made by all: the file goes, and the struct unless it was in use. */
static void abandon(struct window *w)
{
    if (!w)
        return;
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", ftrma_directory, w->name);
    if (w->me == 0 && w->name[0])
        unlink(path);
    int kept = 0;
    for (int i = 0; i < nwindows; i++)
        kept |= windows[i] == w;
    if (!kept)
        discard(w);
}

/* On the way to the place of a checkpoint nobody answers, and no log does; the file of the window is
   still there. */
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

/* The dead process has made the file already. */
static int made_before(const struct window *w)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", ftrma_directory, w->name);
    return ftrma_tape.mode && !access(path, F_OK);
}

static int make(int allocated, void *base, MPI_Aint size, int disp_unit, MPI_Info info,
                MPI_Comm comm, void *baseptr, MPI_Win *win)
{
    int n, me, world = ftrma_is_world(comm), rc = PMPI_Comm_size(comm, &n);
    if (!rc)
        rc = PMPI_Comm_rank(comm, &me);
    if (rc)
        return rc;
    struct offer mine = {size, disp_unit, (uint64_t)(uintptr_t)base, 0, ftrma_next_ordinal,
                         allocated, 0};
    int role_index;
    ftrma_my_role(&role_index);
    mine.slot = role_index;
    struct offer *offers = calloc((size_t)n, sizeof *offers);
    uint64_t *offset = calloc((size_t)n, sizeof *offset);
    struct window *w = NULL;
    int error = offers && offset && size >= 0 && disp_unit > 0 ? 0 : -EINVAL, worst = 0;
    if (!offers || !offset) {
        free(offers);
        free(offset);
        return MPI_ERR_NO_MEM;
    }
    if (!world && n > 1)
        ftrma_foreign(allocated ? "Win.Allocate on another communicator"
                                : "Win.Create on another communicator");
    rc = exchange_offers(comm, world, &mine, offers);
    if (!rc) {
        char name[48];
        snprintf(name, sizeof name, "window-%d-%d", offers[0].slot, offers[0].ordinal);
        for (int i = 0; i < n; i++)
            if (offers[i].allocated != allocated)
                error = -EPROTO;
        size_t file_bytes = layout(offers, n, allocated, offset);
        w = error ? NULL : find_name(name, allocated, file_bytes);
        if (!w && !error) {
            w = allocate_struct(n);
            error = w ? 0 : -ENOMEM;
        }
        if (w && !w->map) {
            memcpy(w->name, name, sizeof name);
            w->allocated = allocated;
            w->file_bytes = file_bytes;
        }
        if (w) {
            w->me = me;
            w->name_number = (uint64_t)(uint32_t)offers[0].slot << 32 | (uint32_t)offers[0].ordinal;
        }
        /* The first member makes the file before anybody maps it. */
        if (w && !w->map && !made_before(w)) {
            if (ftrma_tape.mode && !ftrma_replay_over())
                error = map_ghost(w, offers);
            else if (me == 0)
                error = map_file(w, 1);
        }
        rc = agree(comm, world, error, &worst);
    }
    if (!rc && !worst) {
        if (!w->map)
            error = map_file(w, 0);
        w->ordinal = ftrma_next_ordinal++;
        if (!error && me == 0 && (!ftrma_tape.mode || ftrma_replay_over()))
            *(struct ftrma_window_header *)(void *)w->map = (struct ftrma_window_header){0};
        if (!error && attach(w, &mine, offset[me], info))
            error = -EIO;
        if (!error)
            error = remember(w);
        rc = agree(comm, world, error, &worst);
    }
    free(offers);
    free(offset);
    if (rc)
        return ftrma_result(rc);
    if (worst) {
        abandon(w);
        if (worst == -EINVAL)
            return ftrma_window_fail(NULL, MPI_ERR_SIZE, "window of %lld bytes with displacement "
                                     "unit %d: the size must be >= 0 and the unit >= 1 on every "
                                     "member", (long long)size, disp_unit);
        if (worst == -EPROTO)
            return ftrma_window_fail(NULL, MPI_ERR_RMA_FLAVOR, "one slot calls Allocate where "
                                     "another calls Create: make windows in the same order on "
                                     "every slot");
        if (worst == -EIO)
            return ftrma_window_fail(NULL, MPI_ERR_OTHER, "a slot could not restore its part of "
                                     "this window");
        return ftrma_window_fail(NULL, MPI_ERR_NO_MEM, "no memory for a window of %lld bytes "
                                 "(%s): free space in /dev/shm or use smaller windows",
                                 (long long)size, strerror(-worst));
    }
    if (w->group != MPI_GROUP_NULL)
        PMPI_Group_free(&w->group); /* of the processes before a failure */
    PMPI_Comm_group(world ? ftrma_user_world : comm, &w->group);
    w->in_use = 1;
    if (baseptr)
        *(void **)baseptr = part(w, me);
    *win = w->handle;
    PMPI_Win_set_errhandler(w->handle, MPI_ERRORS_ARE_FATAL);
    return MPI_SUCCESS;
}

/* Take note of a window that the library has made, and restore its part before anybody can access
   it.  Collective over comm. */
static int adopt(int rc, int allocated, void *base, MPI_Aint size, MPI_Comm comm, MPI_Win *win)
{
    if (rc)
        return ftrma_result(rc);
    int bad = nnatives == MAX_WINDOWS, worst = 0;
    if (!bad) {
        struct ftrma_window_info info = {.ordinal = ftrma_next_ordinal++, .allocated = allocated,
                                         .base = base, .size_bytes = (uint64_t)size};
        natives[nnatives++] = (struct native){*win, info};
        bad = fill && fill(info.ordinal, allocated, base, info.size_bytes) ? 2 : 0;
    }
    rc = GUARDED(PMPI_Allreduce(&bad, &worst, 1, MPI_INT, MPI_MAX, comm));
    if (rc || !worst)
        return rc;
    return ftrma_window_fail(NULL, MPI_ERR_OTHER, worst == 1 ? "more than %d windows: free some"
                             : "a slot could not restore its part of this window", MAX_WINDOWS);
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
    for (int i = 0; i < nnatives; i++)
        if (natives[i].handle == *win) {
            memmove(&natives[i], &natives[i + 1], (size_t)(--nnatives - i) * sizeof *natives);
            break;
        }
    if (!w)
        return GUARDED(PMPI_Win_free(win));
    int rc = ftrma_sync_begin(FTRMA_WHAT_FREE, w->ordinal, -1, 0);
    int done = rc == 1 || w->ghost; /* a ghost's others have all been here */
    if (!done && !rc)
        rc = ftrma_window_barrier(w);
    if (rc > 1)
        return rc;
    ftrma_event_end();
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", ftrma_directory, w->name);
    if (w->me == 0 && !done)
        unlink(path);
    for (int i = 0; i < nwindows; i++)
        if (windows[i] == w)
            windows[i] = windows[--nwindows];
    reindex();
    w->in_use = 0;
    discard(w);
    *win = MPI_WIN_NULL;
    return MPI_SUCCESS;
}

int MPI_Win_get_group(MPI_Win win, MPI_Group *group)
{
    struct window *w = ftrma_window(win);
    return w ? PMPI_Group_union(w->group, MPI_GROUP_EMPTY, group) : PMPI_Win_get_group(win, group);
}

int MPI_Win_get_attr(MPI_Win win, int keyval, void *value, int *flag)
{
    static int flavor_allocate = MPI_WIN_FLAVOR_ALLOCATE, model = MPI_WIN_UNIFIED;
    struct window *w = ftrma_window(win);
    if (w && keyval == MPI_WIN_CREATE_FLAVOR && w->allocated) {
        *(int **)value = &flavor_allocate;
        *flag = 1;
        return MPI_SUCCESS;
    }
    if (w && keyval == MPI_WIN_MODEL) {
        *(int **)value = &model;
        *flag = 1;
        return MPI_SUCCESS;
    }
    return PMPI_Win_get_attr(win, keyval, value, flag);
}

int MPI_Win_shared_query(MPI_Win win, int rank, MPI_Aint *size, int *disp_unit, void *baseptr)
{
    struct window *w = ftrma_window(win);
    if (!w)
        return PMPI_Win_shared_query(win, rank, size, disp_unit, baseptr);
    return ftrma_window_fail(w, MPI_ERR_RMA_FLAVOR, "Shared_query on a protected window: its "
                             "parts are reached by Put and Get; only windows from Allocate_shared "
                             "can be queried");
}
