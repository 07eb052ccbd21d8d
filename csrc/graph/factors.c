/*
 * Factors of a matrix, changed along the known entries of its columns; see graph.h.
 *
 * Stochastic gradient descent, one entry after the other: each entry of a column sees the column's
 * factors as the entry before has left them.
 */
#include "graph.h"

/* Lanes of a product: the sum has one order, whatever the processor adds at once. */
#define LANES 4

static double dot(const double *restrict a, const double *restrict b, size_t rank)
{
    double sum[LANES] = {0};
    size_t i = 0;
    for (; i + LANES <= rank; i += LANES)
        for (size_t lane = 0; lane < LANES; lane++)
            sum[lane] += a[i + lane] * b[i + lane];
    for (size_t lane = 0; i + lane < rank; lane++)
        sum[lane] += a[i + lane] * b[i + lane];
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

void ftrma_graph_visit(const struct ftrma_graph_entries *entries, double *rows, double *columns,
                       const int64_t *which, size_t n, const double *step, double regularization,
                       double *squares)
{
    const size_t rank = entries->rank;
    for (size_t c = 0; c < n; c++) {
        double *restrict const column = columns + c * entries->stride;
        const double keep = 1 - step[c] * regularization;
        double sum = 0;
        for (int64_t e = entries->ptr[which[c]]; e < entries->ptr[which[c] + 1]; e++) {
            double *restrict const row = rows + entries->row[e] * rank;
            const double error = entries->value[e] - dot(row, column, rank);
            const double by = step[c] * error;
            sum += error * error;
            for (size_t i = 0; i < rank; i++) {
                const double before = row[i];
                row[i] = keep * before + by * column[i];
                column[i] = keep * column[i] + by * before;
            }
        }
        squares[c] = sum;
    }
}
