/* Triangles by lists of neighbours; see graph.h. */
#include "graph.h"

void ftrma_graph_triangles(const int64_t *ptr, const uint32_t *target, size_t nrows,
                           const int64_t *list, const uint32_t *member, uint8_t *mark,
                           int64_t *count)
{
    for (size_t v = 0; v < nrows; v++) {
        int64_t found = 0;
        for (int64_t e = ptr[v]; e < ptr[v + 1]; e++)
            mark[target[e]] = 1;
        for (int64_t e = ptr[v]; e < ptr[v + 1]; e++) {
            const uint32_t u = target[e];
            for (int64_t i = list[u]; i < list[u + 1]; i++)
                found += mark[member[i]];
        }
        for (int64_t e = ptr[v]; e < ptr[v + 1]; e++)
            mark[target[e]] = 0;
        count[v] += found;
    }
}
