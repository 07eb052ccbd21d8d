/*
 * Owners of vertices; see graph.h.
 *
 * Ids are dealt out in rounds: N consecutive ids go to N slots, one each, and a round begins with a
 * slot that follows from the round alone, as if at random. So a slot's vertices have numbers that
 * ascend without gaps, and no pattern in the bits of ids (R-MAT's low bits, a grid's rows) leaves one
 * slot with more edges than another.
 */
#include "graph.h"
#include "owner.h"

void ftrma_graph_owners(const int64_t *ids, size_t count, uint32_t slots, int64_t *owner)
{
    for (size_t i = 0; i < count; i++)
        owner[i] = owner_mixed((uint64_t)ids[i], slots);
}
