/*
 * The costly loops of vertex programs and of matrix completion: sums and factors along edges,
 * counting sorts, edge lists as text, owners of vertices, a generator. A library of its own, which
 * uses nothing of the others; its only callers are kernels.py and edgekernels.py in
 * ftrma/frameworks/graph, and references.py there has each function in NumPy.
 *
 * Common to all: nothing is kept, printed or aborted, and memory is allocated by none. Buffers do
 * not overlap and are aligned as their type. Edges of row r are ptr[r] .. ptr[r + 1] - 1; a ptr of
 * n rows has n + 1 entries. Indices are trusted, unless said otherwise.
 */
#ifndef FTRMA_GRAPH_H
#define FTRMA_GRAPH_H

#include <stddef.h>
#include <stdint.h>

/* CFFI-BEGIN */
/* Types of messages. */
enum { FTRMA_GRAPH_F64, FTRMA_GRAPH_F32, FTRMA_GRAPH_I64, FTRMA_GRAPH_I32, FTRMA_GRAPH_U64 };

/*
 * Ways to combine two messages. Sums of integers wrap around. Of a minimum or maximum of floats the
 * later one stays where both are equal, which tells 0 from -0; NaN prevails.
 */
enum { FTRMA_GRAPH_ADD, FTRMA_GRAPH_MIN, FTRMA_GRAPH_MAX };

/* Uses of an edge's weight on a value, computed as double; for floats only. */
enum { FTRMA_GRAPH_PLAIN, FTRMA_GRAPH_PLUS, FTRMA_GRAPH_TIMES };

/* A way to send messages; type, combine and use are values of the enums above. */
struct ftrma_graph_how {
    int type, combine, use;
};

/*
 * One message along each edge of some rows, combined at its target in the order of rows and edges.
 *   values  [in/out] of each target
 *   got     [in/out] of each target: 1 is stored where a message comes; NULL: nowhere
 *   weight  [in]     of each edge; NULL where use is PLAIN
 *   rows    [in]     nrows of them; NULL: 0 .. nrows - 1
 *   x       [in]     of each of these rows, of the type of values
 * Returns 0; -1: there is no such type, combination or use.
 */
int ftrma_graph_scatter(struct ftrma_graph_how how, void *values, uint8_t *got, const int64_t *ptr,
                        const uint32_t *target, const double *weight, const int64_t *rows,
                        size_t nrows, const void *x);

/*
 * Messages by target: those that come to targets first .. last - 1, each one's in the order of its edges.
 *   values, got  [in/out] as above, of these targets, the first one in front
 *   ptr          [in]     edges that lead to each target
 *   row, weight  [in]     of each of them
 *   x            [in]     of each row
 *   sending      [in]     of each row, 0 or 1; NULL: all send
 */
int ftrma_graph_gather(struct ftrma_graph_how how, void *values, uint8_t *got, const int64_t *ptr,
                       const uint32_t *row, const double *weight, size_t first, size_t last,
                       const void *x, const uint8_t *sending);

/*
 * Combine values[rows[i]] with theirs[i], for each i < n where there[i] is not 0; NULL: for all.
 * how.use has no meaning. Rows are distinct. Results as above.
 */
int ftrma_graph_fold(struct ftrma_graph_how how, void *values, uint8_t *got, const int64_t *rows,
                     size_t n, const void *theirs, const uint8_t *there);

/*
 * Edges by row: a stable counting sort.
 *   row, target, weight              [in]  of each of m edges; weight may be NULL
 *   size                             [in]  rows
 *   ptr, target_sorted, weight_sorted [out] size + 1, m, m
 * Returns 0; -1: a row is not below size, and of what is written nothing can be used.
 */
int ftrma_graph_csr(const uint32_t *row, const uint32_t *target, const double *weight, size_t m,
                    size_t size, int64_t *ptr, uint32_t *target_sorted, double *weight_sorted);

/*
 * Edges by target: the counting sort of edges that are sorted by row.
 *   ptr, target, weight             [in]  of nrows rows; weight may be NULL
 *   size                            [in]  targets
 *   by_ptr, by_row, by_weight       [out] size + 1, and of each edge
 * Returns as above, for a target that is not below size.
 */
int ftrma_graph_by_target(const int64_t *ptr, const uint32_t *target, const double *weight,
                          size_t nrows, size_t size, int64_t *by_ptr, uint32_t *by_row,
                          double *by_weight);

/*
 * Leave one of equal targets of each row.
 *   ptr, target  [in/out] edges of nrows rows; the targets of each row ascend
 */
void ftrma_graph_distinct(int64_t *ptr, uint32_t *target, size_t nrows);

/*
 * Triangles that some vertices are in, as far as lists of neighbours tell of them: for each vertex v
 * and each neighbour u of v, the members of u's list that are neighbours of v.
 *   ptr, target  [in]     neighbours of nrows vertices, by number, each once
 *   list         [in]     where the list of each number begins, one entry more than numbers
 *   member       [in]     of all lists, by number
 *   mark         [in/out] of each number: 0
 *   count        [in/out] of each of these vertices
 */
void ftrma_graph_triangles(const int64_t *ptr, const uint32_t *target, size_t nrows,
                           const int64_t *list, const uint32_t *member, uint8_t *mark,
                           int64_t *count);

/* The form of lines of text. Columns are counted from 0. */
struct ftrma_graph_form {
    char separator; /* stands between fields; 0: any number of blanks, tabs and commas does */
    char mark;      /* lines that begin with another character have no edge; 0: all have one */
    int columns;    /* of each line; 0: any number that has those below */
    int source, target;
    int weight;     /* -1: there is none */
    int64_t base;   /* the id that is read as 0 */
};

/* The result of reading a text. */
struct ftrma_graph_read {
    size_t edges;
    size_t lines; /* in front of the one that is wrong */
    size_t begin; /* of that, in bytes */
};

/*
 * An edge in each line: two ids and perhaps a weight, in some of its columns. A field may be between
 * double quotes. Lines that begin with #, % or //, and empty ones, are left out. An integer that a
 * double does not hold exactly is no weight.
 *   text                    [in]     size bytes, the last one a line feed
 *   read                    [out]    the result
 *   source, target, weight  [out]    room for one each in every line
 * Returns 0; -1: a line is wrong, see read; -2: no memory for a locale.
 */
int ftrma_graph_parse(const char *text, size_t size, const struct ftrma_graph_form *form,
                      struct ftrma_graph_read *read, int64_t *source, int64_t *target,
                      double *weight);

/*
 * Edges first .. first + count - 1 of R-MAT: scale bits of source and target, two of each at a time
 * by 16 bits of a word that follows from seed, edge and place alone. Of an odd scale the last bits
 * are left out.
 *   scale           [in]  0 .. 40
 *   pairs           [in]  for each of 65536 draws two bits of the source, then two of the target
 *   source, target  [out] count each
 */
void ftrma_graph_rmat(uint64_t seed, int scale, const uint8_t *pairs, uint64_t first, size_t count,
                      int64_t *source, int64_t *target);

/*
 * The slot that owns each vertex, see owners.c.
 *   ids    [in]   count of them, not negative
 *   slots  [in]   N, 1 at least
 *   owner  [out]  0 .. N - 1, of each
 */
void ftrma_graph_owners(const int64_t *ids, size_t count, uint32_t slots, int64_t *owner);

/* Owners of vertices 0 .. n - 1. */
struct ftrma_graph_ownership {
    int64_t n;
    const int64_t *bounds; /* slot s owns bounds[s] .. bounds[s + 1] - 1; NULL: see owners.c */
    uint32_t slots;        /* 1 at least */
};

/*
 * Edges by the owners of their sources, in their order; targets are less than 2^32.
 *   source, target, weight  [in]  of each of m edges; weight may be NULL
 *   owner                   [out] of each edge; of no use afterwards
 *   count                   [out] edges of each slot
 *   row, to, heavy          [out] of each edge: the source's number among its owner's vertices, the
 *                                 target, the weight
 * Returns 0; -1: an id is none of a vertex, and of what is written nothing can be used.
 */
int ftrma_graph_deal(const struct ftrma_graph_ownership *of, const int64_t *source,
                     const int64_t *target, const double *weight, size_t m, uint32_t *owner,
                     int64_t *count, uint32_t *row, uint32_t *to, double *heavy);

/*
 * Count the distinct targets of edges, by owner.
 *   target  [in]     of each of m edges, less than of->n
 *   number  [in/out] of each vertex: 0; 1 for those that are targets
 *   bounds  [out]    slots + 1: how many targets slots in front of each one own
 */
void ftrma_graph_mark(const struct ftrma_graph_ownership *of, const uint32_t *target, size_t m,
                      uint32_t *number, int64_t *bounds);

/*
 * Number the distinct targets by owner, then ascending.
 *   target    [in/out] of each of m edges; becomes its number
 *   number    [in/out] of each vertex, as ftrma_graph_mark has left it; of no use afterwards
 *   next      [in/out] bounds of ftrma_graph_mark; of no use afterwards
 *   distinct  [out]    the targets, in the order of their numbers
 */
void ftrma_graph_number(const struct ftrma_graph_ownership *of, uint32_t *target, size_t m,
                        uint32_t *number, int64_t *next, int64_t *distinct);

/* Known entries of a matrix, by column. */
struct ftrma_graph_entries {
    const int64_t *ptr;  /* where the entries of each column begin */
    const uint32_t *row; /* of each entry */
    const double *value; /* of each entry */
    size_t rank;         /* factors of a row, and of a column */
    size_t stride;       /* doubles from one column's factors to the next one's */
};

/*
 * A step of stochastic gradient descent for each entry of some columns, one after the other, on the
 * factors of its row and of its column.
 *   rows            [in/out] rank factors of each row
 *   columns         [in/out] rank factors of each of these columns, stride apart
 *   which           [in]     numbers of these columns, n of them
 *   step            [in]     of each of these columns
 *   squares         [out]    of each of these columns: the sum of the squares of the errors, each
 *                            before its step
 */
void ftrma_graph_visit(const struct ftrma_graph_entries *entries, double *rows, double *columns,
                       const int64_t *which, size_t n, const double *step, double regularization,
                       double *squares);
/* CFFI-END */

#endif
