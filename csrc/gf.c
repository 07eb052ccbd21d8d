/* Erasure kernels; see gf.h. The x86-64 instruction sets are in gf_x86.c. */
#include "gf.h"

#include <string.h>

#include "kernels.h"
#include "variant.h"

/* x^8 modulo the field's polynomial. */
#define REDUCED 0x1Du

/*
 * With more outputs than one pass has, passes alternate on parts of this many bytes, so that the
 * second one finds the inputs in the second-level cache.
 */
#define PART ((size_t)8 << 10)

/* Bytes of a step of the portable kernel: its sums stay in the nearest cache. */
#define STEP ((size_t)256)

/* product[c][b] = c * b; filled at load. */
static uint8_t product[256][256];

/* -------------------------------------------------------------------------------- portable -- */

/* sum += c * from, for n bytes. The plain case apart, for compilers turn it into vectors. */
static void portable_add(uint8_t *sum, const uint8_t *from, uint8_t c, size_t n)
{
    const uint8_t *const row = product[c];
    if (c == 1) {
        for (size_t b = 0; b < n; b++)
            sum[b] ^= from[b];
    } else if (c != 0) {
        size_t b = 0;
        for (; n - b >= 8; b += 8) {
            uint64_t word, old;
            memcpy(&word, from + b, 8);
            memcpy(&old, sum + b, 8);
            /* The same place in both words, in either byte order. */
            for (unsigned at = 0; at < 64; at += 8)
                old ^= (uint64_t)row[word >> at & 255] << at;
            memcpy(sum + b, &old, 8);
        }
        for (; b < n; b++)
            sum[b] ^= row[from[b]];
    }
}

/* Any number of bytes, so this also does what is left beside the lines of the other variants. */
void ftrma_gf_lines_portable(const struct gf_pass *pass, size_t at, size_t end)
{
    for (; at < end; at += STEP) {
        const size_t n = end - at < STEP ? end - at : STEP;
        for (size_t j = 0; j < pass->nout; j++) {
            uint8_t sum[STEP] = {0};
            if (pass->add)
                memcpy(sum, pass->out[j] + at, n);
            for (size_t i = 0; i < pass->nin; i++) {
                const uint8_t c = j == 0 && pass->plain ? 1 : pass->coef[GF_WIDE * i + j];
                portable_add(sum, (const uint8_t *)pass->in[i] + at, c, n);
            }
            memcpy(pass->out[j] + at, sum, n);
        }
    }
}

/* ---------------------------------------------------------------------------------- tables -- */

static uint8_t times_x(uint8_t element)
{
    return (uint8_t)((unsigned)element << 1 ^ (element >> 7) * REDUCED);
}

#if HAVE_X86
uint64_t ftrma_gf_affine[256];
uint8_t ftrma_gf_nibbles[256][32];

/*
 * Bit b of c * v is the parity of row b of the matrix and v; column i of the matrix is c * x^i. The
 * instruction has row 0 in the highest byte.
 */
static uint64_t affine_of(size_t c)
{
    uint64_t matrix = 0;
    for (unsigned row = 0; row < 8; row++) {
        for (unsigned i = 0; i < 8; i++)
            matrix |= (uint64_t)(product[c][1u << i] >> row & 1) << (8 * (7 - row) + i);
    }
    return matrix;
}
#endif

void ftrma_gf_init(void)
{
    for (size_t c = 0; c < 256; c++) {
        product[c][1] = (uint8_t)c;
        for (size_t b = 2; b < 256; b++)
            product[c][b] = b & 1 ? (uint8_t)(product[c][b - 1] ^ c)
                                  : times_x(product[c][b / 2]);
    }
#if HAVE_X86
    for (size_t c = 0; c < 256; c++) {
        ftrma_gf_affine[c] = affine_of(c);
        for (size_t b = 0; b < 16; b++) {
            ftrma_gf_nibbles[c][b] = product[c][b];
            ftrma_gf_nibbles[c][16 + b] = product[c][16 * b];
        }
    }
#endif
}

/* --------------------------------------------------------------------------------- kernels -- */

/* Bytes up to the first line of the outputs; SIZE_MAX if they have none in common. */
static size_t head_of(const struct gf_pass *pass)
{
    const size_t head = (size_t)(0 - (uintptr_t)pass->out[0]) % LINE;
    for (size_t j = 1; j < pass->nout; j++) {
        if ((size_t)(0 - (uintptr_t)pass->out[j]) % LINE != head)
            return SIZE_MAX;
    }
    return head;
}

void ftrma_gf_run(struct gf_pass *pass, size_t at, size_t end, int stream)
{
    const size_t head = stream ? head_of(pass) : SIZE_MAX;
    pass->stream = head < end - at;
    const size_t begin = pass->stream ? at + head : at;
    const size_t rest = begin + (end - begin) / LINE * LINE;
    ftrma_gf_lines_portable(pass, at, begin);
    ftrma_kernels()->gf_lines(pass, begin, rest);
    ftrma_gf_lines_portable(pass, rest, end);
    stream_end(pass->stream);
}

/* Lists of a pass, on the caller's stack. */
struct lists {
    const char *in[FTRMA_GF_MAX_IN];
    uint8_t coef[FTRMA_GF_MAX_IN * GF_WIDE];
};

/* Fills the pass for up to GF_WIDE outputs from the first given on. Inputs that add nothing are left
 * out. */
static void pass_set(struct gf_pass *pass, struct lists *lists, void *const *out, size_t nout,
                     const void *const *in, size_t nin, const uint8_t *coef)
{
    pass->nout = nout < GF_WIDE ? nout : GF_WIDE;
    for (size_t j = 0; j < pass->nout; j++)
        pass->out[j] = out[j];
    pass->in = lists->in;
    pass->coef = lists->coef;
    pass->plain = 1;
    pass->nin = 0;
    for (size_t i = 0; i < nin; i++) {
        uint8_t *const column = lists->coef + GF_WIDE * pass->nin;
        unsigned any = 0;
        for (size_t j = 0; j < pass->nout; j++)
            any |= column[j] = coef[j * nin + i];
        if (in[i] == NULL || any == 0)
            continue;
        pass->plain &= column[0] == 1;
        lists->in[pass->nin++] = in[i];
    }
}

static void sums(void *const *out, size_t nout, const void *const *in, size_t nin,
                 const uint8_t *coef, size_t n, int add)
{
    const size_t part = nout > GF_WIDE ? PART : n;
    /* What is added to is read anyway: storing past the cache would only throw it out. */
    const int stream = n >= STREAM_MIN && !add;
    struct lists lists;
    struct gf_pass pass = {.add = add};
    for (size_t at = 0; at < n; at += part) {
        const size_t end = n - at < part ? n : at + part;
        for (size_t j = 0; j < nout; j += GF_WIDE) {
            pass_set(&pass, &lists, out + j, nout - j, in, nin, coef + j * nin);
            if (add && pass.nin == 0)
                continue;
            ftrma_gf_run(&pass, at, end, stream);
        }
    }
}

void ftrma_gf_encode(void *const *out, size_t nout, const void *const *in, size_t nin,
                     const uint8_t *coef, size_t n)
{
    sums(out, nout, in, nin, coef, n, 0);
}

void ftrma_gf_fold(void *const *out, size_t nout, const void *const *in, size_t nin,
                   const uint8_t *coef, size_t n)
{
    sums(out, nout, in, nin, coef, n, 1);
}
