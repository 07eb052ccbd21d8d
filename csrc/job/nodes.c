/* Waking between a process of a job over several nodes and the agent of its node.
 *
 * The agents keep the control files of all nodes equal. A process that has stored something there
 * wakes its agent, which looks for changes (ftrma_tell_agent, control.c); an agent that has stored
 * something wakes processes that sleep at the bells of the control file. The watching thread sleeps
 * in poll() instead, and so does a thread that waits for an answer from another node: they are
 * woken by descriptors.
 */
#define _GNU_SOURCE
#include "nodes.h"

#include <errno.h>
#include <unistd.h>

/* Set by ftrma_set_agent, before the watching thread begins, and when this process comes to a slot. */
static int wake_fifo = -1;
static int origins[2] = {-1, -1};
/* Both are set by ftrma_wire_reach; the origin is set when this process takes over a slot. */
static struct ftrma_origin *wire_origin;
static struct ftrma_ledger *wire_ledger;

/* Show to others that this process waits for another node, as ftrma_nap() does for waits on this
   node. The holder of a lock on another node is not known here. */
static uint64_t show_wait(uint32_t target, int kind, uint64_t began)
{
    struct ftrma_proc *me = &ftrma_ctl->proc[ftrma_me];
    uint64_t now = ftrma_now_ns();
    if (!began) {
        int replayed = target < ftrma_ctl->nslots && LOAD(&ftrma_ctl->slots[target].replaying);
        int atomic = kind == FTRMA_WIRE_ACC || kind == FTRMA_WIRE_FOP || kind == FTRMA_WIRE_CAS;
        enum ftrma_what what = kind == FTRMA_WIRE_LOCK ? FTRMA_WHAT_LOCK
                               : atomic                ? FTRMA_WHAT_ACCUMULATE
                                                       : FTRMA_WHAT_ACK;
        uint64_t awaits = replayed ? ftrma_awaits(FTRMA_WHAT_REPLAY, (int)target)
                                   : ftrma_awaits(what, -1);
        __atomic_store_n(&me->awaits, awaits, __ATOMIC_RELAXED);
    } else {
        __atomic_store_n(&me->waited_ns, me->waited_ns + (now - began), __ATOMIC_RELAXED);
    }
    __atomic_store_n(&me->waiting, !began, __ATOMIC_RELAXED);
    return now;
}

int ftrma_is_lost(uint32_t target)
{
    uint32_t slots = ftrma_ctl->nslots;
    uint32_t node = target < slots ? (uint32_t)ftrma_node_of((int)target) : target - slots;
    return LOAD(&ftrma_ctl->scanned[node]) == FTRMA_MIRROR_LOST;
}

void ftrma_wire_reach(struct ftrma_origin *origin, struct ftrma_ledger *ledger)
{
    if (origin)
        ftrma_origin_set_waits(origin, show_wait);
    wire_ledger = ledger;
    wire_origin = origin;
}

struct ftrma_origin *ftrma_wire_origin(void)
{
    return wire_origin;
}

struct ftrma_ledger *ftrma_wire_ledger(void)
{
    return wire_ledger;
}

void ftrma_set_agent(int bell, int fifo, int origin, int service)
{
    wake_fifo = fifo;
    origins[0] = origin;
    origins[1] = service;
    ftrma_agent_bell = bell;
}

int ftrma_wake_fifo(void)
{
    return wake_fifo;
}

void ftrma_wake_fifo_clear(void)
{
    char rung[256];
    while (wake_fifo >= 0 && read(wake_fifo, rung, sizeof rung) == (ssize_t)sizeof rung)
        ;
}

void ftrma_ring_origins(void)
{
    uint64_t one = 1;
    for (int i = 0; i < 2; i++)
        while (origins[i] >= 0 && write(origins[i], &one, sizeof one) < 0 && errno == EINTR)
            ;
}
