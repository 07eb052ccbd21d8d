/* Memory kernels; see kernels.h. variant.c has the parts that depend on the instruction set. */
#include "kernels.h"

#include <string.h>

#include "gf_run.h"
#include "variant.h"

#define BLOCK ((size_t)FTRMA_BLOCK)

/* An exclusive or is the plain sum of the erasure codes. */
void ftrma_xor_into(void *dst, const void *src, size_t n)
{
    struct gf_pass pass = {.out = {dst}, .nout = 1, .add = 1, .plain = 1, .nin = 1};
    const char *const in[1] = {src};
    pass.in = in;
    /* dst is read anyway: storing past the cache would only evict it. */
    ftrma_gf_run(&pass, 0, n, 0);
}

void ftrma_xor_many(void *dst, const void *const *src, size_t nsrc, size_t n)
{
    struct gf_pass pass = {.out = {dst}, .nout = 1, .plain = 1, .nin = nsrc};
    pass.in = (const char *const *)src;
    ftrma_gf_run(&pass, 0, n, n >= STREAM_MIN);
}

uint32_t ftrma_block_crc(const void *block)
{
    static const char zeros[BLOCK];
    static uint32_t of_zeros;
    if (of_zeros == 0) /* two threads may compute it at once, with the same value */
        of_zeros = ftrma_crc32c(0, zeros, BLOCK);
    return ftrma_crc32c(0, block, BLOCK) ^ of_zeros;
}

/* All stores before it are in memory before all stores after it, even if the process is killed. */
#define IN_ORDER() __atomic_signal_fence(__ATOMIC_SEQ_CST)

void ftrma_delta_stage(const void *now, void *copy, size_t n, uint32_t first_block, void *stage,
                       uint32_t *dirty, size_t *ndirty, uint32_t *crc, size_t *corrupt)
{
    if (n == 0)
        return;
    const struct kernels *const kernel = ftrma_kernels();
    const int stream = n >= STREAM_MIN;
    const size_t nfull = n / BLOCK, rest = n % BLOCK;
    const char *from = now;
    char *to = copy;
    char *out = (char *)stage + *ndirty * BLOCK;

    for (size_t b = 0; b < nfull; b++, from += BLOCK, to += BLOCK) {
        /* Reads up to the first difference; the second pass finds that in the nearest cache. */
        if (!kernel->differ(from, to))
            continue;
        /* The checksums cost little: the block is in the nearest cache before and after. */
        const uint32_t before = crc != NULL ? ftrma_block_crc(to) : 0;
        if (crc != NULL && before != crc[b])
            ++*corrupt;
        dirty[*ndirty] = (uint32_t)(first_block + b);
        IN_ORDER();
        kernel->delta(from, to, out, stream);
        IN_ORDER();
        ++*ndirty;
        IN_ORDER();
        if (crc != NULL)
            crc[b] ^= before ^ ftrma_block_crc(to); /* a mismatch stays a mismatch, undone or not */
        out += BLOCK;
    }
    if (rest > 0 && memcmp(from, to, rest) != 0) {
        const uint32_t before = crc != NULL ? ftrma_block_crc(to) : 0;
        if (crc != NULL && before != crc[nfull])
            ++*corrupt;
        dirty[*ndirty] = (uint32_t)(first_block + nfull);
        memset(out, 0, BLOCK);
        memcpy(out, from, rest);
        ftrma_xor_into(out, to, rest);
        IN_ORDER();
        for (size_t at = 0; at < rest; at++) {
            to[at] ^= out[at]; /* not read from `from` again: others may be writing there */
            IN_ORDER();
        }
        ++*ndirty;
        IN_ORDER();
        if (crc != NULL)
            crc[nfull] ^= before ^ ftrma_block_crc(to);
    }
    stream_end(stream);
}

void ftrma_delta_undo(void *copy, const void *stage, const uint32_t *dirty, size_t ndirty,
                      uint32_t base_block)
{
    for (size_t i = 0; i < ndirty; i++)
        ftrma_xor_into((char *)copy + (dirty[i] - base_block) * BLOCK,
                       (const char *)stage + i * BLOCK, BLOCK);
}

uint32_t ftrma_crc32c(uint32_t crc, const void *buf, size_t n)
{
    return ~ftrma_kernels()->crc(~crc, buf, n);
}

size_t ftrma_copy_changed(void *dst, const void *src, size_t n)
{
    const struct kernels *const kernel = ftrma_kernels();
    const char *from = src;
    char *to = dst;
    size_t written = 0;

    for (; n >= BLOCK; n -= BLOCK, from += BLOCK, to += BLOCK) {
        if (kernel->differ(from, to)) {
            memcpy(to, from, BLOCK);
            written += BLOCK;
        }
    }
    if (n > 0 && memcmp(from, to, n) != 0) {
        memcpy(to, from, n);
        written += n;
    }
    return written;
}

/*
 * Measured (Xeon, 2 MiB second-level cache, a ring of 64 MiB, both copies): 7 GB/s at 4 KiB and 9 from
 * 16 KiB on, where two calls of memcpy reach 4 and 5; at 1 KiB there is nothing to gain.
 */
#define PAST_MIN ((size_t)4 << 10)

/*
 * Two copies past the caches are made one after the other, piece by piece: the source stays in the
 * nearest cache meanwhile. Measured (Xeon, 4 slots of FT class A, 256 KiB): 66 us, as one memcpy takes;
 * pieces of 4 or 64 KiB 78 us; with the first copy alone past the caches 95.
 */
#define PIECE ((size_t)16 << 10)

/* Copy the bytes before and after the whole lines. reg: register of the checksum, or NULL. */
static void past_ends(char *to, const char *from, size_t n, char *also, uint32_t *reg)
{
    if (reg != NULL)
        *reg = ftrma_kernels()->crc(*reg, (const unsigned char *)from, n);
    if (n > 0)
        past_portable(to, from, n, also);
}

/* Copy whole lines and compute their checksum. If that takes two passes, each piece is summed
   first, which brings it into the nearest cache. */
static void past_lines(char *to, const char *from, size_t n, char *also, uint32_t *reg)
{
    const struct kernels *const kernel = ftrma_kernels();
    if (reg == NULL) {
        kernel->past(to, from, n, also);
    } else if (kernel->past_crc != NULL) {
        *reg = kernel->past_crc(*reg, to, from, n, also);
    } else {
        for (size_t at = 0, m; at < n; at += m) {
            m = n - at < 2 * PIECE ? n - at : PIECE;
            *reg = kernel->crc(*reg, (const unsigned char *)from + at, m);
            kernel->past(to + at, from + at, m, also ? also + at : NULL);
        }
    }
}

/* n >= LINE. */
static void past(char *to, const char *from, size_t n, char *also, uint32_t *reg)
{
    const size_t head = -(uintptr_t)to % LINE, lines = (n - head) / LINE * LINE, at = head + lines;
    past_ends(to, from, head, also, reg);
    past_lines(to + head, from + head, lines, also ? also + head : NULL, reg);
    past_ends(to + at, from + at, n - at, also ? also + at : NULL, reg);
}

void ftrma_copy_past(void *dst, const void *src, size_t n, void *also, int both, uint32_t *crc)
{
    char *const to = dst, *const second = also;
    const char *const from = src;
    uint32_t sum = crc ? ~*crc : 0, *const reg = crc ? &sum : NULL;
    if (n < PAST_MIN) {
        past_ends(to, from, n, second, reg);
    } else if (second == NULL || !both) {
        past(to, from, n, second, reg);
        stream_end(1);
    } else {
        for (size_t at = 0, m; at < n; at += m) {
            m = n - at < PIECE + LINE ? n - at : PIECE;
            past(to + at, from + at, m, NULL, reg);
            past(second + at, from + at, m, NULL, NULL);
        }
        stream_end(1);
    }
    if (crc != NULL)
        *crc = ~sum;
}
