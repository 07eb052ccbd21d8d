/* The waits and alarms of csrc/job, compiled so that many processes of a simulated job live in one
 * real process and take turns at each load and store of a shared word.
 *
 * The sources are those that ship. Around them stand: a point before each access to a shared word,
 * where the scheduler may take another process's turn; waits that give the turn away instead of
 * sleeping; a clock that the scheduler sets; and the words that a process has of its own, which are
 * exchanged when the turn changes. The scheduler is tests/sim/scheduler.py.
 */
#define _GNU_SOURCE
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "internal.h"

enum { SIM_POINT, SIM_WAIT, SIM_VISIT, SIM_INTERRUPT, SIM_LIVE };
typedef int sim_hook(int kind, uint32_t *word, uint64_t value, uint64_t ns);

static sim_hook *hook;
static int64_t left = INT64_MAX; /* points until the turn ends */
static uint64_t points, now_ns;

static void sim_point(void)
{
    points++;
    if (--left <= 0)
        hook(SIM_POINT, NULL, 0, 0);
}

#undef LOAD
#undef STORE
#define LOAD(p) ({ sim_point(); __atomic_load_n((p), __ATOMIC_ACQUIRE); })
#define STORE(p, v) ({ sim_point(); __atomic_store_n((p), (v), __ATOMIC_SEQ_CST); })
#define __atomic_compare_exchange_n(...) \
    ({ sim_point(); __atomic_compare_exchange_n(__VA_ARGS__); })

#include "control.h"
/* These functions of control.c get other names, since the simulator has its own, below. */
#define ftrma_now_ns shipped_now_ns
#define ftrma_wait_step shipped_wait_step
#define ftrma_nap shipped_nap
#define ftrma_sleep shipped_sleep
#define write(fd, bytes, n) sim_poke(fd)
static long sim_poke(int node);
#include "control.c"
#undef write
#undef ftrma_now_ns
#undef ftrma_wait_step
#undef ftrma_nap
#undef ftrma_sleep

#include "alarm.c"
#include "attempt.c"
#include "event_clock.c"
#define interrupt interrupt_function
#include "interrupt.c"
#undef interrupt
#include "event.c"
#include "meet.c"

/* A waiter lets others have the processor for a moment before it sleeps. */
#define sched_yield() hook(SIM_WAIT, NULL, 0, SPIN_NS / 2)
#include "mail.c"
#undef sched_yield

/* ---- in place of the rest of the data plane ------------------------------------------------------ */

int ftrma_code_unwind = 1000;
int ftrma_tracing;
struct ftrma_trace_record ftrma_trace;

uint64_t ftrma_now_ns(void)
{
    return now_ns;
}

void ftrma_wait_step(unsigned *step, struct ftrma_bell *bell, uint32_t seen, uint64_t awaits)
{
    ftrma_ctl->proc[ftrma_me].awaits = awaits;
    hook(SIM_WAIT, &bell->word, seen, NAP_NS);
    ++*step;
}

void ftrma_nap(struct ftrma_bell *bell, uint32_t seen, uint64_t ns, uint64_t awaits)
{
    ftrma_ctl->proc[ftrma_me].awaits = awaits;
    hook(SIM_WAIT, &bell->word, seen, ns);
}

void ftrma_sleep(uint32_t seen, uint64_t timeout_us)
{
    hook(SIM_WAIT, &ftrma_ctl->bell.word, seen, timeout_us * 1000);
}

void ftrma_failpoint_visit(int failpoint)
{
    hook(SIM_VISIT, NULL, (uint64_t)failpoint, 0);
}

void ftrma_attempt_end(void)
{
    ftrma_attempt_advance();
    ftrma_slots_barrier_reset();
}

void ftrma_attempt_begin(void)
{
    ftrma_attempt_join();
}

int ftrma_join(struct ftrma_ctl *ctl, int proc, const char *directory)
{
    (void)directory;
    ftrma_me = proc;
    ftrma_ctl = ctl;
    of_job = NULL;
    ftrma_round = LOAD(&ctl->alarm);
    ctl->proc[proc].leaving = 0;
    STORE(&ctl->proc[proc].state, FTRMA_ALIVE);
    return 0;
}

void ftrma_results_lost(int slot)
{
    for (int i = 0; i < 2; i++)
        ftrma_ctl->slots[slot].marks[i].broken |= FTRMA_BROKEN_CHECKSUM;
    STORE(&ftrma_ctl->slots[slot].demand, 0);
    STORE(&ftrma_ctl->wanted, 1);
}

int ftrma_mark_broken(int slot, uint64_t version, const char **call)
{
    const struct ftrma_mark *mark = &ftrma_ctl->slots[slot].marks[version & 1];
    *call = mark->version == version ? mark->call : "";
    return mark->version == version ? (int)mark->broken : -1;
}

void ftrma_ring_origins(void) {}
void ftrma_progress(void) {}
void ftrma_wake_attend(int attends) { (void)attends; }
void ftrma_log_step(void) {}
void ftrma_trace_begin(int what, int window) { (void)what, (void)window; }
void ftrma_trace_end(int mode, uint64_t event, uint64_t clock) { (void)mode, (void)event, (void)clock; }
void ftrma_trace_note(int what, uint64_t value, uint64_t other) { (void)what, (void)value, (void)other; }
int ftrma_in_prefix(void) { return 0; }

/* ---- marks and replay, without logs: those are the scheduler's ------------------------------------- */

static uint64_t horizon, marked; /* the last complete event of who died; events before the mark */

static void set_mark(struct ftrma_mark *mark, uint64_t version, int start, uint64_t events, uint64_t hash)
{
    *mark = (struct ftrma_mark){.version = version, .start = (uint32_t)start, .events = events,
                                .hash = hash};
}

void ftrma_log_start(uint64_t version)
{
    int index;
    struct ftrma_event_clock *t = &ftrma_event_clock;
    ftrma_my_role(&index);
    *t = (struct ftrma_event_clock){.on = 1, .slot = &ftrma_ctl->slots[index]};
    struct ftrma_slot *s = t->slot;
    STORE(&s->entered, LOAD(&ftrma_ctl->attempt));
    s->clock = s->events = s->hash[0] = s->hash[1] = s->put = 0;
    s->marks[0].version = s->marks[1].version = UINT64_MAX;
    set_mark(&s->marks[version & 1], version, 1, 0, 0);
}

void ftrma_log_mark(uint64_t version, int alone)
{
    struct ftrma_event_clock *t = &ftrma_event_clock;
    (void)alone;
    if (t->on)
        set_mark(&t->slot->marks[version & 1], version, 0, t->events + 1,
                 ftrma_mix(t->hash, t->signature));
}

void sim_replay(int slot, uint64_t version)
{
    struct ftrma_slot *s = &ftrma_ctl->slots[slot];
    const struct ftrma_mark *mark = &s->marks[version & 1];
    horizon = LOAD(&s->events);
    marked = mark->events;
    ftrma_event_clock = (struct ftrma_event_clock){.on = 1, .slot = s, .mode = FTRMA_REPLAY,
                                                   .events = mark->events, .hash = mark->hash};
}

int ftrma_mode(void)
{
    return ftrma_event_clock.mode;
}

int ftrma_replay_over(void)
{
    return !ftrma_event_clock.mode || ftrma_event_clock.events == horizon;
}

int ftrma_replay_begin(int what)
{
    struct ftrma_event_clock *t = &ftrma_event_clock;
    (void)what;
    if (ftrma_unwinding())
        return ftrma_code_unwind;
    if (t->events < horizon)
        return 1;
    hook(SIM_LIVE, NULL, t->events > marked && t->hash != t->slot->hash[t->events & 1], 0);
    t->slot->hash[t->events & 1] = t->hash;
    t->clock = LOAD(&t->slot->clock);
    t->mode = FTRMA_LIVE;
    ftrma_break(FTRMA_BROKEN_RECOVERED);
    STORE(&ftrma_ctl->wanted, 1);
    STORE(&t->slot->replaying, 0);
    STORE(&ftrma_ctl->replays, 0);
    ftrma_wake(&ftrma_ctl->live);
    ftrma_failpoint_visit(FTRMA_FAILPOINT_LIVE);
    return 0;
}

void ftrma_replay_end(void)
{
    ftrma_event_clock.hash = ftrma_mix(ftrma_event_clock.hash, ftrma_event_clock.signature);
    ftrma_event_clock.events++;
}

/* ---- agents of nodes ------------------------------------------------------------------------------- */

static uint32_t pokes[FTRMA_MAX_PROCS]; /* of each node's agent */

static long sim_poke(int node)
{
    pokes[node]++;
    return 1;
}

uint32_t *sim_pokes(int node)
{
    return &pokes[node];
}

/* This process is on a node with an agent, which counts its scans in these words. */
void sim_set_node(int node, const uint64_t *begun, const uint64_t *newest_ordered)
{
    ftrma_agent_bell = node;
    ftrma_set_scans(begun, newest_ordered);
}

/* ---- turns --------------------------------------------------------------------------------------- */

/* The words that a process has of its own. */
struct sim_process {
    struct ftrma_ctl *ctl;
    int me;
    int agent; /* the number of its node, if it has an agent; else -1 */
    const uint64_t *scans, *ordered;
    uint64_t round, attempt, lost, barriers, horizon, marked;
    struct ftrma_thread thread;
    struct ftrma_event_clock clock;
};

static int ask_interrupt(void)
{
    return hook(SIM_INTERRUPT, NULL, 0, 0);
}

void sim_begin(sim_hook *function)
{
    hook = function;
    points = 0;
    ftrma_set_interrupt(ask_interrupt);
}

void sim_clear(struct sim_process *p)
{
    *p = (struct sim_process){.me = -1, .agent = -1, .attempt = 1, .thread = {.round = UINT64_MAX}};
}

/* A thread of process `me` that watches the others. */
void sim_watch(struct sim_process *p, void *ctl, int me, int node)
{
    sim_clear(p);
    p->ctl = ctl;
    p->me = me;
    p->agent = node;
}

/* The mail of each process of the newest launch; its main and its watching thread share it. */
static struct ftrma_mail *mails[FTRMA_MAX_PROCS];

/* The watching thread looks at the alarm. */
void sim_see_alarm(void)
{
    if (ftrma_pending())
        ftrma_alarm_seen();
}

/* Give the memory of a mail back, when the job is over. */
void sim_close_mail(struct ftrma_mail *m)
{
    munmap(m->h, m->file_bytes);
    free(m);
}

void sim_exchange(struct sim_process *off, const struct sim_process *on)
{
    if (off)
        *off = (struct sim_process){ftrma_ctl, ftrma_me, ftrma_agent_bell, scans, ordered, ftrma_round, ftrma_attempt,
                                    ftrma_thread_lost, ftrma_barriers, horizon, marked,
                                    ftrma_thread, ftrma_event_clock};
    if (ftrma_me >= 0)
        mails[ftrma_me] = of_job;
    ftrma_ctl = on->ctl;
    ftrma_me = on->me;
    of_job = ftrma_me >= 0 ? mails[ftrma_me] : NULL;
    ftrma_agent_bell = on->agent;
    scans = on->scans;
    ordered = on->ordered;
    ftrma_round = on->round;
    ftrma_attempt = on->attempt;
    ftrma_thread_lost = on->lost;
    ftrma_barriers = on->barriers;
    horizon = on->horizon;
    marked = on->marked;
    ftrma_thread = on->thread;
    ftrma_event_clock = on->clock;
}

void sim_turn(int64_t turn, uint64_t now)
{
    left = turn;
    now_ns = now;
}

/* A task: it waits until *bell is not `seen` any more (no bell: NULL) or until a time, and gets no turn
   before `frozen`. */
struct sim_wait {
    const uint32_t *bell;
    uint32_t seen;
    int naps; /* waits in vain, one after another */
    uint64_t until, frozen;
};

/* Choose one of n tasks that can get a turn; `drawn` is a number from 0 to 1. Its place; -1: none can,
   and [out] *next is the time when one will. */
int sim_choose(struct sim_wait **tasks, int n, double drawn, uint64_t now, uint64_t *next)
{
    int ready = 0;
    *next = UINT64_MAX;
    for (int pass = 0; pass < 2; pass++) {
        int chosen = (int)(drawn * ready), found = 0;
        for (int i = 0; i < n; i++) {
            struct sim_wait *w = tasks[i];
            int waits = w->until > now && (!w->bell || *w->bell == w->seen);
            if (waits || w->frozen > now) {
                uint64_t at = w->until > w->frozen ? w->until : w->frozen;
                *next = at < *next ? at : *next;
            } else if (pass && found++ == chosen) {
                if (w->bell)
                    w->naps = *w->bell == w->seen ? w->naps + 1 : 0;
                w->until = 0;
                w->bell = NULL;
                return i;
            }
            ready += !pass && !waits && w->frozen <= now;
        }
        if (!ready)
            break;
    }
    return -1;
}

/* The number of barriers that this process has passed, for its checkpoint; and back from there. */
uint64_t sim_barriers(void)
{
    return ftrma_barriers;
}

void sim_set_barriers(uint64_t barriers)
{
    ftrma_barriers = barriers;
}

/* Wait until a slot is not replayed any more. 0, or 1: unwind. */
int sim_await_live(int slot)
{
    return ftrma_await_live(slot) != MPI_SUCCESS;
}

uint64_t sim_points(void)
{
    return points;
}

uint64_t sim_process_bytes(void)
{
    return sizeof(struct sim_process);
}
