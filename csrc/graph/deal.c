/*
 * Edges on their way to their owners, and the numbers that a slot gives the vertices that its edges
 * lead to; see graph.h.
 *
 * Both read each edge once in a pass, and allocate no memory: for graphs of many edges the passes
 * are the cost of loading.
 */
#include "graph.h"
#include "owner.h"

#include <string.h>

int ftrma_graph_deal(const struct ftrma_graph_ownership *of, const int64_t *source,
                     const int64_t *target, const double *weight, size_t m, uint32_t *owner,
                     int64_t *count, uint32_t *row, uint32_t *to, double *heavy)
{
    const uint64_t n = (uint64_t)of->n;
    memset(count, 0, of->slots * sizeof *count);
    for (size_t e = 0; e < m; e++) {
        if ((uint64_t)source[e] >= n || (uint64_t)target[e] >= n)
            return -1;
        owner[e] = owner_of(of, source[e]);
        count[owner[e]]++;
    }
    int64_t begin = 0;
    for (uint32_t slot = 0; slot < of->slots; slot++) {
        const int64_t here = count[slot];
        count[slot] = begin;
        begin += here;
    }
    for (size_t e = 0; e < m; e++) {
        const int64_t at = count[owner[e]]++;
        row[at] = local_of(of, source[e], owner[e]);
        to[at] = (uint32_t)target[e];
        if (weight != NULL)
            heavy[at] = weight[e];
    }
    for (uint32_t slot = of->slots - 1; slot > 0; slot--)
        count[slot] -= count[slot - 1];
    return 0;
}

void ftrma_graph_mark(const struct ftrma_graph_ownership *of, const uint32_t *target, size_t m,
                      uint32_t *number, int64_t *bounds)
{
    for (size_t e = 0; e < m; e++)
        number[target[e]] = 1;
    memset(bounds, 0, (of->slots + (size_t)1) * sizeof *bounds);
    for (int64_t id = 0; id < of->n; id++)
        if (number[id])
            bounds[owner_of(of, id) + (size_t)1]++;
    for (uint32_t slot = 0; slot < of->slots; slot++)
        bounds[slot + (size_t)1] += bounds[slot];
}

void ftrma_graph_number(const struct ftrma_graph_ownership *of, uint32_t *target, size_t m,
                        uint32_t *number, int64_t *next, int64_t *distinct)
{
    for (int64_t id = 0; id < of->n; id++) {
        if (number[id]) {
            const int64_t at = next[owner_of(of, id)]++;
            distinct[at] = id;
            number[id] = (uint32_t)at;
        }
    }
    for (size_t e = 0; e < m; e++)
        target[e] = number[target[e]];
}
