/* The file of a window, and this slot's part of it (winfile.c). */
#ifndef FTRMA_WINFILE_H
#define FTRMA_WINFILE_H

#include "window.h"

/* One member's offer of a part, which the others learn before the file exists. */
struct ftrma_offer {
    int64_t size_bytes, disp_unit;
    uint64_t base;
    int32_t slot, ordinal;
    int32_t allocated, pad;
};

/* Lay the file out: [out] offset[n]: where each part of this node begins; returns the size of the
   file. packed: each part begins where the one before ends. */
size_t ftrma_winfile_layout(const struct ftrma_offer *offers, int n, int allocated, int packed,
                            uint64_t *offset);
/* Provide memory for a replayed window that all have freed since then. 0 or -errno. */
int ftrma_winfile_ghost(struct window *w, const struct ftrma_offer *offers,
                        const uint64_t *offset);
/* Map the file, or make it. 0 or -errno. */
int ftrma_winfile_map(struct window *w, int create);
void ftrma_winfile_unlink(const struct window *w);
/* 1 if the file that is mapped has lost its name, or another file has the name: the first member of
   this node had freed the window. */
int ftrma_winfile_is_freed(const struct window *w);
/* Replace a mapping by private memory, so that it does not hold the file but a thread can still
   look at it. */
void ftrma_winfile_cover(struct window *w);
/* 1 if the process that this one replaces had already made the file. */
int ftrma_winfile_made_before(const struct window *w);

struct window *ftrma_window_new(int n); /* NULL: no memory */
/* Make this slot's part: map it, restore it, give it a handle. An MPI code. */
int ftrma_window_attach(struct window *w, const struct ftrma_offer *offer, uint64_t offset,
                        MPI_Info info);
/* Restore a part, if it belongs to a checkpoint: 0 unless that fails (ftrma_set_fill). */
int ftrma_window_fill(int ordinal, int allocated, void *base, uint64_t size_bytes);

#endif
