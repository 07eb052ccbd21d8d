/*
 * Owners of vertices; see graph.h.
 *
 * Ids are dealt out in rounds: N consecutive ids go to N slots, one each, and a round begins with a
 * slot that follows from the round alone, as if at random. So a slot's vertices have numbers that
 * ascend without gaps, and no pattern in the bits of ids (R-MAT's low bits, a grid's rows) leaves one
 * slot with more edges than another.
 */
#include "graph.h"
#include "mix.h"

void ftrma_graph_owners(const int64_t *ids, size_t count, uint32_t slots, int64_t *owner)
{
    const uint64_t size = slots;
    for (size_t i = 0; i < count; i++) {
        const uint64_t id = (uint64_t)ids[i];
        const uint64_t round = id >> 32 == 0 ? (uint32_t)id / slots : id / size;
        const uint64_t at = id - round * size + ((mix(round) >> 32) * size >> 32);
        owner[i] = (int64_t)(at < size ? at : at - size);
    }
}
