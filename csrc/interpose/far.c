/* Members of a window or communicator on other nodes.
 *
 * Each node has a file of the window with its own members' parts and a header for all, whose words
 * lie where they are waited for; a member that changes a word on another node has the agent there
 * raise it. Each node also has a board of a communicator, which is written in the same way. A word
 * that is raised is under way when the call returns, and a flush waits for it; a lock is taken or
 * given when the call returns.
 */
#include "far.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "board.h"
#include "nodes.h"
#include "origin_lock.h"

/* ---- windows come and go -------------------------------------------------------------------- */

static uint64_t offset_of(const struct window *w, const void *in_head)
{
    return (uint64_t)((const char *)in_head - w->map);
}

int ftrma_far_announce(struct window *w)
{
    const struct ftrma_member *m = &w->members[w->me];
    struct ftrma_wire_part place = {
        .window = w->wire, .target = slot_of(w, w->me), .generation = 1,
        .pid = w->allocated ? 0 : getpid(), .at = w->allocated ? m->offset : m->base,
        .bytes = m->size_bytes, .words = offset_of(w, &m->slot),
        .head = offset_of(w, pair(w, w->n, 0))};
    _Static_assert(sizeof place.file >= sizeof w->name, "the name has room");
    memcpy(place.file, w->name, sizeof w->name);
    struct ftrma_ledger *ledger = ftrma_wire_ledger();
    if (w->placed < 0) /* the part of this slot's last process, with the locks that others hold
                          there */
        w->placed = ftrma_parts_find(ledger, w->wire, place.target, place.generation);
    if (w->placed < 0)
        w->placed = ftrma_parts_reserve(ledger, w->wire, place.target);
    return w->placed < 0 ? -EMFILE : ftrma_parts_place(ledger, (uint32_t)w->placed, &place);
}

void ftrma_far_withdraw(struct window *w)
{
    if (w->placed >= 0)
        ftrma_parts_release(ftrma_wire_ledger(), (uint32_t)w->placed);
    w->placed = -1;
}

/* ---- locks and words ------------------------------------------------------------------------ */

/* Await the acknowledgement of all puts, in one step, before a lock is asked for. A put that is
   only acknowledged together with the answer to a lock or atomic would be unknown in a repair that
   finds that request parked. */
int ftrma_far_ask_lock(struct window *w, int target, int how)
{
    uint32_t slot = slot_of(w, target);
    RETURN_WITH_ORIGIN(w, target, count_unanswered(ftrma_origin_flush(ORIGIN, slot)
                                          ?: ftrma_origin_lock(ORIGIN, slot, w->wire, how)));
}

int ftrma_far_ask_unlock(struct window *w, int target, int how)
{
    uint32_t slot = slot_of(w, target);
    RETURN_WITH_ORIGIN(w, target,
                       count_unanswered(ftrma_origin_unlock(ORIGIN, slot, w->wire, how)));
}

int ftrma_far_finish(struct window *w, int target, uint64_t *sc)
{
    struct ftrma_wire_answer answer;
    int result;
    WITH_ORIGIN_FOR_LOCK(result, ftrma_origin_finish(ORIGIN, slot_of(w, target), &answer));
    count_answered();
    if (!result && sc)
        *sc = answer.seq;
    return judge(w, target, result);
}

int ftrma_far_lock(struct window *w, int target, int how)
{
    int rc = ftrma_far_ask_lock(w, target, how);
    return rc ? rc : ftrma_far_finish(w, target, NULL);
}

int ftrma_far_unlock(struct window *w, int target, int how)
{
    int rc = ftrma_far_ask_unlock(w, target, how);
    return rc ? rc : ftrma_far_finish(w, target, NULL);
}

/* For an agent all threads of a process are one origin, so one thread after the other begins a
   change. */
int ftrma_far_begin_change(struct window *w, int target)
{
    pthread_mutex_lock(&ftrma_originlock.changing);
    int rc = ftrma_far_lock(w, target, FTRMA_WIRE_CHANGE);
    if (rc)
        pthread_mutex_unlock(&ftrma_originlock.changing);
    return rc;
}

void ftrma_far_end_change(struct window *w, int target)
{
    ftrma_far_unlock(w, target, FTRMA_WIRE_CHANGE); /* an error is found again at the next access */
    pthread_mutex_unlock(&ftrma_originlock.changing);
}

void ftrma_far_ring(void)
{
    if (ftrma_wire_ledger())
        ftrma_ledger_ring(ftrma_wire_ledger());
}

int ftrma_far_set(struct window *w, int target, const uint64_t *word, uint64_t value)
{
    RETURN_WITH_ORIGIN(w, target, ftrma_origin_set(ORIGIN, slot_of(w, target), w->wire,
                                             offset_of(w, word), value));
}

/* 1 if a member is the first one on another node: all members there are told through it. */
static int is_first_there(const struct window *w, int member)
{
    int first = w->far[member];
    for (int other = 0; other < member && first; other++)
        first = ftrma_node_of(w->members[other].slot) != ftrma_node_of(w->members[member].slot);
    return first;
}

int ftrma_far_tell(struct window *w, const uint64_t *word, uint64_t value)
{
    int rc = MPI_SUCCESS;
    for (int m = 0; m < w->n && !rc; m++)
        if (is_first_there(w, m))
            rc = ftrma_far_set(w, m, word, value);
    return rc;
}

/* ---- what a replay passes over -------------------------------------------------------------- */

void ftrma_far_pass(struct window *w, int target)
{
    uint32_t slot = slot_of(w, target);
    if (is_replayed())
        ftrma_origin_continue(ORIGIN, slot, ftrma_origin_last_number(ORIGIN, slot) + 1);
}

void ftrma_far_pass_tell(struct window *w)
{
    for (int m = 0; w->far && m < w->n; m++)
        if (is_first_there(w, m))
            ftrma_far_pass(w, m);
}

/* ---- boards --------------------------------------------------------------------------------- */

int ftrma_far_others(const struct ftrma_spec *spec, uint32_t *targets)
{
    int n = 0;
    for (int m = 0; m < spec->n; m++) {
        int node = ftrma_node_of(spec->slots[m]), known = node == ftrma_node_here();
        uint32_t target = ftrma_ctl->nslots + (uint32_t)node;
        for (int i = 0; i < n && !known; i++)
            known = targets[i] == target;
        if (!known)
            targets[n++] = target;
    }
    return n;
}

static int show(const struct communicator *c, const void *from, size_t bytes,
                const uint64_t *word, uint64_t value)
{
    const char *board = (const char *)c->board;
    uint32_t window = ftrma_board_window(c->spec.id);
    int result = FTRMA_OK;
    for (int i = 0; i < c->nothers && !result; i++) {
        result = ftrma_origin_put(ORIGIN, c->others[i], window,
                                  (uint64_t)((const char *)from - board), from, bytes);
        if (!result)
            result = ftrma_origin_set(ORIGIN, c->others[i], window,
                                      (uint64_t)((const char *)word - board), value);
    }
    return result;
}

int ftrma_far_show(const struct communicator *c, const void *from, size_t bytes,
                   const uint64_t *word, uint64_t value)
{
    RETURN_WITH_ORIGIN(NULL, -1, show(c, from, bytes, word, value));
}

int ftrma_far_shown(const struct communicator *c)
{
    RETURN_WITH_ORIGIN(NULL, -1, ftrma_origin_flush_each(ORIGIN, c->others, (size_t)c->nothers));
}
