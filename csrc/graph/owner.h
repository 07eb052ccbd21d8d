/* The owner of a vertex, and its number there; see owners.c. */
#ifndef FTRMA_GRAPH_OWNER_H
#define FTRMA_GRAPH_OWNER_H

#include "graph.h"
#include "mix.h"

/* Vertices that are dealt out in rounds of `slots` ids each. */
static inline uint32_t owner_mixed(uint64_t id, uint32_t slots)
{
    const uint64_t size = slots;
    const uint64_t round = id >> 32 == 0 ? (uint32_t)id / slots : id / size;
    const uint64_t at = id - round * size + ((mix(round) >> 32) * size >> 32);
    return (uint32_t)(at < size ? at : at - size);
}

/* Stretches of vertices; a slot may have none. */
static inline uint32_t owner_between(int64_t id, const int64_t *bounds, uint32_t slots)
{
    uint32_t low = 0, high = slots; /* bounds[low] <= id < bounds[high] */
    while (high - low > 1) {
        const uint32_t middle = low + (high - low) / 2;
        if (bounds[middle] <= id)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static inline uint32_t owner_of(const struct ftrma_graph_ownership *of, int64_t id)
{
    return of->bounds == NULL ? owner_mixed((uint64_t)id, of->slots)
                              : owner_between(id, of->bounds, of->slots);
}

/* The number of a vertex among those of its owner. */
static inline uint32_t local_of(const struct ftrma_graph_ownership *of, int64_t id, uint32_t owner)
{
    if (of->bounds != NULL)
        return (uint32_t)(id - of->bounds[owner]);
    return id >> 32 == 0 ? (uint32_t)id / of->slots : (uint32_t)(id / of->slots);
}

#endif
