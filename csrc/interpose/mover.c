/* The mover; see mover.h. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "alarm.h"
#include "control.h"
#include "errors.h"
#include "farbytes.h"
#include "interrupt.h"
#include "meet.h"
#include "mover.h"
#include "types.h"

/* Handle a failed access. Returns 0 if the slot has been replaced in place, so that the access can
   be tried again; else an MPI code. */
static int remote_failure(struct window *w, int target)
{
    if (errno == ESRCH) {
        int slot = w->members[target].slot;
        ftrma_note_death(ftrma_roles(ftrma_ctl)->slot_proc[slot]);
        return ftrma_unwinding() ? ftrma_code_unwind : ftrma_await_live(slot);
    }
    return ftrma_window_fail(w, MPI_ERR_OTHER, "cannot reach the memory of rank %d in a window "
                             "from Create (%s): use Allocate, or allow process_vm_readv between "
                             "processes of one user", target, strerror(errno));
}

static pid_t owner_pid(const struct reach *r)
{
    const struct ftrma_member *m = &r->w->members[r->target];
    return ftrma_ctl->proc[ftrma_roles(ftrma_ctl)->slot_proc[m->slot]].pid;
}

/* Move bytes between `local` and the touched stretch of a part from Create. */
int ftrma_remote(const struct reach *r, void *local, int write)
{
    const struct ftrma_member *m = &r->w->members[r->target];
    size_t done = 0;
    if (is_far(r->w, r->target))
        return ftrma_far_move(r, local, write);
    while (done < r->span) {
        uint64_t address = m->base + r->at + (uint64_t)r->low + done;
        struct iovec here = {(char *)local + done, r->span - done};
        struct iovec there = {(void *)(uintptr_t)address, r->span - done};
        ssize_t moved = write ? process_vm_writev(owner_pid(r), &here, 1, &there, 1, 0)
                              : process_vm_readv(owner_pid(r), &here, 1, &there, 1, 0);
        if (moved <= 0) {
            int rc = remote_failure(r->w, r->target);
            if (rc)
                return rc;
            m = &r->w->members[r->target];
            done = 0; /* the replacement has lost the bytes that had arrived */
            continue;
        }
        done += (size_t)moved;
    }
    return MPI_SUCCESS;
}

/* Write back those bytes of `local` that `mask` marks, since others may use the holes of a
   layout. */
static int remote_runs(const struct reach *r, const char *local, const char *mask)
{
    enum { RUNS = 512 }; /* below the kernel's limit of 1024 */
    struct iovec here[RUNS], there[RUNS];
    uint64_t base = r->w->members[r->target].base + r->at + (uint64_t)r->low;
    size_t at = 0, n = 0, bytes = 0;
    while (at < r->span || n) {
        while (at < r->span && !mask[at])
            at++;
        size_t first = at;
        while (at < r->span && mask[at])
            at++;
        if (at > first) {
            here[n] = (struct iovec){(void *)(uintptr_t)(local + first), at - first};
            there[n++] = (struct iovec){(void *)(uintptr_t)(base + first), at - first};
            bytes += at - first;
        }
        if (n == RUNS || (at == r->span && n)) {
            if (process_vm_writev(owner_pid(r), here, n, there, n, 0) != (ssize_t)bytes) {
                int rc = remote_failure(r->w, r->target);
                if (rc)
                    return rc;
                at = n = bytes = 0;
                base = r->w->members[r->target].base + r->at + (uint64_t)r->low;
                continue;
            }
            n = bytes = 0;
        }
    }
    return MPI_SUCCESS;
}

int ftrma_image(const struct reach *r, char **address, char **owned)
{
    *owned = NULL;
    *address = ftrma_direct(r);
    if (*address || !r->span)
        return MPI_SUCCESS;
    *owned = malloc(r->span);
    if (!*owned)
        return MPI_ERR_NO_MEM;
    *address = *owned - r->low;
    return ftrma_remote(r, *owned, 0);
}

int ftrma_make_mask(const struct reach *r, int count, MPI_Datatype type, char **mask)
{
    size_t bytes;
    int rc = ftrma_packed_bytes(count, type, &bytes);
    char *ones = malloc(bytes + 1);
    *mask = calloc(r->span + 1, 1);
    if (!rc && (!ones || !*mask))
        rc = MPI_ERR_NO_MEM;
    if (!rc) {
        memset(ones, 1, bytes);
        rc = ftrma_from_bytes(ones, bytes, *mask - r->low, count, type);
    }
    free(ones);
    return rc;
}

int ftrma_put_back(const struct reach *r, char *owned, int count, MPI_Datatype type, int rc)
{
    if (owned && !rc && ftrma_basic_size(type)) {
        rc = ftrma_remote(r, owned, 1);
    } else if (owned && !rc) {
        char *mask;
        rc = ftrma_make_mask(r, count, type, &mask);
        if (!rc && is_far(r->w, r->target))
            rc = ftrma_far_runs(r, owned, mask);
        else if (!rc)
            rc = remote_runs(r, owned, mask);
        free(mask);
    }
    free(owned);
    return rc;
}

int ftrma_part_write(struct window *w, int member, uint64_t at, const void *bytes, size_t n)
{
    struct reach r = {.w = w, .target = member, .at = at, .span = n};
    char *to = ftrma_direct(&r);
    if (!to)
        return ftrma_remote(&r, (void *)(uintptr_t)bytes, 1);
    memcpy(to, bytes, n);
    return MPI_SUCCESS;
}
