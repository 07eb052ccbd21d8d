/* Failpoints: the agent kills itself by SIGKILL, as `--kill` of a job kills a process. */
#include "failpoint.h"

#include <signal.h>
#include <unistd.h>

void ftrma_failpoint(struct ftrma_agent *a, int failpoint)
{
    if (unlikely(a->failpoint == failpoint) && --a->visits == 0)
        kill(getpid(), SIGKILL);
}

void ftrma_agent_kill_at(struct ftrma_agent *a, int failpoint, uint64_t count)
{
    a->failpoint = failpoint;
    a->visits = count;
}
