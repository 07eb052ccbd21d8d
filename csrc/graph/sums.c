/*
 * Messages combined along edges; see graph.h.
 *
 * Sums of floats depend on their order, so each target has a fixed order: that of its edges. One
 * loop is made for each type, combination and use; combinations that are not in the table below
 * have none.
 */
#include "graph.h"

#include <string.h>

/* The second one if both are equal, the first one if it is NaN, as in NumPy. */
#define ADD(a, b) ((a) + (b))
#define MIN(a, b) ((a) < (b) || (a) != (a) ? (a) : (b))
#define MAX(a, b) ((a) > (b) || (a) != (a) ? (a) : (b))
#define LESS(a, b) ((a) < (b) ? (a) : (b)) /* of integers */
#define MORE(a, b) ((a) > (b) ? (a) : (b))
#define WRAP32(a, b) ((int32_t)((uint32_t)(a) + (uint32_t)(b)))
#define WRAP64(a, b) ((int64_t)((uint64_t)(a) + (uint64_t)(b)))

#define PLAIN(T, x, e) (x)
#define PLUS(T, x, e) ((T)((double)(x) + weight[e]))
#define TIMES(T, x, e) ((T)((double)(x) * weight[e]))

/*
 * In gather_some a vertex that does not send adds a value that changes no bit: a branch on this
 * would be mispredicted (measured: 5 ns for an edge, and 2 without the branch).
 */
#define PICK(T, WORD)                                                                             \
    static inline T pick_##T(uint8_t first, T a, T b)                                             \
    {                                                                                             \
        WORD one, other;                                                                          \
        memcpy(&one, &a, sizeof one);                                                             \
        memcpy(&other, &b, sizeof other);                                                         \
        one = (one & (WORD)-(WORD)first) | (other & (WORD)((WORD)first - 1));                     \
        memcpy(&a, &one, sizeof a);                                                               \
        return a;                                                                                 \
    }

PICK(double, uint64_t)
PICK(float, uint32_t)
PICK(int64_t, uint64_t)
PICK(int32_t, uint32_t)
PICK(uint64_t, uint64_t)

#define SUMS(NAME, T, COMBINE, NEUTRAL, ALONG)                                                    \
    static void scatter_##NAME(void *values, uint8_t *got, const int64_t *ptr,                    \
                               const uint32_t *target, const double *weight, const int64_t *rows, \
                               size_t nrows, const void *x)                                       \
    {                                                                                             \
        T *const sum = values;                                                                    \
        const T *const from = x;                                                                  \
        (void)weight;                                                                             \
        for (size_t j = 0; j < nrows; j++) {                                                      \
            const size_t r = rows != NULL ? (size_t)rows[j] : j;                                  \
            const T mine = from[j];                                                               \
            for (int64_t e = ptr[r]; e < ptr[r + 1]; e++) {                                       \
                const uint32_t to = target[e];                                                    \
                const T message = ALONG(T, mine, e);                                              \
                sum[to] = COMBINE(sum[to], message);                                              \
                if (got != NULL)                                                                  \
                    got[to] = 1;                                                                  \
            }                                                                                     \
        }                                                                                         \
    }                                                                                             \
                                                                                                   \
    static void gather_all_##NAME(T *values, uint8_t *got, const int64_t *ptr,                    \
                                  const uint32_t *row, const double *weight, size_t n,            \
                                  const T *x)                                                     \
    {                                                                                             \
        (void)weight;                                                                             \
        for (size_t t = 0; t < n; t++) {                                                          \
            T sum = values[t];                                                                    \
            for (int64_t e = ptr[t]; e < ptr[t + 1]; e++) {                                       \
                const T message = ALONG(T, x[row[e]], e);                                         \
                sum = COMBINE(sum, message);                                                      \
            }                                                                                     \
            values[t] = sum;                                                                      \
            if (got != NULL && ptr[t + 1] > ptr[t])                                               \
                got[t] = 1;                                                                       \
        }                                                                                         \
    }                                                                                             \
                                                                                                   \
    static void gather_some_##NAME(T *values, uint8_t *got, const int64_t *ptr,                   \
                                   const uint32_t *row, const double *weight, size_t n,           \
                                   const T *x, const uint8_t *sending)                            \
    {                                                                                             \
        (void)weight;                                                                             \
        for (size_t t = 0; t < n; t++) {                                                          \
            T sum = values[t];                                                                    \
            uint8_t any = 0;                                                                      \
            for (int64_t e = ptr[t]; e < ptr[t + 1]; e++) {                                       \
                const uint8_t sends = sending[row[e]];                                            \
                const T message = ALONG(T, x[row[e]], e);                                         \
                const T mine = pick_##T(sends, message, NEUTRAL);                                 \
                sum = COMBINE(sum, mine);                                                         \
                any |= sends;                                                                     \
            }                                                                                     \
            values[t] = sum;                                                                      \
            if (got != NULL)                                                                      \
                got[t] |= any;                                                                    \
        }                                                                                         \
    }                                                                                             \
                                                                                                   \
    static void gather_##NAME(void *values, uint8_t *got, const int64_t *ptr, const uint32_t *row, \
                              const double *weight, size_t n, const void *x,                      \
                              const uint8_t *sending)                                             \
    {                                                                                             \
        if (sending == NULL)                                                                      \
            gather_all_##NAME(values, got, ptr, row, weight, n, x);                               \
        else                                                                                      \
            gather_some_##NAME(values, got, ptr, row, weight, n, x, sending);                     \
    }                                                                                             \
                                                                                                   \
    static void fold_##NAME(void *values, uint8_t *got, const int64_t *rows, size_t n,            \
                            const void *theirs, const uint8_t *there)                             \
    {                                                                                             \
        T *const sum = values;                                                                    \
        const T *const from = theirs;                                                             \
        for (size_t i = 0; i < n; i++) {                                                          \
            if (there != NULL && !there[i])                                                       \
                continue;                                                                         \
            const size_t to = (size_t)rows[i];                                                    \
            const T message = from[i];                                                            \
            sum[to] = COMBINE(sum[to], message);                                                  \
            if (got != NULL)                                                                      \
                got[to] = 1;                                                                      \
        }                                                                                         \
    }

#define FLOATS(NAME, T, ALONG)                                                                    \
    SUMS(NAME##_add, T, ADD, (T)-0.0, ALONG)                                                      \
    SUMS(NAME##_min, T, MIN, (T)__builtin_inf(), ALONG)                                           \
    SUMS(NAME##_max, T, MAX, -(T)__builtin_inf(), ALONG)
#define INTEGERS(NAME, T, WRAP, LEAST, MOST)                                                      \
    SUMS(NAME##_add, T, WRAP, 0, PLAIN)                                                           \
    SUMS(NAME##_min, T, LESS, MOST, PLAIN)                                                        \
    SUMS(NAME##_max, T, MORE, LEAST, PLAIN)

FLOATS(f64, double, PLAIN)
FLOATS(f64_plus, double, PLUS)
FLOATS(f64_times, double, TIMES)
FLOATS(f32, float, PLAIN)
FLOATS(f32_plus, float, PLUS)
FLOATS(f32_times, float, TIMES)
INTEGERS(i64, int64_t, WRAP64, INT64_MIN, INT64_MAX)
INTEGERS(i32, int32_t, WRAP32, INT32_MIN, INT32_MAX)
INTEGERS(u64, uint64_t, ADD, 0, UINT64_MAX)

struct sums {
    void (*scatter)(void *values, uint8_t *got, const int64_t *ptr, const uint32_t *target,
                    const double *weight, const int64_t *rows, size_t nrows, const void *x);
    void (*gather)(void *values, uint8_t *got, const int64_t *ptr, const uint32_t *row,
                   const double *weight, size_t n, const void *x, const uint8_t *sending);
    void (*fold)(void *values, uint8_t *got, const int64_t *rows, size_t n, const void *theirs,
                 const uint8_t *there);
};

enum { TYPES = FTRMA_GRAPH_U64 + 1, COMBINES = FTRMA_GRAPH_MAX + 1, USES = FTRMA_GRAPH_TIMES + 1 };

#define FOR(NAME) {scatter_##NAME, gather_##NAME, fold_##NAME}
#define BY_COMBINE(NAME) {FOR(NAME##_add), FOR(NAME##_min), FOR(NAME##_max)}

static const struct sums table[TYPES][USES][COMBINES] = {
    [FTRMA_GRAPH_F64] = {BY_COMBINE(f64), BY_COMBINE(f64_plus), BY_COMBINE(f64_times)},
    [FTRMA_GRAPH_F32] = {BY_COMBINE(f32), BY_COMBINE(f32_plus), BY_COMBINE(f32_times)},
    [FTRMA_GRAPH_I64] = {BY_COMBINE(i64)},
    [FTRMA_GRAPH_I32] = {BY_COMBINE(i32)},
    [FTRMA_GRAPH_U64] = {BY_COMBINE(u64)},
};

static const struct sums *sums_for(struct ftrma_graph_how how)
{
    if (how.type < 0 || how.type >= TYPES || how.use < 0 || how.use >= USES || how.combine < 0 ||
        how.combine >= COMBINES)
        return NULL;
    const struct sums *const found = &table[how.type][how.use][how.combine];
    return found->scatter != NULL ? found : NULL;
}

int ftrma_graph_scatter(struct ftrma_graph_how how, void *values, uint8_t *got, const int64_t *ptr,
                        const uint32_t *target, const double *weight, const int64_t *rows,
                        size_t nrows, const void *x)
{
    const struct sums *const sums = sums_for(how);
    if (sums == NULL)
        return -1;
    sums->scatter(values, got, ptr, target, weight, rows, nrows, x);
    return 0;
}

int ftrma_graph_gather(struct ftrma_graph_how how, void *values, uint8_t *got, const int64_t *ptr,
                       const uint32_t *row, const double *weight, size_t first, size_t last,
                       const void *x, const uint8_t *sending)
{
    const struct sums *const sums = sums_for(how);
    if (sums == NULL)
        return -1;
    sums->gather(values, got, ptr + first, row, weight, last - first, x, sending);
    return 0;
}

int ftrma_graph_fold(struct ftrma_graph_how how, void *values, uint8_t *got, const int64_t *rows,
                     size_t n, const void *theirs, const uint8_t *there)
{
    how.use = FTRMA_GRAPH_PLAIN;
    const struct sums *const sums = sums_for(how);
    if (sums == NULL)
        return -1;
    sums->fold(values, got, rows, n, theirs, there);
    return 0;
}
