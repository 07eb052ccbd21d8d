/* Places at which an agent kills itself, for tests: as `--kill` of a job, by SIGKILL, where it is told. */
#include "strike.h"

#include <signal.h>
#include <unistd.h>

void ftrma_strike(struct ftrma_agent *a, int place)
{
    if (unlikely(a->place == place) && --a->visits == 0)
        kill(getpid(), SIGKILL);
}

void ftrma_agent_kill_at(struct ftrma_agent *a, int place, uint64_t count)
{
    a->place = place;
    a->visits = count;
}
