/* The file of a window: mapping it, and this slot's part.
 *
 * In a replay the file is the one that the dead process has made. A window that all have freed
 * since has no file, and gets private memory in its place.
 */
#include "winfile.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "control.h"
#include "event_clock.h"
#include "nodes.h"
#include "replay.h"

#define PAGE 4096u

/* ---- the file ------------------------------------------------------------------------------- */

static size_t round_up(size_t n)
{
    return (n + PAGE - 1) / PAGE * PAGE;
}

size_t ftrma_winfile_layout(const struct ftrma_offer *offers, int n, int allocated, int packed,
                            uint64_t *offset)
{
    size_t head = sizeof(struct ftrma_window_header) + (size_t)n * sizeof(struct ftrma_member)
                  + (size_t)n * (size_t)n * sizeof(struct ftrma_pair);
    size_t at = round_up(head);
    for (int i = 0; i < n; i++) {
        offset[i] = at;
        if (allocated && ftrma_node_of(offers[i].slot) == ftrma_node_here())
            at += packed ? (size_t)offers[i].size_bytes : round_up((size_t)offers[i].size_bytes);
    }
    return round_up(at);
}

int ftrma_winfile_ghost(struct window *w, const struct ftrma_offer *offers, const uint64_t *offset)
{
    void *p = mmap(NULL, w->file_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return -errno;
    w->map = p;
    w->ghost = 1;
    struct ftrma_member *m = (struct ftrma_member *)(void *)(
        w->map + sizeof(struct ftrma_window_header));
    for (int i = 0; i < w->n; i++)
        m[i] = (struct ftrma_member){.size_bytes = (uint64_t)offers[i].size_bytes,
                                     .offset = offset[i], .disp_unit = (int32_t)offers[i].disp_unit,
                                     .slot = offers[i].slot};
    return 0;
}

int ftrma_winfile_map(struct window *w, int create)
{
    char path[4096];
    if (snprintf(path, sizeof path, "%s/%s", ftrma_directory, w->name) >= (int)sizeof path)
        return -ENAMETOOLONG;
    int fd = ftrma_open(path, O_RDWR | (create ? O_CREAT : 0));
    if (fd < 0)
        return fd;
    /* Allocating the memory now turns a full /dev/shm into an error here instead of a signal
       later. */
    int error = create ? posix_fallocate(fd, 0, (off_t)w->file_bytes) : 0;
    void *p = MAP_FAILED;
    struct stat st;
    if (!error && fstat(fd, &st))
        error = errno;
    if (!error) {
        w->file_number = st.st_ino;
        if (!w->file_bytes)
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

void ftrma_winfile_unlink(const struct window *w)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", ftrma_directory, w->name);
    unlink(path);
}

int ftrma_winfile_is_freed(const struct window *w)
{
    char path[4096];
    struct stat st;
    snprintf(path, sizeof path, "%s/%s", ftrma_directory, w->name);
    int fd = ftrma_open(path, O_RDONLY);
    if (fd < 0)
        return 1;
    int freed = fstat(fd, &st) || st.st_ino != w->file_number;
    close(fd);
    return freed;
}

void ftrma_winfile_cover(struct window *w)
{
    if (w->map)
        mmap(w->map, w->file_bytes, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

int ftrma_winfile_made_before(const struct window *w)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", ftrma_directory, w->name);
    return ftrma_event_clock.mode && !access(path, F_OK);
}

/* ---- this slot's part ----------------------------------------------------------------------- */

/* Set once by ftrma_set_fill, before the program runs. */
static ftrma_fill_function fill;

void ftrma_set_fill(ftrma_fill_function function)
{
    fill = function;
}

int ftrma_window_fill(int ordinal, int allocated, void *base, uint64_t size_bytes)
{
    return fill ? fill(ordinal, allocated, base, size_bytes) : 0;
}

struct window *ftrma_window_new(int n)
{
    struct window *w = calloc(1, sizeof *w);
    if (!w)
        return NULL;
    size_t k = (size_t)n;
    w->n = n;
    w->handle = MPI_WIN_NULL;
    w->group = MPI_GROUP_NULL;
    w->placed = -1;
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

/* Reset all that an earlier attempt has left in a window that the program is about to create
   again. */
static void reset_own(struct window *w, const struct ftrma_offer *offer, uint64_t offset)
{
    size_t k = (size_t)w->n;
    memset(w->locked, 0, 4 * k);
    memset(w->ec, 0, 4 * k * sizeof *w->ec);
    w->gc = w->gnc = w->lc = w->barriers = 0;
    w->fence_open = w->all_locked = w->access_open = w->exposure_open = 0;
    struct ftrma_member *m = &w->members[w->me];
    if (w->left) {
        m->base = offer->base;
        return;
    }
    *m = (struct ftrma_member){.size_bytes = (uint64_t)offer->size_bytes, .offset = offset,
                               .base = offer->base, .disp_unit = (int32_t)offer->disp_unit,
                               .slot = offer->slot};
    for (int t = 0; t < w->n; t++)
        *pair(w, w->me, t) = (struct ftrma_pair){0};
}

int ftrma_window_attach(struct window *w, const struct ftrma_offer *offer, uint64_t offset,
                        MPI_Info info)
{
    size_t n = (size_t)w->n;
    w->header = (struct ftrma_window_header *)(void *)w->map;
    w->members = (struct ftrma_member *)(void *)(w->map + sizeof *w->header);
    w->pairs = (struct ftrma_pair *)(void *)(w->members + n);
    /* Even if the process died while the window was made, others may use the window already. */
    w->left = ftrma_event_clock.mode && (!ftrma_replay_over()
                                  || LOAD(&w->members[w->me].made) == (uint32_t)LOAD(&ftrma_ctl->attempt));
    const struct ftrma_member *before = &w->members[w->me];
    int moved = w->anew || before->offset != offset
                || before->size_bytes != (uint64_t)offer->size_bytes;
    if (w->me == w->maker && !w->left)
        *w->header = (struct ftrma_window_header){.name_number = w->name_number};
    reset_own(w, offer, offset);
    void *base = w->allocated ? (void *)(w->map + offset) : (void *)(uintptr_t)offer->base;
    if (w->bare && w->allocated && moved)
        ftrma_clear(base, (uint64_t)offer->size_bytes);
    if (!w->bare && ftrma_window_fill(w->ordinal, w->allocated, base, (uint64_t)offer->size_bytes))
        return MPI_ERR_OTHER;
    return ftrma_window_handle(w, base, (MPI_Aint)offer->size_bytes, (int)offer->disp_unit, info);
}
