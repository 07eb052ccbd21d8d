/* Counting sorts of edges, stable; see graph.h. */
#include "graph.h"

#include <string.h>

/* ptr[k + 1] becomes the number of keys that are k at most, ptr[0] 0. */
static int count(const uint32_t *key, size_t m, size_t size, int64_t *ptr)
{
    memset(ptr, 0, (size + 1) * sizeof *ptr);
    for (size_t e = 0; e < m; e++) {
        if (key[e] >= size)
            return -1;
        ptr[(size_t)key[e] + 1]++;
    }
    for (size_t k = 0; k < size; k++)
        ptr[k + 1] += ptr[k];
    return 0;
}

/* Moves each beginning back: placing the edges has moved it to its end, where the next one
   begins. */
static void move_back(int64_t *ptr, size_t size)
{
    memmove(ptr + 1, ptr, size * sizeof *ptr);
    ptr[0] = 0;
}

int ftrma_graph_csr(const uint32_t *row, const uint32_t *target, const double *weight, size_t m,
                    size_t size, int64_t *ptr, uint32_t *target_sorted, double *weight_sorted)
{
    if (count(row, m, size, ptr) != 0)
        return -1;
    for (size_t e = 0; e < m; e++) {
        const int64_t at = ptr[row[e]]++;
        target_sorted[at] = target[e];
        if (weight != NULL)
            weight_sorted[at] = weight[e];
    }
    move_back(ptr, size);
    return 0;
}

int ftrma_graph_by_target(const int64_t *ptr, const uint32_t *target, const double *weight,
                          size_t nrows, size_t size, int64_t *by_ptr, uint32_t *by_row,
                          double *by_weight)
{
    if (count(target, (size_t)ptr[nrows], size, by_ptr) != 0)
        return -1;
    for (size_t row = 0; row < nrows; row++) {
        for (int64_t e = ptr[row]; e < ptr[row + 1]; e++) {
            const int64_t at = by_ptr[target[e]]++;
            by_row[at] = (uint32_t)row;
            if (weight != NULL)
                by_weight[at] = weight[e];
        }
    }
    move_back(by_ptr, size);
    return 0;
}

void ftrma_graph_distinct(int64_t *ptr, uint32_t *target, size_t nrows)
{
    int64_t to = ptr[0], begin = ptr[0];
    for (size_t row = 0; row < nrows; row++) {
        const int64_t end = ptr[row + 1], first = to;
        for (int64_t e = begin; e < end; e++)
            if (to == first || target[to - 1] != target[e])
                target[to++] = target[e];
        begin = end;
        ptr[row + 1] = to;
    }
}
