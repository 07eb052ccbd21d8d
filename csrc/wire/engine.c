/* The list of engines.  Each adds itself when its library is loaded, before main(). */
#include "engine.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#define MOST_ENGINES 8

static const struct ftrma_engine_ops *engines[MOST_ENGINES];
static size_t nengines;

void ftrma_engine_register(const struct ftrma_engine_ops *ops)
{
    if (nengines < MOST_ENGINES)
        engines[nengines++] = ops;
}

const char *ftrma_engine_name(size_t index)
{
    return index < nengines ? engines[index]->name : NULL;
}

int ftrma_engine_open(const char *name, int side, struct ftrma_engine **engine)
{
    for (size_t i = 0; i < nengines; i++)
        if (!strcmp(engines[i]->name, name))
            return engines[i]->open(side, engine);
    return -ENOENT;
}

uint64_t ftrma_engine_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}
