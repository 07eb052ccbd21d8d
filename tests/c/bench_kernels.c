/*
 * Throughput of the memory kernels beside memcpy, memcmp and a read-only scan.
 *
 *   cd csrc/kernels && cc -std=c11 -O2 -I. kernels.c variant.c gf.c gf_portable.c gf_x86.c \
 *      ../../tests/c/bench_kernels.c -o bench_kernels
 *   ./bench_kernels [NAME ...]       see ftrma_kernel_name; default: the best the processor has
 *
 * GB/s are 1e9 bytes of one buffer per second: a kernel that reads two buffers and writes one
 * moves three times that. Medians of repeats; the candidates take turns, so that a machine that
 * is slower for a while is slower for all of them. Buffers are random and touched beforehand.
 */
#define _POSIX_C_SOURCE 200809L
#include "kernels.h"
#include "variant.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { NSRC = 8, MAX_REPEATS = 301 };

/* The buffers of one size; src[0] and src[1] are two contents that differ in every block. */
struct arena {
    unsigned char *src[NSRC], *copy, *stage;
    uint32_t *dirty;
    size_t n, turn;
};

static volatile uint64_t sink;

static void run_memcpy(struct arena *a)
{
    memcpy(a->stage, a->src[0], a->n);
}

static void run_memcmp(struct arena *a)
{
    sink += (uint64_t)memcmp(a->copy, a->src[0], a->n);
}

static void run_scan(struct arena *a)
{
    uint64_t sum[8] = {0};
    for (size_t i = 0; i < a->n; i += sizeof sum) {
        uint64_t words[8];
        memcpy(words, a->src[0] + i, sizeof words);
        for (size_t w = 0; w < 8; w++)
            sum[w] |= words[w];
    }
    for (size_t w = 0; w < 8; w++)
        sink += sum[w];
}

static void run_xor_into(struct arena *a)
{
    ftrma_xor_into(a->stage, a->src[0], a->n);
}

static void xor_many(struct arena *a, size_t nsrc)
{
    const void *src[NSRC];
    for (size_t s = 0; s < nsrc; s++)
        src[s] = a->src[s];
    ftrma_xor_many(a->stage, src, nsrc, a->n);
}

static void run_xor_2(struct arena *a)
{
    xor_many(a, 2);
}

static void run_xor_4(struct arena *a)
{
    xor_many(a, 4);
}

static void run_xor_8(struct arena *a)
{
    xor_many(a, 8);
}

/* Begins and ends with copy = src[0]. */
static void run_delta_clean(struct arena *a)
{
    size_t ndirty = 0;
    ftrma_delta_stage(a->src[0], a->copy, a->n, 0, a->stage, a->dirty, &ndirty, NULL, NULL);
    sink += ndirty;
}

/* Alternates between two contents: every block differs from the copy each time. */
static void run_delta_dirty(struct arena *a)
{
    a->turn ^= 1;
    size_t ndirty = 0;
    ftrma_delta_stage(a->src[a->turn], a->copy, a->n, 0, a->stage, a->dirty, &ndirty, NULL, NULL);
    sink += ndirty;
}

static void run_delta_undo(struct arena *a)
{
    ftrma_delta_undo(a->copy, a->stage, a->dirty, a->n / FTRMA_BLOCK, 0);
}

static void run_crc_whole(struct arena *a)
{
    sink += ftrma_crc32c(0, a->src[0], a->n);
}

static void run_crc_blocks(struct arena *a)
{
    for (size_t i = 0; i < a->n; i += FTRMA_BLOCK)
        sink += ftrma_crc32c(0, a->src[0] + i, FTRMA_BLOCK);
}

static void run_copy_clean(struct arena *a)
{
    sink += ftrma_copy_changed(a->copy, a->src[0], a->n);
}

static void run_copy_dirty(struct arena *a)
{
    a->turn ^= 1;
    sink += ftrma_copy_changed(a->copy, a->src[a->turn], a->n);
}

/* reset: the candidate needs copy = src[0] at its start, whatever ran before. */
static const struct candidate {
    const char *name;
    void (*run)(struct arena *);
    int reset;
} candidates[] = {
    {"memcpy", run_memcpy, 0},
    {"memcmp, equal", run_memcmp, 1},
    {"read-only scan", run_scan, 0},
    {"xor_into", run_xor_into, 0},
    {"xor_many, 2 sources", run_xor_2, 0},
    {"xor_many, 4 sources", run_xor_4, 0},
    {"xor_many, 8 sources", run_xor_8, 0},
    {"delta_stage, none dirty", run_delta_clean, 1},
    {"delta_stage, all dirty", run_delta_dirty, 1},
    {"delta_undo, all dirty", run_delta_undo, 1},
    {"crc32c, whole", run_crc_whole, 0},
    {"crc32c, 4 KiB blocks", run_crc_blocks, 0},
    {"copy_changed, equal", run_copy_clean, 1},
    {"copy_changed, all differ", run_copy_dirty, 1},
};

enum { NCAND = sizeof candidates / sizeof *candidates };

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static unsigned char *random_buffer(size_t n, uint64_t state)
{
    unsigned char *const buf = aligned_alloc(FTRMA_BLOCK, n);
    if (buf == NULL)
        exit(2);
    for (size_t i = 0; i < n; i += 8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        memcpy(buf + i, &state, 8);
    }
    return buf;
}

static void measure(struct arena *a, const struct candidate *c, double *took, size_t inner)
{
    if (c->reset) {
        memcpy(a->copy, a->src[0], a->n);
        a->turn = 0;
    }
    c->run(a); /* into the caches, as far as they reach */
    const double begin = seconds();
    for (size_t i = 0; i < inner; i++)
        c->run(a);
    *took = (seconds() - begin) / (double)inner;
}

static void bench(size_t n)
{
    static double took[NCAND][MAX_REPEATS];
    struct arena a = {.n = n};
    for (size_t s = 0; s < NSRC; s++)
        a.src[s] = random_buffer(n, 88172645463325252u + 977 * s);
    a.copy = random_buffer(n, 1);
    a.stage = random_buffer(n, 2);
    a.dirty = calloc(n / FTRMA_BLOCK, sizeof *a.dirty);
    if (a.dirty == NULL)
        exit(2);
    for (size_t b = 0; b < n / FTRMA_BLOCK; b++)
        a.dirty[b] = (uint32_t)b;

    const size_t repeats = n > (8u << 20) ? 15 : MAX_REPEATS;
    const size_t inner = n > (8u << 20) ? 1 : (1u << 20) / n;
    for (size_t r = 0; r < repeats; r++) {
        for (size_t c = 0; c < NCAND; c++)
            measure(&a, &candidates[c], &took[c][r], inner);
    }
    for (size_t c = 0; c < NCAND; c++) {
        qsort(took[c], repeats, sizeof **took, by_value);
        printf("%-9s %6zu KiB  %-25s %7.2f GB/s  %5.2f x memcpy's time\n", ftrma_kernel_name(),
               n >> 10, candidates[c].name, 1e-9 * (double)n / took[c][repeats / 2],
               took[c][repeats / 2] / took[0][repeats / 2]);
    }
    for (size_t s = 0; s < NSRC; s++)
        free(a.src[s]);
    free(a.copy);
    free(a.stage);
    free(a.dirty);
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc || i == 1; i++) {
        if (ftrma_kernel_select(i < argc ? argv[i] : NULL) != 0) {
            fprintf(stderr, "%s: unknown, or not on this processor\n", argv[i]);
            return 1;
        }
        bench((size_t)64 << 10);
        bench((size_t)1 << 20);
        bench((size_t)64 << 20);
    }
    return 0;
}
