/* Protected windows: the words that members share, the state of this process, and the list of all
 * (window.c). */
#ifndef FTRMA_WINDOW_H
#define FTRMA_WINDOW_H

#include <mpi.h>
#include <stddef.h>

#include "internal.h"
#include "types.h"
#include "wire.h"

/* One member's words, in the window's shared header. */
struct ftrma_member {
    uint64_t size_bytes;
    uint64_t offset;      /* of its part in the shared file (from Allocate) */
    uint64_t base;        /* address in its own memory (from Create) */
    int32_t disp_unit;
    uint32_t made;        /* the attempt in which the member became ready for others */
    int32_t slot;
    int32_t atomic_owner; /* member + 1 inside an accumulate or atomic on this part, 0: free */
    uint64_t seq;         /* accesses so far that change the part */
    uint64_t lock;        /* SC << 32 | shared holders << 16 | member + 1 of the exclusive one;
                             and the agent's bits (FTRMA_LOCK_*), if members are on other nodes */
    uint64_t arrived;     /* barriers of this window that the member has arrived at */
};
_Static_assert(sizeof(struct ftrma_member) == 64, "a member fills one cache line");
_Static_assert(offsetof(struct ftrma_member, lock) - offsetof(struct ftrma_member, slot)
               == offsetof(struct ftrma_wire_words, lock), "the agent knows these words");

#define LOCK_OWNER(word) ((word) & 0xffffu)
#define LOCK_SHARED(word) FTRMA_LOCK_HERE(word)
#define LOCK_SC(word) ((word) >> 32)

/* The file: this header, members[n], then for each pair (origin, target) one ftrma_pair, then the
   parts from Allocate on page boundaries. */
struct ftrma_window_header {
    struct ftrma_bell barrier;
    struct ftrma_bell bell; /* for locks, atomics and post-start-complete-wait */
    uint64_t name_number;   /* as in struct window */
    char pad[40];
};

struct ftrma_pair {
    uint64_t posted;    /* exposures the target opened for this origin */
    uint64_t completed; /* access epochs the origin closed toward this target */
    uint64_t holds;     /* the lock the origin has at the target: HOLDS_* */
    uint64_t sc;        /* the target's SC that came with the newest lock of the origin */
    struct ftrma_cut {  /* of the target's demand checkpoint in force (demand.c); on its node only */
        uint64_t seq;   /* accesses to the part so far */
        uint64_t event; /* of the origin that was complete after that was read */
    } cut;
    uint64_t pad[2];
};
_Static_assert(sizeof(struct ftrma_pair) == 64, "a pair fills one cache line");

enum { HOLDS_NONE, HOLDS_SHARED, HOLDS_EXCLUSIVE, HOLDS_TAKING, HOLDS_GIVING };

struct window {
    MPI_Win handle;   /* a window of this process alone: carries attributes, name, error handler */
    int in_use;       /* 0 between a rollback and the program's creating it again */
    int allocated;    /* from Allocate (parts in the shared file) or Create (user memory) */
    int shared;       /* from Allocate_shared: the members may load and store in all parts */
    int n, me;        /* members and own number among them */
    int bare;         /* 1: not protected, as the program has asked: a survivor's bytes stay as they
                         are */
    int anew;         /* 1: it has no memory of an earlier attempt */
    int direct;       /* all parts are mapped here */
    int maker;        /* the first member of this node */
    int left;         /* 1: this process replaces one that was ready for others, so that one's words
                         stay valid */
    int ordinal;      /* number in this slot's program order */
    int fence_open;   /* a fence opened an epoch */
    int all_locked;
    int access_open, exposure_open; /* by Start, by Post; perhaps toward no member */
    MPI_Group group;  /* the members */
    char name[48];
    size_t file_bytes;
    uint64_t file_number;         /* inode of the file that is mapped */
    char *map;
    struct ftrma_window_header *header;
    struct ftrma_member *members;
    struct ftrma_pair *pairs;     /* [origin * n + target] */
    uint64_t barriers;            /* passed in this attempt */
    unsigned char *locked;        /* [target] 0 none, MPI_LOCK_SHARED or MPI_LOCK_EXCLUSIVE */
    unsigned char *nocheck;       /* [target] locked without taking the lock */
    unsigned char *started;       /* [target] in an access epoch of Start */
    unsigned char *exposed;       /* [origin] in an exposure epoch of Post */
    unsigned char *far;           /* [member] on another node; NULL: none is */
    uint32_t wire;                /* its number on the wire */
    int placed;                   /* number of the own part in the node's ledger, or -1 */
    uint64_t *ec, *sc;            /* [target] section 4.1 */
    uint64_t *posted;             /* [origin] exposures opened for it */
    uint64_t *completed;          /* [target] access epochs closed toward it */
    uint64_t name_number;         /* slot of the first member << 32 | its number there */
    int ghost;                    /* 1: the others freed it before this slot died; private memory */
    struct window *next_left;     /* in the list of those that are about to be discarded */
    uint64_t gc, gnc, lc;
};

struct window *ftrma_window(MPI_Win handle); /* NULL: not one of ours */
extern int ftrma_next_ordinal; /* of the window that is made next */
#define FTRMA_MAX_WINDOWS 4096
/* The call that has made a window whose contents no log covers; NULL: there is none. In such a
   window members store into each other's parts, or it is not protected, or it is the library's
   own. */
const char *ftrma_window_held(void);
/* Note that a window of the library's own is made, and freed. */
void ftrma_window_hold(MPI_Win handle);
void ftrma_window_release(MPI_Win handle);
/* An error of the program's on this window, in words, for its error handler.  Returns the code. */
int ftrma_window_fail(struct window *w, int class, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Find a window by its name, in use or not. After a rollback windows are out of use, and when the
   program makes them again, they are taken. */
struct window *ftrma_window_named(const char *name);
/* 1 if this is a handle of an earlier attempt. */
int ftrma_window_is_stale(MPI_Win handle);
int ftrma_window_listed(const struct window *w);
int ftrma_window_list(struct window *w); /* add it to the list, unless it is there: 0, or -EMFILE:
                                            there are too many */
void ftrma_window_unlist(struct window *w);
/* Make the window's handle: a window of the library's over this process alone. An MPI code. */
int ftrma_window_handle(struct window *w, void *base, MPI_Aint size, int disp_unit, MPI_Info info);
void ftrma_window_discard(struct window *w); /* its memory is unmapped here; its file stays */
void ftrma_windows_rewind(void); /* all windows out of use, ordinals from 0 */
struct window *ftrma_window_number(int index); /* all, also those not in use; NULL past the last */
static inline struct ftrma_pair *pair(struct window *w, int origin, int target)
{
    return &w->pairs[(size_t)origin * (size_t)w->n + (size_t)target];
}

static inline int is_far(const struct window *w, int member)
{
    return unlikely(w->far != NULL) && w->far[member];
}

static inline char *part(struct window *w, int member)
{
    return w->map + w->members[member].offset;
}

/* A stretch of the target's part: its place, and the bytes of it that an access touches. */
struct reach {
    struct window *w;
    int target;
    uint64_t at;      /* byte offset of the displacement in the part */
    MPI_Aint low;     /* touched bytes, relative to `at` */
    size_t span;
};

/* Do what ftrma_reach does, for layouts and for stretches that reach outside of the part. */
int ftrma_reach_layout(struct window *w, const char *call, int target, MPI_Aint disp, int count,
                       MPI_Datatype type, struct reach *r);

/* 1 if all of a place is in the member's part. ftrma_reach() spells this test out: by this function
   GCC 12 makes longer code of a Put. */
static inline int ftrma_is_inside(const struct ftrma_member *m, uint64_t at, uint64_t bytes)
{
    return at <= m->size_bytes && bytes <= m->size_bytes - at;
}

/* Find the stretch that `count` elements of a type touch at a displacement; call: its name in
   errors. An MPI code. */
static inline int ftrma_reach(struct window *w, const char *call, int target, MPI_Aint disp,
                              int count, MPI_Datatype type, struct reach *r)
{
    const struct ftrma_member *m = &w->members[target];
    size_t size = ftrma_basic_size(type);
    int64_t at;
    int wrapped = __builtin_mul_overflow((int64_t)disp, (int64_t)m->disp_unit, &at);
    r->w = w;
    r->target = target;
    r->at = (uint64_t)at;
    r->low = 0;
    r->span = size * (size_t)count;
    if (likely(size && !wrapped && disp >= 0 && r->at <= m->size_bytes
               && r->span <= m->size_bytes - r->at))
        return MPI_SUCCESS;
    return ftrma_reach_layout(w, call, target, disp, count, type, r);
}

/* Address of the part's memory if this process can touch it directly, else NULL. */
static inline char *ftrma_direct(const struct reach *r)
{
    struct window *w = r->w;
    if (likely(w->direct) || (w->allocated && !is_far(w, r->target)))
        return part(w, r->target) + r->at;
    if (r->target == w->me)
        return (char *)(uintptr_t)w->members[r->target].base + r->at;
    return NULL;
}

#endif
