/* Windows: the list of them, the search for one and for a place in it, and what a rollback does to
 * them. They are made in create.c.
 *
 * The memory of a window from Allocate is a file of the job in shared memory that every member
 * maps. It belongs to no process: a death unmaps nothing, survivors' views stay valid, and the
 * replacement maps the same file. A part is nonetheless lost with its slot's process; repair
 * restores it from the vault and never reads what the dead process left there.
 *
 * In a job over several nodes each node has a file of its own with the parts of its members; the
 * wire reaches those on other nodes (farbytes.c).
 *
 * The user's MPI_Win is a real window over this process alone, so that the library keeps names,
 * attributes, infos and error handlers; data and synchronization calls find the struct window
 * behind the handle and never reach the library.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "errors.h"
#include "window.h"

#define TABLE 16384 /* a power of two, at least twice FTRMA_MAX_WINDOWS */

static struct window *windows[FTRMA_MAX_WINDOWS];
static int nwindows;
static struct window *tables[2][TABLE], **table = tables[0]; /* threads search one while the other
                                                                is made anew */
static pthread_mutex_t listing = PTHREAD_MUTEX_INITIALIZER; /* held to change the table or the
                                                               list */
/* Recursive: callbacks of attributes take it again. */
static pthread_mutex_t handles = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static MPI_Win held[FTRMA_MAX_WINDOWS]; /* windows of the library's own, in a job on one node */
static int nheld;
/* The newest handles of earlier attempts. A program that has kept one and frees it must not free
   a window that was made since and has the same address. */
#define STALE 1024
static MPI_Win stale[STALE];
static unsigned nstale;
static struct window *newest_found; /* most programs use one window at a time */
int ftrma_next_ordinal;

/* ---- finding -------------------------------------------------------------------------------- */

static size_t hash(MPI_Win handle)
{
    uint64_t h = (uint64_t)(uintptr_t)handle;
    return (size_t)((h >> 4) * 0x9e3779b97f4a7c15ull >> 40) & (TABLE - 1);
}

static struct window *find(MPI_Win handle)
{
    struct window *const *in = LOAD(&table), *w;
    for (size_t i = hash(handle); (w = LOAD(&in[i])); i = (i + 1) & (TABLE - 1))
        if (w->handle == handle && w->in_use) {
            __atomic_store_n(&newest_found, w, __ATOMIC_RELAXED);
            return w;
        }
    return NULL;
}

/* Find a window with the list locked: a table that is changed twice while a thread looks may
   hide some windows from it. */
static __attribute__((noinline)) struct window *find_locked(MPI_Win handle)
{
    struct window *w = find(handle);
    if (!w) {
        pthread_mutex_lock(&listing);
        w = find(handle);
        pthread_mutex_unlock(&listing);
    }
    return w;
}

/* Each call of a program comes here, so the slow path is only a jump to another function. */
struct window *ftrma_window(MPI_Win handle)
{
    struct window *w = __atomic_load_n(&newest_found, __ATOMIC_RELAXED);
    if (likely(w && w->handle == handle && w->in_use))
        return w;
    return find_locked(handle);
}

int ftrma_window_is_stale(MPI_Win handle)
{
    int found = 0;
    pthread_mutex_lock(&listing);
    for (unsigned i = 0; i < nstale && i < STALE && !found; i++)
        found = stale[i] == handle;
    pthread_mutex_unlock(&listing);
    return found;
}

/* Make the other table anew, and use it. This is rare: windows are seldom made or freed, and get
   other handles when they are made again. */
static void reindex(void)
{
    struct window **next = table == tables[0] ? tables[1] : tables[0];
    memset(next, 0, sizeof tables[0]);
    for (int k = 0; k < nwindows; k++) {
        if (windows[k]->handle == MPI_WIN_NULL)
            continue;
        size_t i = hash(windows[k]->handle);
        while (next[i])
            i = (i + 1) & (TABLE - 1);
        next[i] = windows[k];
    }
    STORE(&table, next);
    __atomic_store_n(&newest_found, NULL, __ATOMIC_RELAXED);
}

struct window *ftrma_window_named(const char *name)
{
    struct window *found = NULL;
    pthread_mutex_lock(&listing);
    for (int i = 0; i < nwindows && !found; i++)
        if (!windows[i]->in_use && !strcmp(windows[i]->name, name))
            found = windows[i];
    pthread_mutex_unlock(&listing);
    return found;
}

int ftrma_window_at(int index, struct ftrma_window_info *info)
{
    for (int i = 0; i < nwindows; i++) {
        struct window *w = windows[i];
        if (!w->in_use || w->bare || index--)
            continue;
        struct ftrma_member *m = &w->members[w->me];
        *info = (struct ftrma_window_info){
            .ordinal = w->ordinal, .allocated = w->allocated, .size_bytes = m->size_bytes,
            .base = w->allocated ? (void *)part(w, w->me) : (void *)(uintptr_t)m->base,
            .gnc = w->gnc, .gc = w->gc, .lock_count = w->lc};
        return 0;
    }
    return -1;
}

int ftrma_window_counters(int index, int target, uint64_t *ec, uint64_t *sc)
{
    for (int i = 0; i < nwindows; i++)
        if (windows[i]->in_use && !windows[i]->bare && !index--) {
            if (target < 0 || target >= windows[i]->n)
                return -1;
            *ec = windows[i]->ec[target];
            *sc = pair(windows[i], windows[i]->me, target)->sc;
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
    uint64_t locks = 0;
    for (int i = 0; i < nwindows; i++)
        for (int t = 0; windows[i]->in_use && t < windows[i]->n; t++)
            locks += windows[i]->locked[t] == MPI_LOCK_EXCLUSIVE && !windows[i]->nocheck[t];
    return locks;
}

const char *ftrma_window_held(void)
{
    for (int i = 0; i < nwindows; i++)
        if (windows[i]->in_use && windows[i]->shared && windows[i]->n > 1)
            return "MPI_Win_allocate_shared";
        else if (windows[i]->in_use && windows[i]->bare && windows[i]->n > 1)
            return "a window with ftrma_protect=false";
    return nheld ? "MPI_Win_create_dynamic" : NULL;
}

void ftrma_window_hold(MPI_Win handle)
{
    if (nheld < FTRMA_MAX_WINDOWS) /* a program with more windows keeps one of them anyway */
        held[nheld++] = handle;
}

void ftrma_window_release(MPI_Win handle)
{
    for (int i = 0; i < nheld; i++)
        if (held[i] == handle)
            held[i--] = held[--nheld];
}

/* ---- a stretch of a part -------------------------------------------------------------------- */

int ftrma_reach_layout(struct window *w, const char *call, int target, MPI_Aint disp, int count,
                       MPI_Datatype type, struct reach *r)
{
    struct ftrma_member *m = &w->members[target];
    size_t size = ftrma_basic_size(type);
    r->w = w;
    r->target = target;
    r->low = 0;
    r->span = size * (size_t)count;
    if (unlikely(!size) && count > 0) {
        MPI_Aint lb, extent, tlb, textent;
        int rc = PMPI_Type_get_extent(type, &lb, &extent);
        if (!rc)
            rc = PMPI_Type_get_true_extent(type, &tlb, &textent);
        if (rc)
            return rc;
        MPI_Aint shift = (count - 1) * extent;
        r->low = shift < 0 ? tlb + shift : tlb;
        r->span = (size_t)(textent + (shift < 0 ? -shift : shift));
    }
    int64_t at, first;
    int wrapped = __builtin_mul_overflow((int64_t)disp, (int64_t)m->disp_unit, &at)
                  || __builtin_add_overflow(at, (int64_t)r->low, &first);
    r->at = (uint64_t)at;
    if (unlikely(disp < 0))
        return ftrma_window_fail(w, MPI_ERR_DISP, "%s: displacement %lld to rank %d is negative",
                                 call, (long long)disp, target);
    if (unlikely(wrapped))
        return ftrma_window_fail(w, MPI_ERR_RMA_RANGE, "%s: displacement %lld to rank %d is beyond "
                                 "all memory", call, (long long)disp, target);
    if (unlikely(r->span && (first < 0 || (uint64_t)first > m->size_bytes
                             || r->span > m->size_bytes - (uint64_t)first)))
        return ftrma_window_fail(w, MPI_ERR_RMA_RANGE, "%s of %zu bytes at displacement %lld "
                                 "(%lld bytes) to rank %d leaves its window of %llu bytes", call,
                                 r->span, (long long)disp, (long long)first, target,
                                 (unsigned long long)m->size_bytes);
    return MPI_SUCCESS;
}

/* ---- the list ------------------------------------------------------------------------------- */

static int is_listed(const struct window *w)
{
    int listed = 0;
    for (int i = 0; i < nwindows; i++)
        listed |= windows[i] == w;
    return listed;
}

int ftrma_window_listed(const struct window *w)
{
    pthread_mutex_lock(&listing);
    int listed = is_listed(w);
    pthread_mutex_unlock(&listing);
    return listed;
}

int ftrma_window_list(struct window *w)
{
    pthread_mutex_lock(&listing);
    int listed = is_listed(w), full = !listed && nwindows == FTRMA_MAX_WINDOWS;
    if (!listed && !full)
        windows[nwindows++] = w;
    reindex();
    pthread_mutex_unlock(&listing);
    return full ? -EMFILE : 0;
}

void ftrma_window_unlist(struct window *w)
{
    pthread_mutex_lock(&listing);
    for (int i = 0; i < nwindows; i++)
        if (windows[i] == w)
            windows[i] = windows[--nwindows];
    reindex();
    pthread_mutex_unlock(&listing);
}

/* Free a handle. The library makes and frees windows of one process at a time only, whatever
   threads it promises: its readers of help texts and settings have one state. */
static void free_handle(MPI_Win *handle)
{
    pthread_mutex_lock(&handles);
    if (*handle != MPI_WIN_NULL)
        PMPI_Win_free(handle);
    pthread_mutex_unlock(&handles);
}

int ftrma_window_handle(struct window *w, void *base, MPI_Aint size, int disp_unit, MPI_Info info)
{
    pthread_mutex_lock(&handles);
    int rc = PMPI_Win_create(base, size, disp_unit, info, MPI_COMM_SELF, &w->handle);
    pthread_mutex_unlock(&handles);
    return rc;
}

void ftrma_window_discard(struct window *w)
{
    if (w->map)
        munmap(w->map, w->file_bytes);
    w->map = NULL;
    free_handle(&w->handle);
    if (w->group != MPI_GROUP_NULL)
        PMPI_Group_free(&w->group);
    free(w->locked);
    free(w->ec);
    free(w->far);
    free(w);
}

/* Note a handle of an earlier attempt, with `listing` held. Returns the oldest one, which it
   displaces. */
static MPI_Win make_stale(MPI_Win handle)
{
    if (handle == MPI_WIN_NULL)
        return handle;
    MPI_Win oldest = nstale < STALE ? MPI_WIN_NULL : stale[nstale % STALE];
    stale[nstale++ % STALE] = handle;
    return oldest;
}

void ftrma_windows_rewind(void)
{
    struct window *left = NULL;
    MPI_Win oldest[FTRMA_MAX_WINDOWS];
    int kept = 0, n;
    pthread_mutex_lock(&listing);
    n = nwindows;
    for (int i = 0; i < n; i++) {
        windows[i]->in_use = 0;
        oldest[i] = make_stale(windows[i]->handle);
        windows[i]->handle = MPI_WIN_NULL;
        if (!windows[i]->ghost) {
            windows[kept++] = windows[i];
            continue;
        }
        windows[i]->next_left = left;
        left = windows[i];
    }
    nwindows = kept;
    reindex();
    ftrma_next_ordinal = nheld = 0;
    pthread_mutex_unlock(&listing);
    for (struct window *w; (w = left);) { /* without the lock, since callbacks of attributes may
                                             search for windows */
        left = w->next_left;
        ftrma_window_discard(w);
    }
    for (int i = 0; i < n; i++)
        free_handle(&oldest[i]);
}

/* ---- errors --------------------------------------------------------------------------------- */

int ftrma_window_fail(struct window *w, int class, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int code = ftrma_error_vcode(class, format, args);
    va_end(args);
    PMPI_Win_call_errhandler(w->handle, code);
    return code;
}
