/* Kill rules: a process that comes to a failpoint counts the visit, and dies there if a --kill rule
   demands it. */
#include "killrules.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "control.h"
#include "event_clock.h"
#include "nodes.h"

uint32_t ftrma_armed;

static int rule_is_mine(const struct ftrma_rule *rule)
{
    int index, role = ftrma_my_role(&index);
    return !LOAD(&rule->fired) && rule->role == role && rule->index == index;
}

void ftrma_arm(void)
{
    uint32_t armed = 0;
    for (uint32_t i = 0; i < ftrma_ctl->nrules; i++)
        if (rule_is_mine(&ftrma_ctl->rules[i]))
            armed |= 1u << ftrma_ctl->rules[i].failpoint;
    __atomic_store_n(&ftrma_armed, armed, __ATOMIC_RELAXED);
}

static int agent_here(void)
{
    return ftrma_wire_ledger() ? ftrma_ledger_agent(ftrma_wire_ledger()) : 0;
}

/* Kill the agent. This process goes on, so the rule is marked as spent at once. */
static void strike_agent(struct ftrma_rule *rule, uint32_t number)
{
    int pid = agent_here();
    if (__atomic_exchange_n(&rule->fired, 2, __ATOMIC_SEQ_CST) || pid <= 0)
        return;
    if (ftrma_link >= 0)
        ftrma_tell("{\"event\": \"spent\", \"rule\": %u}\n", number);
    kill(pid, SIGKILL);
}

/* Kill all of this node but this process: the launcher's daemon, which is the parent of its
   processes, the agent, and the other processes. */
static void strike_node(void)
{
    int agent = agent_here();
    kill(getppid(), SIGKILL);
    if (agent > 0)
        kill(agent, SIGKILL);
    for (uint32_t p = 0; p < ftrma_ctl->nprocs; p++) {
        const struct ftrma_proc *other = &ftrma_ctl->proc[p];
        if ((int)p != ftrma_me && other->node == ftrma_node_here() && other->pid > 0)
            kill(other->pid, SIGKILL);
    }
}

static void visit(int failpoint, const char *name)
{
    for (uint32_t i = 0; i < ftrma_ctl->nrules; i++) {
        struct ftrma_rule *rule = &ftrma_ctl->rules[i];
        if (rule->failpoint != failpoint || !rule_is_mine(rule)
            || (name && strcmp(rule->name, name)))
            continue;
        uint64_t n;
        if (failpoint == FTRMA_FAILPOINT_TIME) {
            uint64_t start = LOAD(&ftrma_ctl->start_ns);
            n = start ? (ftrma_now_ns() - start) / 1000000u : 0;
        } else {
            n = __atomic_add_fetch(&rule->visits, 1, __ATOMIC_SEQ_CST);
        }
        if (n >= rule->at && rule->victim == FTRMA_VICTIM_AGENT) {
            strike_agent(rule, i);
        } else if (n >= rule->at) {
            STORE(&rule->fired, 1);
            STORE(&ftrma_ctl->kill_ns, ftrma_now_ns());
            if (ftrma_link >= 0)
                ftrma_tell("{\"event\": \"strike\", \"rule\": %u}\n", i);
            if (rule->victim == FTRMA_VICTIM_NODE)
                strike_node();
            kill(getpid(), SIGKILL);
        }
    }
}

void ftrma_failpoint_visit(int failpoint)
{
    /* A failpoint that is only replayed was visited before. */
    if (!ftrma_event_clock.mode || failpoint > FTRMA_FAILPOINT_STAGED)
        visit(failpoint, NULL);
}

void ftrma_failpoint_visit_named(const char *name)
{
    if (!ftrma_event_clock.mode && ftrma_armed & (1u << FTRMA_FAILPOINT_NAMED))
        visit(FTRMA_FAILPOINT_NAMED, name);
}
