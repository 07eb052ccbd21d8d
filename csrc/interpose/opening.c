/* Opening the boards of new communicators before anybody uses them.
 *
 * On one node the member that comes first makes a board, and the others find it. Over several nodes
 * members put to each other's boards, and nobody may do so before the board exists. So all members
 * of the parent meet when each has opened its own.
 */
#include "opening.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "errors.h"
#include "event_clock.h"
#include "exchange.h"

/* A member of the parent sends this to the others. */
struct opening {
    uint64_t id, makeup; /* the new communicator's id, and a hash of its whole spec; 0: this
                            member makes none */
    int64_t error;
};

static int fail(MPI_Comm handle, int error)
{
    int code;
    if (error == -EPROTO)
        code = ftrma_error_code(MPI_ERR_OTHER, "slots make different communicators in the "
                                "same place: calls come in the same order, with arguments that "
                                "agree, on all");
    else if (error == -EEXIST)
        code = ftrma_error_code(MPI_ERR_OTHER, "this communicator and another one have, "
                                "by chance, the same number between nodes: free the other one "
                                "before, or make one more in between");
    else if (error == -EMFILE)
        code = ftrma_error_code(MPI_ERR_OTHER, "too many communicators and windows: "
                                "free some");
    else
        code = ftrma_error_code(MPI_ERR_NO_MEM, "no memory for a communicator (%s): free "
                                "space in /dev/shm", strerror(-error));
    PMPI_Comm_call_errhandler(handle, code);
    return code;
}

static uint64_t makeup_of(const struct ftrma_spec *spec)
{
    uint64_t h = 0;
    uint64_t word;
    for (size_t i = 0; i < sizeof *spec / sizeof word; i++) {
        memcpy(&word, (const char *)spec + i * sizeof word, sizeof word);
        h = ftrma_mix(h, word);
    }
    return h;
}
_Static_assert(sizeof(struct ftrma_spec) % sizeof(uint64_t) == 0, "all of it is looked at");

/* The error in another member's opening: its own error, or that it makes another communicator under
   this id. */
static int trouble(const struct opening *mine, const struct opening *other)
{
    int differs = other->id == mine->id && other->makeup != mine->makeup;
    return other->error ? (int)other->error : differs ? -EPROTO : 0;
}

int ftrma_opening_await(struct communicator *parent, const struct ftrma_spec *spec, int error)
{
    struct opening mine = {spec ? spec->id : 0, spec ? makeup_of(spec) : 0, error};
    size_t chunk;
    int passed = 0, n = parent->spec.n;
    if (!parent->nothers) /* the members of all that is made of it are on this node, too */
        return error ? fail(parent->handle, error) : MPI_SUCCESS;
    struct opening *all = malloc((size_t)n * sizeof *all);
    if (!all)
        return fail(parent->handle, -ENOMEM);
    int rc = ftrma_exchange_open(parent, &chunk);
    if (!rc)
        rc = ftrma_gather_all(&mine, sizeof mine, all, 0, &passed);
    for (int r = 0; r < n && !rc && !passed && !error; r++)
        error = trouble(&mine, &all[r]);
    free(all);
    return rc || !error ? rc : fail(parent->handle, error);
}
